"""Sparsemax by sorting, and α-entmax of one row by bisection in high precision."""

import mpmath
import numpy as np


def sparsemax(x):
    """(x − τ)₊ with the τ that the largest support allows; rows of `x` in extended precision."""
    z = np.asarray(x, np.longdouble)
    z = z - z.max(-1, keepdims=True)
    ordered = -np.sort(-z, -1)
    count = np.arange(1, z.shape[-1] + 1)
    tau = (np.cumsum(ordered, -1) - 1) / count
    support = (ordered > tau).sum(-1, keepdims=True)
    return np.maximum(z - np.take_along_axis(tau, support - 1, -1), 0)


def entmax15(x):
    """(x/2 − τ)₊² with the τ of the largest support, from its mean and variance; extended precision."""
    z = np.asarray(x, np.longdouble)
    z = (z - z.max(-1, keepdims=True)) / 2
    z = np.maximum(z, -2)  # lower entries are never kept, and −∞ would spoil the variance
    ordered = -np.sort(-z, -1)
    count = np.arange(1, z.shape[-1] + 1)
    mean = np.cumsum(ordered, -1) / count
    spread = np.cumsum(ordered**2, -1) - count * mean**2
    tau = mean - np.sqrt(np.maximum(1 - spread, 0) / count)
    support = (ordered > tau).sum(-1, keepdims=True)
    return np.maximum(z - np.take_along_axis(tau, support - 1, -1), 0) ** 2


def entmax(row, alpha, digits=60):
    """yᵢ = (w + (α − 1)(xᵢ − max x))₊^(1/(α − 1)), w found by bisection until Σ yᵢ = 1 to many digits; α > 1."""
    with mpmath.workdps(digits):
        beta = mpmath.mpf(alpha) - 1
        scores = [mpmath.mpf(float(v)) for v in row if v > -np.inf]
        z = [beta * (v - max(scores)) for v in scores]

        def masses(w):
            return [(w + v) ** (1 / beta) if w + v > 0 else mpmath.mpf(0) for v in z]

        low, high = mpmath.mpf(0), mpmath.mpf(1)
        for _ in range(int(4 * digits)):
            middle = (low + high) / 2
            low, high = (low, middle) if mpmath.fsum(masses(middle)) > 1 else (middle, high)
        answer = np.zeros(len(row))
        answer[np.asarray(row) > -np.inf] = [float(v) for v in masses(high)]
        return answer
