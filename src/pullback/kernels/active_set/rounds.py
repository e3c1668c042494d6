"""The rounds of the active-set method over slots: SparseMAP of one instance, from its argmax.

    min ½‖μ − s‖²   over   μ = Σ p_t z_t,  p ≥ 0,  Σ p = 1

Each round asks for the best vertex under s − μ, takes it into the active set, and moves μ to the nearest point of their
hull (`core.add`).
"""

import functools

import numpy as np

from pullback.kernels.active_set import core
from pullback.kernels.active_set.slots import (
    ROUNDING,
    advantage,
    allowed,
    compacted,
    enlarged,
    introduce,
    magnitude,
    mix,
)
from pullback.kernels.tools import compiled, inner

FLAT = 0.85  # the first gap for each slot, beyond which very many vertices mix


@inner
def _would_take_long(iteration, gap, first_gap, slots, patience):
    """Whether the gap tells that many vertices will mix: `attempt` says how.  Never, if the patience is ∞."""
    if iteration == 1:
        return patience < np.inf and gap > FLAT * slots
    is_checkpoint = iteration >= 4 and iteration & (iteration - 1) == 0
    return is_checkpoint and gap * iteration * iteration > patience * first_gap


@functools.cache
def rounds_over(best, worth):
    """What an instance begins with, and its rounds: `begin` and `project`, from what `mixture_over` is given."""

    def begin(parts, own, n, slots, given, may_be_empty, active):
        """Loads the given vertices, except those forbidden or dependent, and mixes them: (active vertices, count)."""
        count = np.int64(0)  # not a literal, for which Numba would compile the callees a second time
        for k in range(len(given)):
            if allowed(parts.scores, given[k, :slots], may_be_empty):
                if count == len(active.weights):
                    active = enlarged(active)
                for i in range(slots):
                    active.vertices[count, i] = given[k, i]
                active.worths[count] = worth(own, n, active.vertices[count])
                if active.worths[count] > -np.inf:
                    value = introduce(parts.scores, slots, active, count)
                    count += core.append(active.factor, count, value)
        for t in range(count):
            active.weights[t], active.kept[t] = 1.0 / count, t
        if count > 0:
            count = core.settle(active.factor, active.weights, active.kept, active.trial, count)
            count = compacted(active, count)
        return active, count

    def project(parts, rest, own, n, slots, options, tolerance, max_iterations, patience, active, count):
        """(active vertices, count, gap, iterations) of one instance from its first active vertices; count 0 if none.

        All active vertices score the same under s − μ, hence the gap is what the best scores above any of them.  Gives
        up, and says so by a gap of ∞, where `attempt` would leave the instance.
        """
        gap = first_gap = np.inf
        unit = 1.0
        for iteration in range(max_iterations + 1):
            if count == len(active.weights):
                active = enlarged(active)
            mix(parts, slots, active, count, max(count - 1, 0) if iteration > 0 else 0)
            fresh, first = active.vertices[count, :slots], active.vertices[0, :slots]
            if not best(rest, n, options, own, fresh):
                return active, 0, gap, iteration
            active.worths[count] = worth(own, n, fresh)
            unit = max(magnitude(parts.scores, fresh, unit), abs(active.worths[count]))
            rounding = ROUNDING * slots * unit
            if count > 0:
                gap = advantage(parts.rest, fresh, first) + (active.worths[count] - active.worths[0])
                if gap <= tolerance + rounding or iteration == max_iterations:
                    break
                if first_gap == np.inf:
                    first_gap = gap
                if _would_take_long(iteration, gap, first_gap, slots, patience):
                    return active, count, np.inf, iteration
            value = introduce(parts.scores, slots, active, count)
            slack = 0.5 * (tolerance + rounding)
            count, useful = core.add(active.factor, active.weights, active.kept, active.trial, count, value, slack)
            compacted(active, count)
            if not useful:
                break
        return active, count, gap, iteration

    name, home = best.__name__, best.__module__
    return compiled(begin, f"begin_{name}", home), compiled(project, f"project_{name}", home)
