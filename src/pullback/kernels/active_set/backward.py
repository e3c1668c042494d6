"""The derivative of SparseMAP over slots.

The Jacobian is the orthogonal projection onto the span of the face that s − μ exposes: the differences of all vertices
optimal for s − μ.  The active ones alone may fall short of it, because the gap vanishes as soon as μ is in their hull,
whether or not they span the face.  So take a random direction r orthogonal to their differences and ask for the best
vertex under s − μ + δ r, with δ so small that only ties are broken.  Since μ lies inside the face, a face not yet
spanned has vertices on either side of r = const, so the answer is a new one; when none comes, it is spanned.

A derivative asks more of the forward pass than a point does: at a relative gap of 1e-6 the vertices may still be those
of a neighboring face, and the Jacobian wrong by O(1).  The last digits are cheap for projective trees, 3 % more
iterations for a gap of 1e-12.  Where hundreds of vertices mix, the rounding is not much below 1e-12.
"""

import numpy as np

from pullback.kernels.active_set import core
from pullback.kernels.active_set.rounds import rounds_over
from pullback.kernels.active_set.slots import (
    ROUNDING,
    actives,
    advantage,
    at,
    begin_rest,
    enlarged,
    in_use,
    introduce,
    magnitude,
    mix,
    numbers_of,
)
from pullback.kernels.tools import compiled, inner, kernel, uniform

_TIE = 1e-8  # vertices whose score under s − μ is this close to the best belong to the face
_PER_TRY = 128  # vertices; what rounding leaves of hundreds may hide that of the face which a direction asks for


@inner
def _tangent(direction, slots, active, count):
    """trial = the coefficients of the projection of `direction` onto the span of the differences of the vertices."""
    for t in range(count):
        active.trial[t] = 0.0
        for i in range(slots):
            active.trial[t] += at(direction, active.vertices[t, i])
    core.tangent(active.factor, count, active.trial)


@inner
def _subtract(slots, active, count, direction):
    """direction −= Σ trial[t] · vertices[t]."""
    for t in range(count):
        for i in range(slots):
            if active.vertices[t, i] >= 0:
                direction[active.vertices[t, i]] -= active.trial[t]


@inner
def _choices(active, slots, count, used):
    """The dimensions of a face where every slot may choose any of its parts in the mixture, whatever others choose."""
    for i in range(slots):
        filled = True
        for t in range(count):
            filled &= active.vertices[t, i] >= 0
        used -= filled
    return used


@inner
def _leave_span(parts, slots, active, count, state):
    """Writes a random direction orthogonal to the span of the vertices; returns its largest number, at least 1."""
    direction = parts.direction
    for part in range(direction.shape[0]):
        direction[part] = 2.0 * uniform(state) - 1.0 if parts.scores[part] > -np.inf else 0.0
    _tangent(direction, slots, active, count)
    _subtract(slots, active, count, direction)
    largest = 1.0
    for part in range(direction.shape[0]):
        largest = max(largest, abs(direction[part]))
    return largest


@inner
def _write(parts, slots, active, count, product):
    """product = Σ trial[t] · vertices[t]."""
    parts.direction[:] = 0.0
    _subtract(slots, active, count, parts.direction)
    flat = product.reshape(-1)
    for part in range(len(flat)):
        flat[part] = -parts.direction[part]


