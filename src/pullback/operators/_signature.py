"""The signature of an operator: one line, from which schema, outputs, fakes and examples follow.

    subset_project(scores[n], low[], high[]) -> point[n]
    tree_sample(scores[n, n], lengths[] <= n - 1, bool single_root, seeds[], int count) -> vertices[count, n, n]

Every tensor has the same leading batch dimensions; the brackets name those that follow.  The first tensor is floating
and says where, and in what dtype, the outputs are; an output of another dtype names it, `size[]: int64`.  A tensor of
integers may have a largest value, `lengths[] <= n`, or one for each of its numbers, `lengths[2] <= (n, m)`; where None
is given, these are its values.  Numbers are written as in PyTorch's schemas: `int k`, `bool projective`,
`float tolerance`.  What stands in brackets or behind <= may be computed from other sizes and whole numbers.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
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
    def batch(self) -> str:
        """Where to read the shape of the batch."""
        return f"{self.name}.shape[: {self.name}.dim() - {self.rank}]" if self.rank else f"{self.name}.shape"

    @property
    def schema(self) -> str:
        return f"{self.kind or 'Tensor'}{'?' if self.most else ''} {self.name}"


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

    @cached_property
    def allocate(self) -> Callable[..., tuple[Tensor, ...]]:
        """Empty outputs for these inputs, whose sizes are compared."""
        first, *others = self.inputs
        batch = first.batch
        empty = []
        for output in self.outputs:
            if output.dims == first.dims and output.dtype is None:
                empty.append(f"torch.empty_like({first.name}, memory_format=torch.contiguous_format)")
            else:
                shape = f"({batch} + ({''.join(f'{dim}, ' for dim in output.dims or ())}))"
                empty.append(f"{first.name}.new_empty({shape}, dtype={output.dtype or f'{first.name}.dtype'})")
        same = [f"{self._origins[dim]} == {place}" for _, dim, place in self._places() if self._origins[dim] != place]
        for other in others:
            if other.is_tensor:
                same.append(f"({other.name} is None or {other.batch} == {batch})")
        names = ", ".join(argument.name for argument in self.inputs)
        return self._function(f"({', '.join(empty)},) if {' and '.join(same) or True} else complain({names})")

    def _complain(self, *arguments: Any) -> None:
        """Raises because two dimensions differ whose sizes have one name."""
        for name, dim, place in self._places():
            size, expected = (self._function(text)(*arguments) for text in (place, self._origins[dim]))
            if size != expected:
                raise ValueError(f"{self.name}: {name} has size {size} where others have {dim} = {expected}.")
        shapes = ", ".join(f"{a.name} {tuple(given.shape)}" for a, given in zip(self.inputs, arguments) if a.is_tensor)
        raise ValueError(f"{self.name}: {shapes} differ in the dimensions of the batch.")

    @cached_property
    def bounds(self) -> list[tuple[int, Callable[..., int | tuple[int, ...]]]]:
        """The place of each input that has a largest value, and what computes that."""
        return [(i, self._function(a.most)) for i, a in enumerate(self.inputs) if a.most is not None]

    def _places(self) -> Iterator[tuple[str, str, str]]:
        """Every dimension of an input that is a size by itself: the input, the size's name and where to read it."""
        for argument in self.inputs:
            for i, dim in enumerate(argument.dims or ()):
                if dim.isidentifier():
                    yield argument.name, dim, f"{argument.name}.shape[{i - argument.rank}]"

    @cached_property
    def _origins(self) -> dict[str, str]:
        """Where the size of a name is read first."""
        return {dim: place for _, dim, place in reversed(list(self._places()))}

    def _function(self, expression: str) -> Callable[..., Any]:
        """An expression over sizes and whole numbers as a function of the inputs; it is compiled once, here."""
        text = re.sub(r"\b(?<!\.)[A-Za-z_]\w*", lambda found: self._origins.get(found[0], found[0]), expression)
        names = ", ".join(argument.name for argument in self.inputs)
        function: Callable[..., Any] = eval(f"lambda {names}: {text}", {"torch": torch, "complain": self._complain})
        return function

    def example(self, moves: int = 1, **values: Any) -> tuple[Any, ...]:
        """Inputs to try the operator with.

        The first `moves` are random scores, other tensors are filled with 1, or with what `values` say.
        """
        generator = torch.Generator().manual_seed(0)
        standard = {"int": 1, "bool": False, "float": 1e-9}
        example: list[Any] = []
        for argument in self.inputs:
            shape = (2, *map(_example_size, argument.dims or ()))
            if len(example) < moves:
                example.append(torch.randn(shape, generator=generator, dtype=torch.float64))
            elif argument.kind is not None:
                example.append(values.get(argument.name, standard[argument.kind]))
            else:
                example.append(torch.full(shape, values.get(argument.name, 1), dtype=argument.dtype or torch.int64))
        return tuple(example)


def _example_size(dim: str) -> int:
    """`dim`, with one size for every name in it."""
    return int(eval(re.sub(r"\b(?!if\b|else\b)[A-Za-z_]\w*", str(_EXAMPLE_SIZE), dim)))


def parse(line: str) -> Signature:
    """The signature that a line spells out."""
    found = re.fullmatch(r"\s*(\w+)\((.*)\)\s*->\s*(.*?)\s*", line, re.DOTALL)
    if found is None:
        raise ValueError(f"{line!r} is not a signature; expected `name(inputs) -> outputs`.")
    name, inputs, outputs = found.groups()
    return Signature(name, tuple(map(_argument, _split(inputs))), tuple(map(_argument, _split(outputs))))


def _split(text: str) -> list[str]:
    """At the commas outside of brackets and parentheses."""
    return [part.strip() for part in re.split(r",(?![^\[]*\])(?![^(]*\))", text)]


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
