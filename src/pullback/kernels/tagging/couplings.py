"""What transitions are worth to a mixture of sequences, at best.

Many mixtures have the same probabilities of tags.  How much they take of each transition is, at every position, a way
to carry the probabilities of one position to those of the next, and any of these ways goes with any at the others, for
sequences may be cut and joined wherever they have the same tag.  So the largest expected score is a sum of transport
problems, one for each pair of neighbors:

    max Σ flow[a, b] transition[a, b]    over   flow ≥ 0,  Σ_b flow[a, b] = p[i − 1, a],  Σ_a flow[a, b] = p[i, b]

Each is solved by augmenting paths: tag before by tag before, what it has goes the best way to where room is left,
which may send back what others have brought.  A path is found in a few rounds of O(t²) by Bellman and Ford's method;
where both positions are certain there is one path.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.tagging.tables import are_valid, copy_ends
from pullback.kernels.tools import inner, kernel

_ROUNDING = 1e-13  # of a probability
_MISSING = 1e-6  # what rounding may leave over, where transitions are forbidden

# flow[a, b];  supply, demand: what is left of them;  high, low: the gain on the best way to each tag before and tag;
# origin: the tag before from which a tag is reached;  via: the tag by which a tag before is reached.
Carry = namedtuple("Carry", ["flow", "supply", "demand", "high", "low", "origin", "via"])


@kernel
def couple(point, table, lengths, value, uses, lo, hi):
    """The largest expected score of the table, and how often each of its scores is used: (batch,), (batch, t + 2, t).

    point (batch, n, t) holds probabilities of tags; table (batch, t + 2, t) as in `tables`.  −∞ and zeros where no
    mixture avoids what it forbids.  Returns the first instance whose table has a NaN or +∞, or −1.
    """
    t = table.shape[2]
    carry = Carry(
        np.empty((t, t)),
        np.empty(t),
        np.empty(t),
        np.empty(t),
        np.empty(t),
        np.empty(t, np.int64),
        np.empty(t, np.int64),
    )
    total, exact = np.empty((t + 2, t)), np.empty((t + 2, t))
    for b in range(lo, hi):
        if not are_valid(table[b], t + 2):
            return b
        exact[:], total[:] = table[b], 0.0
        transitions, possible = exact[:t], True
        slack = _slack(transitions)
        for i in range(1, lengths[b]):
            possible &= _carry(point[b, i - 1], point[b, i], transitions, slack, carry)
            total[:t] += carry.flow
        if lengths[b] > 0:
            copy_ends(point[b], lengths[b], total)
        worth = 0.0
        for a in range(t + 2):
            for c in range(t):
                if total[a, c] > 0.0 and possible:
                    worth += total[a, c] * exact[a, c]
                uses[b, a, c] = total[a, c] if possible else 0.0
        value[b] = worth if possible else -np.inf
    return -1


@inner
def _slack(transitions):
    """What two ways of the same gain may differ by in rounding; a lesser gain would send the search in circles."""
    largest = 0.0
    for a in range(transitions.shape[0]):
        for b in range(transitions.shape[1]):
            if transitions[a, b] > -np.inf:
                largest = max(largest, abs(transitions[a, b]))
    return 1e-13 * largest


@inner
def _carry(before, now, transitions, slack, carry):
    """Fills the best flow from one position to the next; False if there is none."""
    carry.flow[:], carry.supply[:], carry.demand[:] = 0.0, before, now
    left = 0.0
    for a in range(len(carry.supply)):
        while carry.supply[a] > _ROUNDING:
            end = _best_way(a, transitions, slack, carry)
            if end < 0:
                break
            _augment(a, end, carry)
        left += max(carry.supply[a], 0.0)
    return left < _MISSING


@inner
def _best_way(source, transitions, slack, carry):
    """The tag to which a way from the tag before `source` gains most, among those with room, or −1."""
    t = len(carry.supply)
    carry.high[:], carry.low[:] = -np.inf, -np.inf
    carry.high[source] = 0.0
    for _ in range(t):
        better = False
        for a in range(t):
            if carry.high[a] > -np.inf:
                for b in range(t):
                    gain = carry.high[a] + transitions[a, b]
                    if gain > carry.low[b] + slack:
                        carry.low[b], carry.origin[b], better = gain, a, True
        for b in range(t):
            if carry.low[b] > -np.inf:
                for a in range(t):
                    if carry.flow[a, b] > 0.0 and a != source:
                        gain = carry.low[b] - transitions[a, b]
                        if gain > carry.high[a] + slack:
                            carry.high[a], carry.via[a], better = gain, b, True
        if not better:
            break
    end = -1
    for b in range(t):
        if carry.demand[b] > _ROUNDING and carry.low[b] > -np.inf and (end < 0 or carry.low[b] > carry.low[end]):
            end = b
    return end


@inner
def _augment(source, end, carry):
    """Sends as much as goes along the way from `source` to `end`."""
    amount = min(carry.supply[source], carry.demand[end])
    b = end
    for _ in range(len(carry.supply)):
        a = carry.origin[b]
        if a == source:
            break
        b = carry.via[a]
        amount = min(amount, carry.flow[a, b])
    carry.supply[source] -= amount
    carry.demand[end] -= amount
    b = end
    for _ in range(len(carry.supply)):
        a = carry.origin[b]
        carry.flow[a, b] += amount
        if a == source:
            break
        b = carry.via[a]
        carry.flow[a, b] -= amount
