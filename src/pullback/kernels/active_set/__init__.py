"""Projection onto the hull of vertices that an argmax names: the active-set method."""

from pullback.kernels.active_set.core import add, append, grow, leave_span, seed, settle, tangent, widen

__all__ = ["add", "append", "grow", "leave_span", "seed", "settle", "tangent", "widen"]