def backward_over(workspace, load, best, worth, spread):
    """The kernel `mixture_backward`, from what `mixture_over` is given."""
    name, home = best.__name__, best.__module__
    begin, _ = rounds_over(best, worth)

    def span(parts, rest, own, n, slots, options, tie, active, count):
        """Adds vertices until they span the face on which s − μ is largest: (active vertices, count)."""
        mix(parts, slots, active, count, 0)
        used = in_use(parts)
        if count - 1 == _choices(active, slots, count, used):  # no face has more dimensions
            return active, count
        for k in range(used):
            parts.scores[parts.used[k]] = parts.rest[parts.used[k]]
        state, misses = np.zeros(1, np.uint64), 0
        while True:
            if count == len(active.weights):
                active = enlarged(active)
            largest = _leave_span(parts, slots, active, count, state)
            step = tie / (2 * slots * largest)
            for part in range(len(parts.rest)):
                parts.rest[part] = parts.scores[part] + step * parts.direction[part]
            fresh, first = active.vertices[count, :slots], active.vertices[0, :slots]
            best(rest, n, options, own, fresh)
            if advantage(parts.direction, fresh, first) < 1e-6 * largest:
                if misses >= count // _PER_TRY:
                    return active, count
                misses += 1
                continue
            active.worths[count] = worth(own, n, fresh)
            introduce(parts.scores, slots, active, count)
            if not core.append(active.factor, count, 0.0):
                return active, count
            count += 1

    span = compiled(span, f"span_{name}", home)

    def coefficients(scores, b, n, options, own, parts, given, gradient, active):
        """(active vertices, count, slots): vertices that span the face, and in `trial` their coefficients.

        The projection of the gradient onto the span is the sum of the vertices times these.  Instead of slots, −1 where
        a score is NaN or +∞.
        """
        shaped, rest = parts.scores.reshape(scores.shape[1:]), parts.rest.reshape(scores.shape[1:])
        parts.scores[:] = -np.inf  # so that padding takes no part in the choice of a direction
        slots = load(scores, b, n, options, own, shaped)
        if slots < 0:
            return active, 0, slots
        begin_rest(parts)
        unit = 1.0
        for t in range(len(given)):
            unit = max(magnitude(parts.scores, given[t, :slots], unit), abs(worth(own, n, given[t])))
        active, count = begin(parts, own, n, slots, given, True, active)
        tie = _TIE + 10.0 * ROUNDING * slots * unit
        active, count = span(parts, rest, own, n, slots, options, tie, active, count)
        _tangent(gradient.reshape(-1), slots, active, count)
        return active, count, slots

    coefficients = compiled(coefficients, f"coefficients_{name}", home)

    def nowhere(coefficient, n, vertex, own_product):
        """The `spread` of a vertex whose worth is that of its parts alone."""

    with_own = compiled(nowhere, f"nowhere_{name}", home) if spread is None else spread

    def mixture_backward_with_own(scores, lengths, options, vertices, size, gradient, product, own_product, lo, hi):
        """`mixture_backward`, and the same for what the worth of a vertex is made of: own_product (batch, …)."""
        parts, own = numbers_of(scores), workspace(scores, options)
        active = actives(np.int64(64), vertices.shape[2])
        for b in range(lo, hi):
            n = lengths[b]
            own_product[b] = 0.0
            if n < 0:
                continue
            if size[b] <= 0 or size[b] > vertices.shape[1]:
                return b
            given = vertices[b, : size[b]]
            active, count, slots = coefficients(scores, b, n, options, own, parts, given, gradient[b], active)
            if slots < 0:
                return b
            _write(parts, slots, active, count, product[b])
            for t in range(count):
                with_own(active.trial[t], n, active.vertices[t], own_product[b])
        return -1

    if spread is not None:
        return compiled(mixture_backward_with_own, f"mixture_backward_{name}", home, kernel)
    over_batch = compiled(mixture_backward_with_own, f"mixture_backward_with_own_{name}", home)

    def mixture_backward(scores, lengths, options, vertices, size, gradient, product, lo, hi):
        """The Jacobian of `mixture`, which is symmetric, times `gradient`: its projection onto the span of the face.

        vertices and size are those `mixture` wrote.  Costs O(size³), and an argmax for each vertex that is missing plus
        one.  Returns the first instance that has no vertices, or whose vertices did not all fit, or −1.
        """
        nothing = np.empty((len(lengths), 0))
        return over_batch(scores, lengths, options, vertices, size, gradient, product, nothing, lo, hi)

    return compiled(mixture_backward, f"mixture_backward_{name}", home, kernel)
