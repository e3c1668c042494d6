"""Labels of spans, which do not interact: joined before the sums over trees, shared out after them.

The weight of a span is Σ exp(s) over its labels, and given the span a label has the probability q = exp(s) / Σ exp(s).
So the marginals are m[i, j] · q[i, j, label], and along scores that move in a direction g, with ḡ = Σ q g,

    d(m q) = dm · q + m q (g − ḡ)        where m moves as if the span's score moved along ḡ.
"""

import numpy as np

from pullback.kernels.tools import exp, exponentials, inner, log, maximum


@inner
def join(scores, n, joint):
    """joint[i, j] = log Σ exp(score) over the labels of a span; False if a score is NaN or +∞."""
    valid, total, row = True, np.empty(n), np.empty(scores.shape[2])
    for i in range(n):
        if scores.shape[2] == 1:
            for j in range(i, n):  # vectorizes
                valid &= scores[i, j, 0] < np.inf
                joint[i, j] = scores[i, j, 0]
        else:
            for j in range(i, n):
                joint[i, j] = maximum(scores[i, j])
                total[j] = exponentials(scores[i, j], joint[i, j], row)
                valid &= total[j] >= 1.0
            for j in range(i, n):
                joint[i, j] += log(total[j])
    return valid


@inner
def share(scores, joint, i, j, label):
    """q: the probability of a label, given its span."""
    return exp(scores[i, j, label] - joint[i, j]) if joint[i, j] > -np.inf else 0.0


@inner
def join_direction(scores, joint, direction, n, mean):
    """mean[i, j] = Σ q g over the labels of a span; what is forbidden does not move."""
    for i in range(n):
        for j in range(i, n):
            mean[i, j] = 0.0
            for label in range(scores.shape[2]):
                q = share(scores, joint, i, j, label)
                if q > 0.0:
                    mean[i, j] += q * direction[i, j, label]


@inner
def share_out(scores, joint, marginal, n, marginals):
    """marginals[i, j, label] = m q."""
    for i in range(n):
        if scores.shape[2] == 1:
            for j in range(i, n):
                marginals[i, j, 0] = marginal[i, j]
        else:
            for j in range(i, n):
                for label in range(scores.shape[2]):
                    marginals[i, j, label] = marginal[i, j] * share(scores, joint, i, j, label)


@inner
def share_out_slopes(scores, joint, direction, mean, moving, n, product):
    """product[i, j, label] = dm · q + m q (g − ḡ), where moving = m + dm ε."""
    for i in range(n):
        for j in range(i, n):
            for label in range(scores.shape[2]):
                q = share(scores, joint, i, j, label)
                if q > 0.0:
                    besides = moving[i, j].real * (direction[i, j, label] - mean[i, j])
                    product[i, j, label] = q * (moving[i, j].imag + besides)
