"""Sequences of tags with scores of tags and a table, by trying them all and in high precision.

Scores of one instance are (n, t); its table is (t + 2, t): transitions by [tag before, tag], a first tag's scores, a
last one's.
"""

import itertools

import numpy as np

from reference.chain_sums import chain_hessian_product, chain_log_partition, chain_marginals


def uses(sequence, t):
    """How often a sequence uses each score of a table: (t + 2, t)."""
    table = np.zeros((t + 2, t))
    for before, tag in itertools.pairwise(sequence):
        table[before, tag] += 1
    if len(sequence) > 0:
        table[t, sequence[0]] = table[t + 1, sequence[-1]] = 1
    return table


def vertices(length, n, t):
    """All sequences of `length` tags, (m, n, t) zeros and ones padded to n, and how they use a table, (m, t + 2, t)."""
    every = list(itertools.product(range(t), repeat=length))
    tags = np.zeros((len(every), n, t))
    for vertex, sequence in zip(tags, every):
        vertex[np.arange(length), list(sequence)] = 1
    return tags, np.array([uses(sequence, t) for sequence in every])


def values(scores, table, tags, used):
    """The score of every sequence; what it does not use may be anything."""
    return np.array(
        [scores[z > 0].astype(float).sum() + (table[u > 0].astype(float) * u[u > 0]).sum() for z, u in zip(tags, used)]
    )


def distribution(scores, table, length):
    """Vertices, their uses of the table, their values, and their probabilities ∝ exp(value), 0 if all are forbidden."""
    tags, used = vertices(length, *scores.shape)
    value = values(scores, table, tags, used)
    p = np.exp(value - max(value.max(), -1e300))
    return tags, used, value, p / max(p.sum(), 1.0)


def pairs(scores, table):
    """The scores of pairs of neighbors, (n, t, t), as a linear chain has them."""
    t = scores.shape[1]
    joined = scores.astype(float)
    joined[0] += table[t]
    joined[-1] += table[t + 1]
    return joined[:, None, :] + np.where(np.arange(len(scores))[:, None, None] > 0, table[:t], 0.0)


def _add_up(numbers):
    """Numbers of pairs, as numbers of tags (n, t) and of the scores of a table (t + 2, t)."""
    tags = numbers.sum(1)
    return tags, np.concatenate([numbers[1:].sum(0), tags[:1], tags[-1:]])


def log_partition(scores, table):
    """log Σ exp(value), in 60 digits."""
    return float(chain_log_partition(pairs(scores, table)))


def marginals(scores, table):
    """The probability of every tag and the expected uses of the table, in 60 digits."""
    return _add_up(chain_marginals(pairs(scores, table)))


def hessian_product(scores, table, direction, along):
    """The derivative of `marginals` along a direction, in 60 digits."""
    return _add_up(chain_hessian_product(pairs(scores, table), pairs(direction, along)))


def couple(point, table, length):
    """The largest expected score of a table among mixtures with these probabilities of tags, by linear programming."""
    from scipy.optimize import linprog

    tags, used = vertices(length, *point.shape)
    worth = values(np.zeros_like(point), table, tags, used)
    allowed = worth > -np.inf
    found = linprog(
        -worth[allowed],
        A_eq=np.concatenate([tags[allowed].reshape(allowed.sum(), -1).T, np.ones((1, allowed.sum()))]),
        b_eq=np.append(point.ravel(), 1.0),
    )
    return -found.fun if found.success else -np.inf
