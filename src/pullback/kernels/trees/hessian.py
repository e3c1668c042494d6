"""The derivative of the marginals of non-projective trees: in closed form where that is accurate, else by sweeps.

The Laplacian L has Σ_h w[h, m] on its diagonal and −w[h, m] elsewhere; with one root, the root's weights leave the
diagonal and replace row 1 (Koo et al., 2007).  As log Z = log det L, the slopes a = ∂ log Z/∂w are differences of two
entries of L⁻¹, and the other way round, with C = (L⁻¹)ᵀ,

    C[h, m] = a[0, m] − a[h, m];        with one root, C[1, m] = a[0, m] and C[h, m] = a[1, m] − a[h, m].

Along dw = w g the derivative of C is −C dLᵀ C, two products of matrices, and d(w a) = dw a + w da is the answer.  The
differences are harmless while no slope is large.  Large slopes come with scores that favor cycles; then the sweeps
of `elimination` are taken along g as well.

A slope a[h, k] is a difference divided by the pivot d_k, so its error is about ε/d_k, of either sign, though no true
slope is negative.  Some slope is at least 1/d_k, so that moderate slopes are accurate ones — unless there is one root
and k is sure to hang from it: then d_k, which leaves the root out, may be tiny beside moderate slopes that are nothing
but errors.  The sweeps are right even then, since their errors stay with the weights that make up for them.
"""

import numpy as np

from pullback.kernels.tools import fmax, inner, kernel
from pullback.kernels.trees import logarithmic
from pullback.kernels.trees.elimination import clear, copy, exchanged, factorize, workspace
from pullback.kernels.trees.lanes import COLUMNS, LANES, ROWS, dual_products, move, multiply

_MODERATE = 256.0  # the error of the closed form is about the largest slope times the rounding error
_KNOWN = 2.0**26  # how large 1/d may be: slopes have an error of ε/d, and its square has to be a rounding error ε


@inner
def _largest(row, largest):
    for m in range(row.shape[0]):
        largest = fmax(abs(row[m]), largest)
    return largest


@inner
def _are_moderate(slopes, n):
    """Whether no slope is large, and none that is small is so by chance."""
    largest = 0.0
    for h in range(n + 1):
        largest = _largest(slopes[h, 1 : n + 1], largest)
    return largest <= _MODERATE and slopes[0, 0] <= _KNOWN


@inner
def _derivative(w, g, minus_dw, total):
    """A row of −dw = −w g, and dw added to `total`; where there is no weight, g may be anything."""
    for m in range(w.shape[0]):
        x = w[m] * g[m] if w[m] > 0.0 else 0.0
        minus_dw[m] = -x
        total[m] += x


@inner
def _difference(x, y, out):
    for m in range(x.shape[0]):
        out[m] = x[m] - y[m]


@inner
def _answer(w, g, slopes, dslopes, shift, out):
    """A row of d(w a)."""
    for m in range(w.shape[0]):
        x = w[m] * (g[m] * slopes[m] + (dslopes[m] - shift[m]))
        out[m] = x if w[m] > 0.0 else 0.0


@inner
def closed_form(w, slopes, g, n, single_root, work, out):
    """Writes the derivative of the marginals w a of one instance along g; word m is row m − 1 of the matrices."""
    inverse, laplacian, product, diagonal, root = work[0], work[1], work[2], work[3, 0, :n], work[3, 1, :n]
    first = 1 if single_root else 0
    for h in range(n + 1):
        if h <= first:
            diagonal[:] = 0.0  # with one root, the root's arcs do not count there
        _derivative(w[h, 1 : n + 1], g[h, 1 : n + 1], root if h == 0 else laplacian[h - 1, :n], diagonal)
        if h > 0:
            _difference(slopes[first, 1 : n + 1], slopes[h, 1 : n + 1], inverse[h - 1, :n])
    for m in range(n):
        laplacian[m, m] = diagonal[m]
    if single_root:
        for m in range(n):
            inverse[0, m] = slopes[0, m + 1]
            laplacian[0, m] = -root[m]
    multiply(laplacian, True, inverse, n, product)
    multiply(inverse, False, product, n, laplacian)
    for m in range(n):
        diagonal[m] = laplacian[m, m]
    root[:] = 0.0
    if single_root:
        diagonal[0] = 0.0
        _difference(diagonal, laplacian[0, :n], root)
        laplacian[0, :n] = 0.0
    for h in range(n + 1):
        dslopes = root if h == 0 else laplacian[h - 1, :n]
        out[h, 0] = 0.0
        _answer(w[h, 1 : n + 1], g[h, 1 : n + 1], slopes[h, 1 : n + 1], dslopes, diagonal, out[h, 1 : n + 1])


