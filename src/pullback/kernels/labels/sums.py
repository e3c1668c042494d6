"""All labels of an arc together, and the derivatives of a sum over labelled trees.

With s[h, m, k] the score of an arc with label k, an arc is worth r[h, m] = log Σ_k exp s[h, m, k], and log Z of the
labelled trees is that of the trees with scores r.  Let p[h, m, k] = exp(s[h, m, k] − r[h, m]) be the share of a label.

    ∂ log Z / ∂s        = p · μ                              μ = ∂ log Z / ∂r, the marginals of arcs
    its change along v  = p · (H u + μ · (v − u))            u[h, m] = Σ_k p[h, m, k] v[h, m, k],  H = ∂μ / ∂r

Each r is taken relative to the best score into its word, so that scores may be large and no digits are lost.
"""

import numpy as np

from pullback.kernels.labels.reductions import best_into
from pullback.kernels.tools import compiled, exp, inner, kernel, log_sum_exp


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
                worth[b, h, m] = log_sum_exp(scores[b, h, m], offset[b, m]) if h != m else -np.inf
    return -1


def _over_arcs(formula, name):
    """The kernel that writes what `formula` says of every arc, and zeros where there is none.

    formula(share, given, b, h, m, out) is told the shares p of the labels; `given` is a tuple of arrays.
    """

    def run(scores, lengths, worth, offset, given, out, lo, hi):
        share = np.empty(scores.shape[3])
        for b in range(lo, hi):
            out[b] = 0.0
            for h in range(lengths[b] + 1):
                for m in range(1, lengths[b] + 1):
                    if h != m and worth[b, h, m] > -np.inf:
                        for k in range(len(share)):
                            share[k] = exp((scores[b, h, m, k] - offset[b, m]) - worth[b, h, m])
                        formula(share, given, b, h, m, out)
        return -1

    return compiled(run, name, decorate=kernel)


@inner
def _spread(share, given, b, h, m, marginals):
    """marginals[b, h, m, k] = p · arcs[b, h, m]."""
    for k in range(len(share)):
        marginals[b, h, m, k] = share[k] * given[0][b, h, m]


@inner
def _along(share, given, b, h, m, moved):
    """moved[b, h, m] = Σ_k p · direction[b, h, m, k]."""
    total = 0.0
    for k in range(len(share)):
        total += share[k] * given[0][b, h, m, k]
    moved[b, h, m] = total


@inner
def _spread_product(share, given, b, h, m, product):
    """product = p · (turned + arcs · (direction − moved)), where `turned` is H · moved."""
    arcs, moved, turned, direction = given
    for k in range(len(share)):
        change = arcs[b, h, m] * (direction[b, h, m, k] - moved[b, h, m])
        product[b, h, m, k] = share[k] * (turned[b, h, m] + change)


spread = _over_arcs(_spread, "spread")
along = _over_arcs(_along, "along")
spread_product = _over_arcs(_spread_product, "spread_product")
