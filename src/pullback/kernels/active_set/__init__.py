"""Projection onto the hull of vertices that an argmax names: the active-set method.

`core` knows vertices by their inner products alone; `dense` has kernels for vertices whose argmax happens elsewhere.
For structures that choose a part for every slot, and whose argmax is compiled, the whole search is: `slots` has their
vertices, `rounds` the search, `backward` its derivative, and `mixtures` makes the kernels.
"""

from pullback.kernels.active_set.core import add, append, settle, tangent
from pullback.kernels.active_set.dense import grow, leave_span, seed, widen
from pullback.kernels.active_set.mixtures import attempt_over, mixture_over

__all__ = [
    "add",
    "append",
    "attempt_over",
    "grow",
    "leave_span",
    "mixture_over",
    "seed",
    "settle",
    "tangent",
    "widen",
]