@inner
def dual_eliminate(x, dx, size, single_root, c, dc):
    """`eliminate` with derivatives; the pivots are known to be positive."""
    n = x.shape[1]
    d, dd = np.empty(LANES), np.empty(LANES)
    for k in range(size, 0, -1):
        move(c, 0, 1, x, k, n, k)
        move(dc, 0, 1, dx, k, n, k)
        for h in range(0, k, ROWS):
            dual_products(c, dc, h, x, dx, h * n + k + 1, n, 1, x, dx, (k + 1) * n + k, n, size - k)
        for lane in range(LANES):
            d[lane] = dd[lane] = 0.0
        for h in range(1 if single_root and k > 1 else 0, k):
            for lane in range(LANES):
                d[lane] += c[h, lane]
                dd[lane] += dc[h, lane]
        for lane in range(LANES):
            x[k, k, lane], dx[k, k, lane] = d[lane], dd[lane]
            d[lane] = 1.0 / d[lane]
        for h in range(k):
            for lane in range(LANES):
                p = c[h, lane] * d[lane]
                x[h, k, lane] = p
                dx[h, k, lane] = (dc[h, lane] - p * dd[lane]) * d[lane]
        move(c, 0, 1, x, k * n, 1, k)
        move(dc, 0, 1, dx, k * n, 1, k)
        for m in range(0, k, ROWS):
            dual_products(c, dc, m, x, dx, (k + 1) * n + m, 1, n, x, dx, k * n + k + 1, 1, size - k)
        move(x, k * n, 1, c, 0, 1, k)
        move(dx, k * n, 1, dc, 0, 1, k)


@inner
def dual_adjoint(x, dx, size, single_root, a, da, c, dc):
    """`adjoint` with derivatives."""
    n = x.shape[1]
    mean, dmean = np.empty(LANES), np.empty(LANES)
    clear(a[0, 0])
    clear(da[0, 0])
    for k in range(1, size + 1):
        move(c, 0, 1, a, 0, 0, k)
        move(dc, 0, 1, a, 0, 0, k)
        for h in range(0, k, ROWS):
            dual_products(c, dc, h, a, da, h * n, n, 1, x, dx, k * n, 1, k)
        for lane in range(LANES):
            mean[lane] = dmean[lane] = 0.0
        for h in range(k):
            for lane in range(LANES):
                mean[lane] += x[h, k, lane] * c[h, lane]
                dmean[lane] += x[h, k, lane] * dc[h, lane] + dx[h, k, lane] * c[h, lane]
        for h in range(k):
            one = 0.0 if single_root and h == 0 and k > 1 else 1.0
            for lane in range(LANES):
                slope = (c[h, lane] + one * (1.0 - mean[lane])) / x[k, k, lane]
                a[h, k, lane] = slope
                da[h, k, lane] = (dc[h, lane] - one * dmean[lane] - slope * dx[k, k, lane]) / x[k, k, lane]
        move(c, 0, 1, a, 0, 0, k)
        move(dc, 0, 1, a, 0, 0, k)
        for m in range(0, k, ROWS):
            dual_products(c, dc, m, a, da, m, 1, n, x, dx, k, n, k)
        move(a, k * n, 1, c, 0, 1, k)
        move(da, k * n, 1, dc, 0, 1, k)
        clear(a[k, k])
        clear(da[k, k])


@inner
def _pack_derivative(w, g, n, size, last, lane, dw):
    """Writes dw = w g into a lane."""
    for h in range(size + 1):
        for m in range(size + 1):
            inside = h <= n and 1 <= m <= n and w[h, m, lane] > 0.0
            dw[h, m, lane] = w[h, m, lane] * g[exchanged(h, last), exchanged(m, last)] if inside else 0.0


