"""Structures as operators know them: a number for what is constant, and a list of tensors.

A compiler keeps operators in its graph, not objects.  So the search for a SparseMAP solution is an operator that is
told which structure to rebuild, and from which tensors.
"""

from functools import partial
from typing import Any

from torch import Tensor

from pullback.operators.active_set import SEARCHES

_number_by_recipe: dict[Any, int] = {}


def search_of(structure: Any) -> tuple[list[Tensor], int]:
    """The tensors of a structure, and the number of its search."""
    if not hasattr(structure, "__dataclass_fields__"):
        raise TypeError(
            f"{type(structure).__name__}: a structure inside torch.compile or vmap has to be a frozen dataclass, whose "
            "fields say what it is."
        )
    facts: list[Tensor] = []
    recipe = _take_apart(structure, facts)
    return facts, _number_of(recipe)


def _take_apart(value: Any, facts: list[Tensor]) -> tuple[Any, ...]:
    """A hashable recipe of the value, whose tensors are added to `facts`."""
    if isinstance(value, Tensor):
        facts.append(value)
        return "tensor", len(facts) - 1
    if isinstance(value, tuple):
        return "tuple", tuple([_take_apart(item, facts) for item in value])
    if hasattr(value, "__dataclass_fields__"):
        fields = tuple([(name, _take_apart(getattr(value, name), facts)) for name in value.__dataclass_fields__])
        return "object", type(value), fields
    return "constant", value


def _put_together(recipe: tuple[Any, ...], facts: list[Tensor]) -> Any:
    kind, *rest = recipe
    if kind == "tensor":
        return facts[rest[0]]
    if kind == "tuple":
        return tuple([_put_together(item, facts) for item in rest[0]])
    if kind == "object":
        return rest[0](**{name: _put_together(item, facts) for name, item in rest[1]})
    return rest[0]


def _search_from(recipe: tuple[Any, ...], facts: list[Tensor]) -> Any:
    return _put_together(recipe, facts)._search


def _number_of(recipe: tuple[Any, ...]) -> int:
    if recipe not in _number_by_recipe:
        _number_by_recipe[recipe] = len(SEARCHES)
        SEARCHES.append(partial(_search_from, recipe))
    return _number_by_recipe[recipe]


# What `torch.compiler.assume_constant_result` sets; calling it would load the whole compiler.
_number_of._dynamo_marked_constant = True  # type: ignore[attr-defined]
