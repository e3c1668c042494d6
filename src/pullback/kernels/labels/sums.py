"""All labels of an arc together, and the derivatives of a sum over labelled trees.

With s[h, m, k] the score of an arc with label k, an arc is worth r[h, m] = log Σ_k exp s[h, m, k], and log Z of the
labelled trees is that of the trees with scores r.  Let p[h, m, k] = exp(s[h, m, k] − r[h, m]) be the share of a label.

    ∂ log Z / ∂s        = p · μ                              μ = ∂ log Z / ∂r, the marginals of arcs
    its change along v  = p · (H u + μ · (v − u))            u[h, m] = Σ_k p[h, m, k] v[h, m, k],  H = ∂μ / ∂r

Each r is taken relative to the best score into its word, so that scores may be large and no digits are lost.
"""

import numpy as np

from pullback.kernels.labels.reductions import best_into
from pullback.kernels.tools import exp, inner, kernel


@inner
def _log_sum(row, shift):
    """log Σ exp(row − shift); −∞ if all of the row is."""
    best = -np.inf
    for k in range(len(row)):
        best = max(best, row[k])
    if best == -np.inf:
        return best
    total = 0.0
    for k in range(len(row)):
        total += exp(row[k] - best)
    return best - shift + np.log(total)


@kernel
def together(scores, lengths, worth, offset, lo, hi):
    """worth[b, h, m] = log Σ exp over the labels of an arc, relative to offset[b, m], the best score into m.

    offset is 0 at node 0, in the padding, and where there is no arc into a word.  Returns the first instance with a
    score of NaN or +∞, or −1.
    """
    for b in range(lo, hi):
        n = lengths[b]
        for m in range(offset.shape[1]):
            offset[b, m] = 0.0
        for m in range(1, n + 1):
            best = best_into(scores[b], n, m)
            if np.isnan(best):
                return b
            offset[b, m] = best if best > -np.inf else 0.0
        for h in range(n + 1):
            worth[b, h, 0] = -np.inf
            for m in range(1, n + 1):
                worth[b, h, m] = _log_sum(scores[b, h, m], offset[b, m]) if h != m else -np.inf
    return -1


@inner
def _share(score, offset, worth):
    """p, the share of a label; 0 where its arc is forbidden."""
    return exp((score - offset) - worth) if worth > -np.inf else 0.0


@kernel
def spread(scores, lengths, worth, offset, arcs, marginals, lo, hi):
    """marginals[b, h, m, k] = p · arcs[b, h, m], zero in the padding."""
    for b in range(lo, hi):
        n = lengths[b]
        marginals[b] = 0.0
        for h in range(n + 1):
            for m in range(1, n + 1):
                if h != m:
                    for k in range(scores.shape[3]):
                        share = _share(scores[b, h, m, k], offset[b, m], worth[b, h, m])
                        marginals[b, h, m, k] = share * arcs[b, h, m]
    return -1


@kernel
def along(scores, lengths, worth, offset, direction, moved, lo, hi):
    """moved[b, h, m] = Σ_k p · direction[b, h, m, k], zero where there is no arc."""
    for b in range(lo, hi):
        n = lengths[b]
        moved[b] = 0.0
        for h in range(n + 1):
            for m in range(1, n + 1):
                if h != m:
                    for k in range(scores.shape[3]):
                        share = _share(scores[b, h, m, k], offset[b, m], worth[b, h, m])
                        moved[b, h, m] += share * direction[b, h, m, k]
    return -1


@kernel
def spread_product(scores, lengths, worth, offset, arcs, moved, turned, direction, product, lo, hi):
    """product = p · (turned + arcs · (direction − moved)), where `turned` is H · moved; zero in the padding."""
    for b in range(lo, hi):
        n = lengths[b]
        product[b] = 0.0
        for h in range(n + 1):
            for m in range(1, n + 1):
                if h != m:
                    for k in range(scores.shape[3]):
                        share = _share(scores[b, h, m, k], offset[b, m], worth[b, h, m])
                        change = arcs[b, h, m] * (direction[b, h, m, k] - moved[b, h, m])
                        product[b, h, m, k] = share * (turned[b, h, m] + change)
    return -1
