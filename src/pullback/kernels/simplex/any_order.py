"""α-entmax of each row of scores for any α ≥ 1, and its derivatives in the scores and in α.

With β = α − 1 and z = x − max x, the answer is yᵢ = aᵢ^(1/β), aᵢ = (w + β zᵢ)₊, where w in (0, 1] makes Σ yᵢ = 1.
As α → 1 this tends to softmax, with w → 1 and aᵢ → 1: there the small number is w − 1, and ln aᵢ a logarithm near 1.
For α > 2 the small number is w itself.  The unknown is therefore c = w − base, base = 1 or 0.

Newton's step for (S^β − 1)/β, S = Σ yᵢ, is −(S − S^(1−β)) / Σ (yᵢ / aᵢ).  For α ≤ 2 that function is convex and the
steps come from one side; for α > 2 an entry enters the support with infinite slope, so a step may leave the bracket
and is replaced by bisection.  Then two neighboring numbers w may have S below and above 1, by as much as 0.02 at
α = 10: the answer mixes those of both, so that its sum is one.

Reference: Peters, Niculae and Martins (2019); Correia, Niculae and Martins (2019) for the derivative in α.
"""

import numpy as np

from pullback.kernels.tools import exp, fmax, inner, kernel, log, summing

TINY = 1e-200  # in place of β = 0; 1 + β is 1 and β² is 0
NEWTON = 20  # steps; then bisection alone, which always ends


@kernel
def entmax(x, alpha, y, lo, hi):
    """α-entmax of each row of `x`, α[row] ≥ 1.  O(n) for each of about five steps, up to sixty for α > 2.

    Returns the first row with NaN, +∞, no finite score, or an α that is not a finite number ≥ 1; else −1.
    """
    z, place = np.empty(x.shape[1]), np.empty(x.shape[1], np.int64)
    lower, upper, trial = np.empty(x.shape[1]), np.empty(x.shape[1]), np.empty(x.shape[1])
    ratio = np.empty(x.shape[1])
    for r in range(lo, hi):
        best = _maximum(x[r])
        if not (np.isfinite(best) and 1.0 <= alpha[r] < np.inf):
            return r
        beta = max(alpha[r] - 1.0, TINY)
        size = 0
        for i in range(x.shape[1]):
            z[size] = beta * (x[r, i] - best)
            place[size] = i
            size += z[size] > -1.0
        found = _solve(z[:size], beta, lower[:size], upper[:size], trial[:size], ratio[:size])
        y[r] = 0
        for i in range(size):
            y[r, place[i]] = found[i]
    return -1


@inner
def _maximum(x):
    best = -np.inf
    for v in x:
        if np.isnan(v):
            return np.nan
        best = max(best, np.float64(v))
    return best


@inner
def _solve(z, beta, lower, upper, trial, ratio):
    """α-entmax of the scores z / β, of which the largest is 0; returns one of the three workspaces."""
    base = 1.0 if beta <= 1.0 else 0.0
    least = np.expm1(-beta * np.log(z.shape[0])) if beta <= 1.0 else max(z.shape[0] ** -beta, 1e-300)
    most = 1.0 - base
    lower[:] = 0.0
    below, above = 0.0, 1.0  # the mass at both ends; at w = 1 it is at least 1
    c = most
    for step in range(200):
        _evaluate(z, base, c, beta, trial, ratio)
        mass, slope = _total(trial), _total(ratio)
        if abs(mass - 1.0) <= 1e-14:
            trial /= mass
            return trial
        if mass >= 1.0:
            most, above = c, mass
            upper, trial = trial, upper
        else:
            least, below = c, mass
            lower, trial = trial, lower
        c += mass * np.expm1(-beta * np.log(mass)) / slope
        if step >= NEWTON or not least < c < most:
            c = 0.5 * (least + most) if base > 0.0 else np.sqrt(least) * np.sqrt(most)
            if not least < c < most:
                break
    share = (1.0 - below) / (above - below)
    for i in range(z.shape[0]):
        upper[i] = lower[i] + share * (upper[i] - lower[i])
    return upper


@inner
def _evaluate(z, base, c, beta, y, ratio):
    """y = a^(1/β) and y / a, where a = (base + c + z)₊."""
    for i in range(z.shape[0]):
        t = c + z[i]
        a = base + t
        kept = a > 1e-300
        a = a if kept else 1.0
        # What base + t loses in rounding is put back to first order, as in log1p.
        power = exp((log(a) + (t - (a - base)) / a) / beta)
        y[i] = power if kept else 0.0
        ratio[i] = power / a if kept else 0.0


@summing
def _total(x):
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i]
    return total


@kernel
def entmax_backward(y, alpha, g, gx, galpha, lo, hi):
    """The gradients of ⟨g, y⟩ in the scores and in α, at the output `y` of α-entmax.  O(n).

    With weights s = y^(2−α) on the support and m = ⟨s, g⟩ / Σ s they are sᵢ (gᵢ − m) and Σ hᵢ (gᵢ − m), where
    hᵢ = −yᵢ (ln yᵢ)² φ(−β ln yᵢ), φ(t) = (eᵗ − 1 − t) / t².  At α = 1: s = y, φ = ½.
    """
    n = y.shape[1]
    weight, change, relative = np.empty(n), np.empty(n), np.empty(n)
    for r in range(lo, hi):
        beta = max(alpha[r] - 1.0, TINY)
        _weights(y[r], beta, weight, change)
        # Relative to the entry with the largest weight: for α > 2 weights grow without bound as y → 0, and
        # where one dominates, g − m would cancel.
        relative[:] = g[r]
        relative -= relative[np.argmax(weight)]
        mean = _inner(weight, relative) / _total(weight)
        relative -= mean
        galpha[r] = _inner(change, relative)
        for i in range(n):
            gx[r, i] = weight[i] * relative[i]
    return -1


@inner
def _weights(y, beta, weight, change):
    """s = y^(1−β) and h, the change of y with α at a fixed threshold."""
    for i in range(y.shape[0]):
        p = np.float64(y[i])
        kept = p > 0.0
        p = fmax(p, 1e-300)
        power = -log(p)
        t = beta * power
        s = exp(min((beta - 1.0) * power, 600.0))
        if t < 0.1:
            phi = 1.0 / 3628800.0
            for k in (362880.0, 40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0):
                phi = phi * t + 1.0 / k
            h = p * power * power * phi
        else:
            h = (s - p - p * t) / (beta * beta)
        weight[i] = s if kept else 0.0
        change[i] = -h if kept else 0.0


@summing
def _inner(a, b):
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total
