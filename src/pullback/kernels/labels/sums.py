"""All labels of an arc together, and the derivatives of a sum over labelled trees.

With s[h, m, k] the score of an arc with label k, an arc is worth r[h, m] = log Σ_k exp s[h, m, k], and log Z of the
labelled trees is that of the trees with scores r.  Let p[h, m, k] = exp(s[h, m, k] − r[h, m]) be the share of a label.

    ∂ log Z / ∂s        = p · μ                              μ = ∂ log Z / ∂r, the marginals of arcs
    its change along v  = p · (H u + μ · (v − u))            u[h, m] = Σ_k p[h, m, k] v[h, m, k],  H = ∂μ / ∂r

Each r is taken relative to the best score into its word, so that scores may be large and no digits are lost.
"""

import numpy as np

from pullback.kernels.tools import compiled, exponentials, inner, kernel, log, maximum


@inner
def _best_scores(scores, n, own, best):
    """own[h, m] = the best score of an arc, −∞ where there is none; best[m] = that of all arcs into m, or 0."""
    best[:] = -np.inf
    for h in range(n + 1):
        own[h, 0] = own[h, h] = -np.inf
        for m in range(1, n + 1):
            if h != m:
                own[h, m] = maximum(scores[h, m])
                best[m] = max(own[h, m], best[m])
    for m in range(len(best)):
        best[m] = best[m] if best[m] > -np.inf else 0.0


@inner
def _scale(x, factor, out):
    for k in range(len(out)):
        out[k] = x[k] * factor


@inner
def _add_logarithms(total, best, own):
    for m in range(len(total)):
        own[m] = (own[m] - best[m]) + log(total[m])


@kernel
def together(scores, lengths, worth, offset, share, lo, hi):
    """worth[b, h, m] = log Σ exp over the labels of an arc, relative to offset[b, m], the best score into m.

    offset is 0 at node 0, in the padding, and where there is no arc into a word.  share[b, h, m, k] = p wherever an
    arc may be, unless it is empty.  Returns the first instance with a score of NaN or +∞, or −1.
    """
    row, total = np.empty(scores.shape[3]), np.empty(scores.shape[1])
    for b in range(lo, hi):
        n = lengths[b]
        _best_scores(scores[b], n, worth[b], offset[b])
        for h in range(n + 1):
            for m in range(n + 1):
                total[m] = 1.0
                if 0 < m != h:
                    total[m] = exponentials(scores[b, h, m], worth[b, h, m], row)
                    if not total[m] >= 1.0:
                        return b
                    if share.size > 0:
                        _scale(row, 1.0 / total[m], share[b, h, m])
            _add_logarithms(total[: n + 1], offset[b], worth[b, h])
    return -1


def _over_arcs(formula, name):
    """The kernel that writes what `formula` says of every arc, and zeros where there is none.

    formula(share, given, b, h, m, out) is told the shares p of the labels; `given` is a tuple of arrays.
    """

    def run(share, lengths, worth, given, out, lo, hi):
        for b in range(lo, hi):
            n = lengths[b]
            for h in range(out.shape[1]):
                for m in range(out.shape[2]):
                    if h <= n and 0 < m <= n and h != m and worth[b, h, m] > -np.inf:
                        formula(share[b, h, m], given, b, h, m, out)
                    else:
                        out[b, h, m] = 0.0
        return -1

    return compiled(run, name, decorate=kernel)


@inner
def _spread(share, given, b, h, m, marginals):
    """marginals[b, h, m, k] = p · arcs[b, h, m]; they may take the place of the shares."""
    _scale(share, given[0][b, h, m], marginals[b, h, m])


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