@inner
def _unpack_derivative(w, dw, a, da, n, last, lane, out):
    """Writes dw a + w da; whether it is finite."""
    total = 0.0
    for h in range(n + 1):
        row = out[exchanged(h, last)]
        for m in range(1, n + 1):
            x = dw[h, m, lane] * a[h, m, lane] + w[h, m, lane] * da[h, m, lane]
            row[exchanged(m, last)] = x
            total += x
    return np.isfinite(total)


@inner
def _sweep_group(scores, lengths, single_root, g, members, work, dual, out):
    """The derivatives of a group of instances by sweeps, or by logarithms; the first that has none, or -1."""
    w, x, a, z, last, c, dc = work.w, work.x, work.a, work.z, work.last, work.columns[0], work.rows[0]
    dw, dx, da = dual[0], dual[1], dual[2]
    size = factorize(scores, lengths, single_root, members, work)
    for lane in range(LANES):
        b = members[lane]
        _pack_derivative(w, g[b], lengths[b], size, last[lane], lane, dw)
    copy(w, size, x)
    copy(dw, size, dx)
    dual_eliminate(x, dx, size, single_root, c, dc)
    dual_adjoint(x, dx, size, single_root, a, da, c, dc)
    for lane in range(LANES):
        b, n = members[lane], lengths[members[lane]]
        fits = _unpack_derivative(w, dw, a, da, n, last[lane], lane, out[b])
        if np.isnan(z[lane]):
            return b
        if z[lane] == 0.0 or not fits:
            answer = np.zeros((n + 1, n + 1))
            s, direction = scores[b].astype(np.float64), g[b].astype(np.float64)
            if not logarithmic.hessian_product(s, direction, n, single_root, answer):
                return b
            for h in range(n + 1):
                for m in range(1, n + 1):
                    out[b, h, m] = answer[h, m]
    return -1


@kernel
def _sweep(scores, lengths, single_root, g, out, instances):
    """The derivatives of the given instances; the first that has none, or -1."""
    size = scores.shape[1]
    work = workspace(size)
    dual = np.zeros((3, size + ROWS, size, LANES))
    members = np.empty(LANES, np.int64)
    for first in range(0, instances.size, LANES):
        for lane in range(LANES):
            members[lane] = instances[min(first + lane, instances.size - 1)]
            out[members[lane]] = 0.0
        failed = _sweep_group(scores, lengths, single_root, g, members, work, dual, out)
        if failed >= 0:
            return failed
    return -1


@kernel
def _multiply_out(lengths, single_root, weights, slopes, g, out, instances, lo, hi):
    """The derivatives of the instances with moderate slopes; lists the others and returns how many they are."""
    size = slopes.shape[1]
    work = np.zeros((4, size + ROWS, (size + COLUMNS - 2) // COLUMNS * COLUMNS))
    count = 0
    for b in range(lo, hi):
        if lengths[b] + 1 < size or lengths[b] == 0:
            out[b] = 0.0
        if lengths[b] == 0:
            continue
        if _are_moderate(slopes[b], lengths[b]):
            closed_form(weights[b], slopes[b], g[b], lengths[b], single_root, work, out[b])
        else:
            instances[count] = b
            count += 1
    return count


def hessian_product(scores, lengths, single_root, g, out, lo, hi):
    """The derivative of each instance's marginals along g; they are a gradient, so it is also the transposed one.

    g, out (batch, N, N); what g holds in column 0, on the diagonal and in the padding is never read, and out is zero
    there.  O(n³) each, about three times the marginals.  Otherwise as `matrix_tree.log_partition`.
    """
    return _sweep(scores, lengths, single_root, g, out, np.arange(lo, hi))


def hessian_product_at(scores, lengths, single_root, weights, slopes, g, out, lo, hi):
    """`hessian_product` from the weights and slopes that `matrix_tree.linearize` left, at about the marginals' cost.

    Two products of matrices for each instance; those with large slopes are swept.
    """
    instances = np.empty(hi - lo, np.int64)
    count = _multiply_out(lengths, single_root, weights, slopes, g, out, instances, lo, hi)
    return _sweep(scores, lengths, single_root, g, out, instances[:count]) if count else -1
