"""Projection onto the hull of vertices that an argmax names: the active-set method."""

from pullback.kernels.active_set.core import add, append, grow, leave_span, seed, settle, tangent, widen
from pullback.kernels.active_set.slots import mixture_over, write_parts

__all__ = [
    "add",
    "append",
    "grow",
    "leave_span",
    "mixture_over",
    "seed",
    "settle",
    "tangent",
    "widen",
    "write_parts",
]
