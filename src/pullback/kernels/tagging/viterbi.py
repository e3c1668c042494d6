"""The best sequence of tags in O(n t²), by Viterbi's algorithm, and the best through each tag.

    chart[0, b] = score[0, b]                       with that of a first tag, and at the end with that of a last one
    chart[i, b] = score[i, b] + max_a chart[i − 1, a] + transition[a, b]

Back-pointers are not kept: of every position one column is searched again, that of the tag which was chosen.

Reference: Viterbi (1967).
"""

import numpy as np

from pullback.kernels.tagging.tables import are_valid, join
from pullback.kernels.tools import fmax, inner, kernel


@inner
def _best_before(before, transitions, now):
    """now[b] = max_a before[a] + transitions[a, b]."""
    for b in range(now.shape[0]):
        now[b] = -np.inf
    for a in range(now.shape[0]):
        row, score = transitions[a], before[a]
        for b in range(now.shape[0]):
            now[b] = fmax(score + row[b], now[b])


@inner
def sweep(scores, transitions, n, chart):
    """Fills chart[i, b], the score of the best sequence of i + 1 tags that ends in b; n is at least 1."""
    chart[0] = scores[0]
    for i in range(1, n):
        row, now = scores[i], chart[i]
        _best_before(chart[i - 1], transitions, now)
        for b in range(now.shape[0]):
            now[b] += row[b]


@inner
def read_sequence(transitions, n, chart, parts):
    """Writes the parts i · t + tag of the best sequence; False if all sequences are forbidden."""
    tags = transitions.shape[0]
    last = chart[n - 1]
    tag = 0
    for b in range(1, tags):
        if last[b] > last[tag]:
            tag = b
    if last[tag] == -np.inf:
        return False
    for i in range(n - 1, 0, -1):
        parts[i] = i * tags + tag
        before, best = 0, chart[i - 1, 0] + transitions[0, tag]
        for a in range(1, tags):
            score = chart[i - 1, a] + transitions[a, tag]
            if score > best:
                before, best = a, score
        tag = before
    parts[0] = tag
    return True


@inner
def copy_transposed(table, exact, back):
    """Transitions in double precision, and their transpose."""
    for a in range(len(exact)):
        for b in range(len(exact)):
            exact[a, b] = back[b, a] = table[a, b]


@kernel
def argmax(scores, table, lengths, best, lo, hi):
    """The best sequence of each instance, as zeros and ones.

    scores, best (batch, n, t) by [position, tag]; table (batch, t + 2, t) as in `tables`; lengths (batch,) in 0 … n;
    best is zero in padding.
    Returns the first instance without a sequence, or with a score of NaN or +∞ or a length out of range, or −1.
    """
    most, tags = scores.shape[1:]
    chart, joined = np.empty((most, tags)), np.empty((most, tags))
    parts, exact = np.empty(most, np.int32), np.empty((tags, tags))
    for b in range(lo, hi):
        n = lengths[b]
        best[b] = 0
        if not 0 <= n <= most or not are_valid(scores[b], n) or not are_valid(table[b], tags + 2):
            return b
        if n > 0:
            exact[:] = table[b, :tags]
            join(scores[b], table[b], n, joined)
            sweep(joined, exact, n, chart)
            if not read_sequence(exact, n, chart, parts):
                return b
            flat = best[b].reshape(-1)
            for i in range(n):
                flat[parts[i]] = 1
    return -1


@kernel
def max_marginals(scores, table, lengths, best, lo, hi):
    """The score of the best sequence through each tag, best (batch, n, t): −∞ where there is none, 0 in padding.

    The other arrays and the answer as in `argmax`.
    """
    most, tags = scores.shape[1:]
    chart, joined = np.empty((most, tags)), np.empty((most, tags))
    ahead, now = np.empty(tags), np.empty(tags)
    exact, back = np.empty((tags, tags)), np.empty((tags, tags))
    for b in range(lo, hi):
        n = lengths[b]
        best[b] = 0
        if not 0 <= n <= most or not are_valid(scores[b], n) or not are_valid(table[b], tags + 2):
            return b
        if n == 0:
            continue
        copy_transposed(table[b], exact, back)
        join(scores[b], table[b], n, joined)
        sweep(joined, exact, n, chart)
        if chart[n - 1].max() == -np.inf:
            return b
        ahead[:] = 0.0
        for i in range(n - 1, -1, -1):
            for c in range(tags):
                best[b, i, c] = chart[i, c] + ahead[c]
                now[c] = joined[i, c] + ahead[c]
            _best_before(now, back, ahead)
    return -1
