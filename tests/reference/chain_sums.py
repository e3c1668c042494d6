"""Sums over the sequences of a linear chain, by enumeration and in high precision.

Scores of one chain are (n, t, t): tag a at position i − 1, tag b at position i; position 0 uses row 0.
"""

import mpmath as mp
import numpy as np

from reference.chain import vertices


def chain_values(scores):
    """The score of every sequence."""
    n, t = scores.shape[:2]
    return np.array([scores[vertex > 0.0].sum() for vertex in vertices(n, n, t)])


def chain_distribution(scores):
    """Vertices, their values and their probabilities ∝ exp(value)."""
    values = chain_values(scores)
    p = np.exp(values - values.max())
    n, t = scores.shape[:2]
    return vertices(n, n, t), values, p / p.sum()


def _weights(scores):
    return [[[mp.exp(mp.mpf(float(s))) for s in row] for row in position] for position in scores]


def _prefixes(weights):
    """Sums over the sequences up to each position, by their last tag."""
    tags = range(len(weights[0]))
    sums = [[weights[0][0][b] for b in tags]]
    for weight in weights[1:]:
        sums.append([mp.fsum(sums[-1][a] * weight[a][b] for a in tags) for b in tags])
    return sums


def chain_log_partition(scores):
    """log Σ exp(value) over all sequences, as an mpmath number."""
    with mp.workdps(60):
        return mp.log(mp.fsum(_prefixes(_weights(scores))[-1]))


def _marginals(weights):
    n, tags = len(weights), range(len(weights[0]))
    prefixes = _prefixes(weights)
    suffix = [mp.mpf(1) for _ in tags]
    marginals = np.full((n, len(tags), len(tags)), mp.mpf(0), dtype=object)
    total = mp.fsum(prefixes[-1])
    for i in range(n - 1, -1, -1):
        for a in tags if i else [0]:
            for b in tags:
                marginals[i, a, b] = (prefixes[i - 1][a] if i else 1) * weights[i][a][b] * suffix[b] / total
        suffix = [mp.fsum(weights[i][a][b] * suffix[b] for b in tags) for a in tags]
    return marginals


def chain_marginals(scores):
    """The probability of every pair."""
    with mp.workdps(60):
        return _marginals(_weights(scores)).astype(float)


def chain_hessian_product(scores, direction):
    """The derivative of the marginals along `direction`: a difference so small that only its digits are left."""
    with mp.workdps(60):
        step = mp.mpf(10) ** -20
        moved = [
            _marginals(
                [
                    [[w * mp.exp(sign * step * mp.mpf(float(g))) for w, g in zip(*rows)] for rows in zip(*position)]
                    for position in zip(_weights(scores), direction)
                ]
            )
            for sign in (1, -1)
        ]
        return ((moved[0] - moved[1]) / (2 * step)).astype(float)
