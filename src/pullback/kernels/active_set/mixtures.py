"""SparseMAP over structures that choose a part for every slot: the kernels of a structure, made from its argmax."""

import numpy as np

from pullback.kernels.active_set.backward import backward_over
from pullback.kernels.active_set.rounds import rounds_over
from pullback.kernels.active_set.slots import actives, begin_rest, mix, nothing, numbers_of, write_mixture
from pullback.kernels.tools import compiled, kernel

_NEARLY = 1e-9  # a gap that rounding may leave
_ENDLESS = 10**9


def mixture_over(workspace, load, best, worth=nothing, spread=None):
    """The kernels `mixture` and `mixture_backward` of a structure, from its argmax.

    workspace(scores, options)                    what it needs for itself, `own` below; once per call
    load(scores, b, n, options, own, out)         copies the scores of an instance of length n, shaped like scores[b]:
                                                  the number of slots, or −1 if a score is NaN or +∞.  Where every
                                                  vertex fills a slot, scores relative to the best part of the slot
                                                  change no comparison, and the digits of a large score are not lost
    best(rest, n, options, own, vertex)           writes the parts of the best vertex; False if there is none
    worth(own, n, vertex)                         the score of a vertex beside those of its parts
    spread(weight, n, vertex, product)            adds `weight` times the derivative of the worth by what it is made of;
                                                  with it `mixture_backward` writes one more product

    `options` is a tuple of what the structure asks for besides scores and lengths.  Numbers of parts that do not exist
    may be anything in `rest`.  The kernels bear the name of `best`, which no other `best` of its module may have.
    """
    begin, project = rounds_over(best, worth)

    def mixture(
        scores, lengths, options, start, tolerance, max_iterations,
        point, vertices, probabilities, size, gap, iterations, lo, hi,
    ):  # fmt: skip
        """The nearest point of the hull, the vertices it mixes, and how the search ended.

        Instances whose length is below 0 are left out.  start (batch, k, slots): vertices to begin with; rows of −1
        are ignored, k may be 0.  point (batch, …) like scores.  vertices (batch, capacity, slots), int32, and
        probabilities (batch, capacity) are written for the size[b] vertices that mix; those beyond the capacity are
        counted but not written.  Stops when the gap, which is ⟨s − μ, argmax(s − μ) − μ⟩, is at most `tolerance` and
        what rounding adds to it.  An iteration costs O(size² + size · slots) and an argmax.
        Returns the first instance without a vertex or with a score of NaN or +∞, or −1.
        """
        parts, own = numbers_of(scores), workspace(scores, options)
        shaped, rest = parts.scores.reshape(scores.shape[1:]), parts.rest.reshape(scores.shape[1:])
        active = actives(np.int64(64), vertices.shape[2])
        for b in range(lo, hi):
            n = lengths[b]
            if n < 0:
                continue
            slots = load(scores, b, n, options, own, shaped)
            if slots < 0:
                return b
            begin_rest(parts)
            active, count = begin(parts, own, n, slots, start[b], n == 0, active)
            active, size[b], gap[b], iterations[b] = project(
                parts, rest, own, n, slots, options, tolerance, max_iterations, np.inf, active, count
            )
            if size[b] == 0:
                return b
            mix(parts, slots, active, size[b], 0)
            write_mixture(parts, point[b])
            for t in range(min(size[b], vertices.shape[1])):
                probabilities[b, t] = active.weights[t]
                for i in range(vertices.shape[2]):
                    vertices[b, t, i] = active.vertices[t, i] if i < slots else -1
        return -1

    backward = backward_over(workspace, load, best, worth, spread)
    return compiled(mixture, f"mixture_{best.__name__}", best.__module__, kernel), backward


def attempt_over(workspace, load, best, worth=nothing):
    """The kernel `attempt`, which leaves instances that mix many vertices; takes what `mixture_over` takes."""
    _, project = rounds_over(best, worth)

    def attempt(scores, lengths, options, tolerance, patience, point, left, lo, hi):
        """The nearest point of the hull for the instances that mix few vertices; `left` (batch,) is false for them.

        The gap tells early how many vertices will mix.  The first one is at most the number of slots, and nearly that
        if some vertex scores hardly less than the best although no part of it is the same: such an instance is left at
        once.  After r rounds the gap is about 1 / r² of the first one where dozens will mix, more where they are
        hundreds: an instance is left if after 4, 8, 16, … rounds it is above patience / r² of the first, or if rounding
        ends the search before the gap has vanished.  Returns the first instance without a vertex or with a score of NaN
        or +∞, or −1.
        """
        parts, own = numbers_of(scores), workspace(scores, options)
        shaped, rest = parts.scores.reshape(scores.shape[1:]), parts.rest.reshape(scores.shape[1:])
        active = actives(np.int64(64), scores.shape[1])
        for b in range(lo, hi):
            n = lengths[b]
            slots = load(scores, b, n, options, own, shaped)
            if slots < 0:
                return b
            begin_rest(parts)
            active, count, gap, _ = project(
                parts, rest, own, n, slots, options, tolerance, _ENDLESS, patience, active, np.int64(0)
            )
            if count == 0:
                return b
            left[b] = gap > _NEARLY
            if not left[b]:
                mix(parts, slots, active, count, 0)
                write_mixture(parts, point[b])
        return -1

    return compiled(attempt, f"attempt_{best.__name__}", best.__module__, kernel)
