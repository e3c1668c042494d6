"""The best sequence of a linear chain in O(n t²): Viterbi's algorithm; and the best through each pair of tags.

    chart[0, b] = score[0, 0, b]
    chart[i, b] = max_a chart[i − 1, a] + score[i, a, b]

where score[i, a, b] is that of the tag b at position i after the tag a; of position 0 only the row a = 0 exists.  The
rows of `score` are contiguous, so every pass over b vectorizes.  Back-pointers are not kept: of every position one
column is searched again, that of the tag which was chosen.

Reference: Viterbi (1967).
"""

import numpy as np

from pullback.kernels.tools import fmax, inner, kernel


@inner
def is_valid(scores, n):
    """Whether no score of the n positions is NaN or +∞."""
    valid = True
    for i in range(n):
        for a in range(scores.shape[1] if i > 0 else 1):
            row = scores[i, a]
            for b in range(row.shape[0]):
                valid &= row[b] < np.inf
    return valid


@inner
def sweep(scores, n, chart):
    """Fills chart[i, b], the score of the best sequence of i + 1 tags that ends in b; n is at least 1."""
    tags = scores.shape[1]
    for b in range(tags):
        chart[0, b] = scores[0, 0, b]
    for i in range(1, n):
        before, now = chart[i - 1], chart[i]
        for b in range(tags):
            now[b] = -np.inf
        for a in range(tags):
            row, score = scores[i, a], before[a]
            for b in range(tags):
                now[b] = fmax(score + row[b], now[b])


@inner
def read_sequence(scores, n, chart, parts):
    """Writes the parts (i · t + tag before) · t + tag of the best sequence; False if all sequences are forbidden."""
    tags = scores.shape[1]
    last = chart[n - 1]
    tag = 0
    for b in range(1, tags):
        if last[b] > last[tag]:
            tag = b
    if last[tag] == -np.inf:
        return False
    for i in range(n - 1, 0, -1):
        before, best = 0, chart[i - 1, 0] + scores[i, 0, tag]
        for a in range(1, tags):
            score = chart[i - 1, a] + scores[i, a, tag]
            if score > best:
                before, best = a, score
        parts[i] = (i * tags + before) * tags + tag
        tag = before
    parts[0] = tag
    return True


@kernel
def argmax(scores, lengths, best, lo, hi):
    """The best sequence of each instance, as zeros and ones.

    scores, best (batch, n, t, t) by [position, tag before, tag]; lengths (batch,) in 0 … n; best is zero in padding.
    Returns the first instance without a sequence, or with a score of NaN or +∞ or a length out of range, or −1.
    """
    most, tags = scores.shape[1], scores.shape[2]
    chart, parts = np.empty((most, tags)), np.empty(most, np.int32)
    for b in range(lo, hi):
        n = lengths[b]
        best[b] = 0
        if n < 0 or n > most or not is_valid(scores[b], n):
            return b
        if n > 0:
            sweep(scores[b], n, chart)
            if not read_sequence(scores[b], n, chart, parts):
                return b
            flat = best[b].reshape(-1)
            for i in range(n):
                flat[parts[i]] = 1
    return -1


@kernel
def max_marginals(scores, lengths, best, lo, hi):
    """The score of the best sequence through each pair of tags, best (batch, n, t, t): −∞ where there is none.

    It is 0 in padding, and in rows a > 0 of position 0.  The other arrays and the answer as in `argmax`.
    """
    most, tags = scores.shape[1], scores.shape[2]
    chart, ahead, now = np.empty((most, tags)), np.empty(tags), np.empty(tags)
    for b in range(lo, hi):
        n = lengths[b]
        best[b] = 0
        if n < 0 or n > most or not is_valid(scores[b], n):
            return b
        if n == 0:
            continue
        sweep(scores[b], n, chart)
        if chart[n - 1].max() == -np.inf:
            return b
        ahead[:] = 0.0
        for i in range(n - 1, 0, -1):
            _go_through(scores[b, i], chart[i - 1], ahead, now, best[b, i])
            ahead[:] = now
        for c in range(tags):
            best[b, 0, 0, c] = chart[0, c] + ahead[c]
    return -1


@inner
def _go_through(score, before, ahead, now, best):
    """best[a, b] = before[a] + score[a, b] + ahead[b], and now[a] = max_b score[a, b] + ahead[b]."""
    for a in range(now.shape[0]):
        row, out, top = score[a], best[a], -np.inf
        for b in range(now.shape[0]):
            rest = row[b] + ahead[b]
            out[b] = before[a] + rest
            top = fmax(rest, top)
        now[a] = top
