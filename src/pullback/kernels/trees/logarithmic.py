"""The matrix-tree sweeps on logarithms, for scores whose weights leave the range of floating-point numbers.

The same elimination as in `matrix_tree`, with every positive number x kept as (log x, derivative of log x along a
direction).  Adding two of them averages the derivatives, so nothing is ever out of range and no sign is needed:
the derivative of the marginals costs one more pass of the same kind.  Four times slower at 10 words, fifteen at 100.
"""

import numpy as np

from pullback.kernels.tools import inner

_NO_FLOW = 1e-290  # what a marginal is rounded to zero at, so that quotients by it stay finite


@inner
def _add(x, dx, y, dy):
    """log(eˣ + eʸ) and its derivative."""
    if x < y:
        x, dx, y, dy = y, dy, x, dx
    if not y - x > -40.0:  # less than the rounding error of x, or both −∞
        return x, dx
    share = np.exp(y - x)
    return x + np.log1p(share), (dx + share * dy) / (1.0 + share)


@inner
def eliminate(w, dw, n, single_root, d, dd):
    """Σ log d_k, and the word at which it got stuck (0: none); w, d as in `matrix_tree.eliminate`."""
    total = 0.0
    for k in range(n, 0, -1):
        s, ds = -np.inf, 0.0
        for h in range(1 if single_root and k > 1 else 0, k):
            s, ds = _add(s, ds, w[h, k], dw[h, k])
        d[k], dd[k] = s, ds
        if s == -np.inf:
            return s, k
        total += s
        for h in range(k):
            p, dp = w[h, k] - s, dw[h, k] - ds
            if p > -np.inf:
                for m in range(1, k):
                    if m != h:
                        w[h, m], dw[h, m] = _add(w[h, m], dw[h, m], p + w[k, m], dp + dw[k, m])
    return total, 0


@inner
def adjoint(w, dw, d, dd, n, single_root, a, da, flow, dflow):
    """a = log ∂(Σ log d)/∂ exp(w) with its derivative da, k = 1…n as in `matrix_tree.adjoint`."""
    a[0, 0] = -np.inf
    for k in range(1, n + 1):
        a[k, : k + 1] = -np.inf
        da[k, : k + 1] = 0.0
        through, dthrough = 0.0, 0.0
        for h in range(k):
            p, dp = w[h, k] - d[k], dw[h, k] - dd[k]
            flow[h], dflow[h] = 0.0, 0.0
            if p > -np.inf:
                for m in range(1, k):
                    x, dx = p + a[h, m], dp + da[h, m]
                    if x > -np.inf:
                        a[k, m], da[k, m] = _add(a[k, m], da[k, m], x, dx)
                        if x + w[k, m] > -700.0:
                            part = np.exp(x + w[k, m])
                            flow[h] += part
                            dflow[h] += part * (dx + dw[k, m])
            through += flow[h]
            dthrough += dflow[h]
        for h in range(k):
            if h > 0 or k == 1 or not single_root:
                p = np.exp(w[h, k] - d[k])
                flow[h] += p * (1.0 - through)
                dflow[h] += p * ((1.0 - through) * (dw[h, k] - dd[k]) - dthrough)
            a[h, k], da[h, k] = -np.inf, 0.0
            if flow[h] > _NO_FLOW and w[h, k] > -np.inf:
                a[h, k] = np.log(flow[h]) - w[h, k]
                da[h, k] = dflow[h] / flow[h] - dw[h, k]


@inner
def load(scores, direction, n, last, w, dw):
    """Writes scores and direction with word 1 and `last` in each other's place; −∞ on the diagonal and in column 0."""
    for h in range(n + 1):
        head = _exchanged(h, last)
        w[h, 0], dw[h, 0] = -np.inf, 0.0
        for m in range(1, n + 1):
            modifier = _exchanged(m, last)
            w[h, m] = scores[head, modifier] if h != m else -np.inf
            dw[h, m] = direction[head, modifier] if w[h, m] > -np.inf else 0.0


@inner
def _exchanged(word, last):
    return last if word == 1 else 1 if word == last else word


@inner
def factorize(scores, direction, n, single_root, w, dw, d, dd):
    """The log-partition (−∞: no tree), and the word that had to change places with word 1 (1: none)."""
    last = np.int64(1)
    while True:
        load(scores, direction, n, last, w, dw)
        value, stuck = eliminate(w, dw, n, single_root, d, dd)
        if not (single_root and stuck > 1 and last == 1):
            return value, last
        last = stuck


@inner
def log_partition(scores, n, single_root):
    """The log-partition of one instance; −∞ if it has no tree."""
    matrices, vectors = np.zeros((3, n + 1, n + 1)), np.empty((2, n + 1))
    return factorize(scores, matrices[0], n, single_root, matrices[1], matrices[2], vectors[0], vectors[1])[0]


@inner
def marginals_and_derivative(scores, direction, n, single_root, marginals, derivative):
    """Returns the log-partition of one instance; writes its marginals and their derivative along `direction`."""
    matrices, vectors = np.empty((4, n + 1, n + 1)), np.empty((4, n + 1))
    w, dw, a, da = matrices[0], matrices[1], matrices[2], matrices[3]
    d, dd, flow, dflow = vectors[0], vectors[1], vectors[2], vectors[3]
    value, last = factorize(scores, direction, n, single_root, w, dw, d, dd)
    if value > -np.inf:
        adjoint(w, dw, d, dd, n, single_root, a, da, flow, dflow)
        load(scores, direction, n, last, w, dw)
        for h in range(n + 1):
            head = _exchanged(h, last)
            for m in range(1, n + 1):
                modifier = _exchanged(m, last)
                log_marginal = w[h, m] + a[h, m] if h != m else -np.inf
                marginals[head, modifier] = np.exp(log_marginal)
                derivative[head, modifier] = np.exp(log_marginal) * (dw[h, m] + da[h, m])
    return value


@inner
def log_partition_and_marginals(scores, n, single_root, marginals):
    """Returns the log-partition of one instance and writes its marginals."""
    nothing = np.zeros((n + 1, n + 1))
    return marginals_and_derivative(scores, nothing, n, single_root, marginals, nothing)


@inner
def hessian_product(scores, direction, n, single_root, derivative):
    """Writes the derivative of one instance's marginals; False if it has no tree."""
    marginals = np.empty((n + 1, n + 1))
    return marginals_and_derivative(scores, direction, n, single_root, marginals, derivative) > -np.inf
