"""The signature of an operator: one line, from which schema, outputs, fakes and examples follow.

    subset_project(scores[n], low[], high[]) -> point[n]
    tree_sample(scores[n, n], lengths[] <= n - 1, bool single_root, seeds[], int count) -> vertices[count, n, n]

Every tensor has the same leading batch dimensions; the brackets name those that follow.  The first tensor is floating
and says where, and in what dtype, the outputs are; an output of another dtype names it, `size[]: int64`.  A tensor of
integers may have a largest value.  Numbers are written as in PyTorch's schemas: `int k`, `bool projective`,
`float tolerance`.  What stands in brackets or behind <= may be computed from other sizes and whole numbers.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import CodeType
from typing import Any

import torch
from torch import Tensor

_TENSOR = re.compile(r"(\w+)\[(.*?)\]\s*(?:<=\s*([^:]+?))?\s*(?::\s*(\w+))?")
_NUMBER = re.compile(r"(int|bool|float) (\w+)")
_EXAMPLE_SIZE = 4


@dataclass(frozen=True)
class Argument:
    """A tensor or a number.  dims: what follows the batch dimensions;  kind: of a number;  dtype: of an output."""

    name: str
    dims: tuple[str, ...] | None = None
    most: str | None = None
    kind: str | None = None
    dtype: torch.dtype | None = None

    @property
    def is_tensor(self) -> bool:
        return self.dims is not None

    @property
    def rank(self) -> int:
        return len(self.dims or ())

    @property
    def schema(self) -> str:
        return f"{self.kind or 'Tensor'} {self.name}"

    @cached_property
    def shape(self) -> tuple[CodeType, ...]:
        return tuple(compile(dim, dim, "eval") for dim in self.dims or ())

    @cached_property
    def bound(self) -> CodeType:
        return compile(self.most or "", self.most or "", "eval")


@dataclass(frozen=True)
class Signature:
    """A name, what goes in and what comes out."""

    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]

    @property
    def schema(self) -> str:
        """As `torch.library` wants it."""
        results = ", ".join(["Tensor"] * len(self.outputs))
        arguments = ", ".join(argument.schema for argument in self.inputs)
        return f"{self.name}({arguments}) -> {results if len(self.outputs) == 1 else f'({results})'}"

    def __getitem__(self, name: str) -> Argument:
        return next(argument for argument in self.inputs + self.outputs if argument.name == name)

    def sizes(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """The sizes that the inputs have, and the numbers among them, by name."""
        found: dict[str, Any] = {}
        for name, dims, given in zip(*self._names_and_dims, arguments):
            if dims is None:
                found[name] = given
                continue
            for dim, size in zip(reversed(dims), reversed(given.shape)):
                if found.setdefault(dim, size) != size:
                    raise ValueError(f"{self.name}: {name} has size {size} where others have {dim} = {found[dim]}.")
        return found

    @cached_property
    def _names_and_dims(self) -> tuple[list[str], list[tuple[str, ...] | None]]:
        return [argument.name for argument in self.inputs], [argument.dims for argument in self.inputs]

    @cached_property
    def allocate(self) -> Callable[..., tuple[Tensor, ...]]:
        """Empty outputs for these inputs."""
        first = self.inputs[0]
        plain = [output.dtype is None and output.dims in (first.dims, ()) for output in self.outputs]

        def allocate_one(like: Tensor, *_: Any) -> tuple[Tensor, ...]:
            return (like.new_empty(like.shape),)

        if [output.dims for output in self.outputs] == [first.dims] and plain[0]:
            return allocate_one

        def allocate(*arguments: Any) -> tuple[Tensor, ...]:
            like: Tensor = arguments[0]
            shape, batch = like.shape, like.shape[: like.dim() - first.rank]
            sizes = None if all(plain) else self.sizes(arguments)
            empty = []
            for output, is_plain in zip(self.outputs, plain):
                if is_plain:
                    empty.append(like.new_empty(shape if output.dims else batch))
                else:
                    event = [eval(dim, {}, sizes) for dim in output.shape]
                    empty.append(like.new_empty((*batch, *event), dtype=output.dtype or like.dtype))
            return tuple(empty)

        return allocate

    def example(self, **values: Any) -> tuple[Any, ...]:
        """Inputs to try the operator with: random scores, other tensors filled with 1, or with what `values` say."""
        standard = {"int": 1, "bool": False, "float": 1e-9}
        example: list[Any] = []
        for argument in self.inputs:
            shape = (2, *(_EXAMPLE_SIZE for _ in argument.dims or ()))
            if not example:
                example.append(torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
            elif argument.kind is not None:
                example.append(values.get(argument.name, standard[argument.kind]))
            else:
                example.append(torch.full(shape, values.get(argument.name, 1), dtype=argument.dtype or torch.int64))
        return tuple(example)


def parse(line: str) -> Signature:
    """The signature that a line spells out."""
    found = re.fullmatch(r"\s*(\w+)\((.*)\)\s*->\s*(.*?)\s*", line, re.DOTALL)
    if found is None:
        raise ValueError(f"{line!r} is not a signature; expected `name(inputs) -> outputs`.")
    name, inputs, outputs = found.groups()
    return Signature(name, tuple(map(_argument, _split(inputs))), tuple(map(_argument, _split(outputs))))


def _split(text: str) -> list[str]:
    """At the commas outside of brackets."""
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text)]


def _argument(text: str) -> Argument:
    number = _NUMBER.fullmatch(text)
    if number is not None:
        return Argument(number[2], kind=number[1])
    tensor = _TENSOR.fullmatch(text)
    if tensor is None:
        raise ValueError(f"{text!r} is not an argument; expected `name[sizes]` or `int name`.")
    name, dims, most, dtype = tensor.groups()
    sizes = tuple(dim.strip() for dim in dims.split(",")) if dims.strip() else ()
    return Argument(name, sizes, most, dtype=getattr(torch, dtype) if dtype else None)
