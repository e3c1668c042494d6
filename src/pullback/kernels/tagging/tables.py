"""The table of a tagging, (t + 2, t): scores of transitions by [tag before, tag], of a first tag, and of a last one."""

import numpy as np

from pullback.kernels.tools import inner, maximum


@inner
def join(scores, table, n, out):
    """The scores of tags in double precision, those of a first and a last tag added; n is at least 1."""
    t = scores.shape[1]
    for i in range(n):
        row, to = scores[i], out[i]
        for b in range(t):
            to[b] = row[b]
    first, last, start, end = out[0], out[n - 1], table[t], table[t + 1]
    for b in range(t):
        first[b] += start[b]
    for b in range(t):
        last[b] += end[b]


@inner
def are_valid(rows, n):
    """Whether none of the first n rows has a NaN or +∞."""
    valid = True
    for i in range(n):
        row = rows[i]
        for b in range(row.shape[0]):
            valid &= row[b] < np.inf
    return valid


@inner
def write_pairs(scores, table, n, pairs):
    """The scores of pairs of neighbors as `chain` reads them, pairs[i, a, b], each relative to the best tag of i.

    Returns what was taken off; n is at least 1.
    """
    t = scores.shape[1]
    joined, taken = np.empty((n, t)), 0.0
    join(scores, table, n, joined)
    for i in range(n):
        top = maximum(joined[i])
        shift = top if top > -np.inf else 0.0
        taken += shift
        for a in range(t if i > 0 else 1):
            for b in range(t):
                step = np.float64(table[a, b]) if i > 0 else 0.0
                pairs[i, a, b] = (joined[i, b] - shift) + step
    return taken


@inner
def add_up(pairs, n, tags, table):
    """Numbers of pairs, as numbers of tags (n, t) and of the scores in a table (t + 2, t)."""
    t = pairs.shape[2]
    tags[:n] = 0.0
    table[:] = 0.0
    for i in range(n):
        for a in range(t if i > 0 else 1):
            for b in range(t):
                tags[i, b] += pairs[i, a, b]
                if i > 0:
                    table[a, b] += pairs[i, a, b]
    copy_ends(tags, n, table)


@inner
def copy_ends(tags, n, table):
    """A first and a last tag are as often in use as the tags of the first and the last position."""
    t = tags.shape[1]
    table[t], table[t + 1] = tags[0], tags[n - 1]
