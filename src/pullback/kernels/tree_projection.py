"""SparseMAP for non-projective dependency trees: the nearest mixture of arborescences, by cuts.

    argmin ½‖μ − s‖²   over the convex hull of the arborescences of nodes 0..n with root 0.

A point is in the hull when its columns are distributions over heads and every set S of words receives at least 1 from
outside.  There are 2ⁿ such sets but few matter, so they are found one after the other:

1. minimize the dual over the multipliers of the sets found so far (at first there are none: sparsemax of each column);
2. look for sets that receive less than 1; stop if there are none.

At the end μ is feasible, and the multipliers prove that it is nearest: for any tree z,
⟨s − μ, z − μ⟩ ≤ Σ_S λ_S (|S| − 1 − μ(S)) = 0.

The set of all words is kept as the root's own constraint, Σ_j μ[0, j] ≥ 1, which changes one entry of a column instead
of n.  "Exactly one root arc" is the same constraint as an equality: its multiplier may have either sign.
"""

import numpy as np

from pullback.kernels._vector import kernel
from pullback.kernels.subtour_dual import COLUMN, CONSTRAINT, assemble, minimize, newton, refresh, tilt
from pullback.kernels.subtours import ARC, NODE, is_feasible, separate

CUT = 5e-10  # a set is violated when it receives less than 1 − CUT
SOLVED = 1e-11  # far below CUT, or a set that is solved would be found again
ZERO = 1e-10  # where a step ends exactly at a kink, a vanishing entry is left with round-off

OK, INFEASIBLE, UNSOLVED = 0, 1, 2


@kernel
def _columns(scores, n, score, columns, constraints, member, belongs, heads, value, mass, row):
    """Transpose the scores and start from the sparsemax of each column.

    Returns the largest |score| a column chooses (NaN if some column has no answer) and whether an arc is forbidden.
    """
    for first in range(1, n + 1, 16):  # a few columns at a time stay in the cache
        last = min(first + 16, n + 1)
        for i in range(n + 1):
            for j in range(first, last):
                score[j, i] = scores[i, j]
    largest = 0.0
    forbidden = False
    for j in range(1, n + 1):
        score[j, j] = score[j, 0]
        total = 0.0
        for i in range(n + 1):
            total += score[j, i]
        forbidden = forbidden or total == -np.inf
        score[j, j] = -np.inf
        columns[j].sets = 0
        if total != total or not refresh(
            j, n, 0.0, score, columns, constraints, member, belongs, heads, value, mass, row
        ):
            return np.nan, True
        largest = max(largest, abs(score[j, heads[j, 0]]))
    return largest, forbidden


@kernel
def _index(n, number, columns, constraints, member, belongs):
    """List the constraints each column belongs to."""
    for j in range(1, n + 1):
        columns[j].sets = 0
        for k in range(number):
            if k == 0 or member[k, j] > 0.0:
                belongs[j, columns[j].sets] = k
                columns[j].sets += 1


@kernel
def _solve(scores, n, single_root, state, dual_work, cut_work):
    """The projection, left in the columns and the constraints.  Returns the status and the number of constraints."""
    score, columns, constraints, member, belongs, heads, value, slope, mass = state
    nodes, arcs, leaving, queue, found, sizes = cut_work
    row = dual_work[3]
    largest, forbidden = _columns(scores, n, score, columns, constraints, member, belongs, heads, value, mass, row)
    if largest != largest or (forbidden and not is_feasible(scores, n, single_root, sizes, queue)):
        return INFEASIBLE, 0
    member[0, : n + 1] = 0.0
    member[0, 0] = -1.0
    constraints[0].bound = -1.0
    constraints[0].multiplier = 0.0
    constraints[0].signed = single_root
    number = 1
    solved = SOLVED + 4e-15 * largest
    goal = 1.0 - CUT - 1e-13 * largest
    for _ in range(4 * n + 50):
        _index(n, number, columns, constraints, member, belongs)
        if not minimize(
            n, number, solved, score, columns, constraints, member, belongs, heads, value, slope, mass, dual_work
        ):
            return UNSOLVED, number
        new = separate(n, goal, columns, heads, mass, nodes, arcs, leaving, queue, found, sizes)
        if new == 0:
            return OK, number
        kept = 1
        for k in range(1, number):
            if constraints[k].multiplier > 0.0:
                if kept < k:
                    constraints[kept].multiplier = constraints[k].multiplier
                    constraints[kept].bound = constraints[k].bound
                    member[kept, : n + 1] = member[k, : n + 1]
                kept += 1
        number = kept
        for q in range(new):
            if number == len(constraints):
                return UNSOLVED, number
            constraints[number].bound = sizes[q] - 1.0
            constraints[number].multiplier = 0.0
            constraints[number].signed = 0
            member[number, : n + 1] = found[q, : n + 1]
            number += 1
    return UNSOLVED, number


@kernel
def _finish(n, number, state, dual_work, point, sets):
    """Write the point and the independent active constraints."""
    score, columns, constraints, member, belongs, heads, value, slope, mass = state
    hessian, factor, centered, row = dual_work
    point[:] = 0.0
    sets[:] = 0
    for j in range(1, n + 1):
        for c in range(columns[j].count):
            if mass[j, c] <= ZERO:
                mass[j, c] = 0.0
            else:
                point[heads[j, c], j] = mass[j, c]
    for k in range(number):
        constraints[k].free = constraints[k].multiplier != 0.0 or constraints[k].signed
    _index(n, number, columns, constraints, member, belongs)
    assemble(n, number, columns, constraints, member, belongs, heads, mass, mass, hessian, centered)
    newton(number, constraints, hessian, factor)
    q = 0
    for k in range(number):
        if constraints[k].free == 1:
            for i in range(n + 1):
                if member[k, i] != 0.0:
                    sets[q, i >> 6] |= np.int64(1) << np.int64(i & 63)
            q += 1


@kernel
def _dual_state(N):
    K = 2 * N + 8
    score = np.empty((N, N))
    columns = np.empty(N, COLUMN)
    constraints = np.empty(K, CONSTRAINT)
    member = np.empty((K, N))
    belongs = np.empty((N, K), np.int32)
    heads = np.empty((N, N), np.int32)
    value = np.empty((N, N))
    slope = np.empty((N, N))
    mass = np.empty((N, N))
    return score, columns, constraints, member, belongs, heads, value, slope, mass


@kernel
def _dual_work(N):
    K = 2 * N + 8
    return np.empty((K, K)), np.empty((K, K)), np.empty((K, N)), np.empty(N)


@kernel
def _cut_work(N):
    nodes = np.empty(N + 1, NODE)
    arcs = np.empty(N * N, ARC)
    leaving = np.empty(N * N, np.int64)
    queue = np.empty(2 * N, np.int64)
    return nodes, arcs, leaving, queue, np.empty((N, N)), np.empty(N, np.int64)


@kernel
def project(scores, lengths, single_root, point, sets, lo, hi):
    """Writes the nearest mixtures of trees into `point` and their active sets into `sets`.

    scores and point (batch, N, N) [head, modifier], N at least each length + 1; column 0 and the diagonal are never
    read.  sets (batch, N, ⌈N/64⌉) int64: each row is a set of nodes as bits, the row of node 0 alone stands for the
    root's constraint, and zero rows end the list.  Independent active sets are fewer than the words.
    Returns -1, the first instance without a tree or with a NaN score, or -2 - b where instance b did not converge.
    """
    N = scores.shape[1]
    state = _dual_state(N)
    dual_work = _dual_work(N)
    cut_work = _cut_work(N)
    for b in range(lo, hi):
        n = lengths[b]
        if n == 0:
            point[b] = 0.0
            sets[b] = 0
            continue
        status, number = _solve(scores[b], n, single_root, state, dual_work, cut_work)
        if status != OK:
            return b if status == INFEASIBLE else -2 - b
        _finish(n, number, state, dual_work, point[b], sets[b])
    return -1


@kernel
def project_backward(grad, lengths, point, sets, out, lo, hi):
    """The Jacobian of `project`, which is symmetric, times `grad`: its orthogonal projection on the face's directions.

    These are 0 off the support of `point`, sum to 0 in each column and within each active set.  So center each column
    on its support and solve one small system, whose matrix is the Hessian of the dual.
    """
    N = grad.shape[1]
    state = _dual_state(N)
    dual_work = _dual_work(N)
    for b in range(lo, hi):
        out[b] = 0.0
        if lengths[b] > 0:
            number = _unpack(lengths[b], sets[b], state)
            _project_on_face(lengths[b], number, grad[b], point[b], state, dual_work, out[b])
    return -1


@kernel
def _unpack(n, sets, state):
    """The constraints of an active face, with bound 0; returns their number."""
    score, columns, constraints, member, belongs, heads, value, slope, mass = state
    constraints[0].free = 0
    member[0, : n + 1] = 0.0
    member[0, 0] = -1.0
    number = 1
    for q in range(n):
        if sets[q, 0] == 1:
            constraints[0].free = 1
            continue
        size = 0
        for i in range(n + 1):
            bit = (sets[q, i >> 6] >> np.int64(i & 63)) & 1
            member[number, i] = bit
            size += bit
        if size == 0:
            break
        constraints[number].free = 1
        number += 1
    for k in range(number):
        constraints[k].bound = 0.0
    return number


@kernel
def _project_on_face(n, number, grad, point, state, dual_work, out):
    score, columns, constraints, member, belongs, heads, value, slope, mass = state
    hessian, factor, centered, row = dual_work
    for j in range(1, n + 1):
        c = 0
        total = 0.0
        for i in range(n + 1):
            if point[i, j] > 0.0:
                heads[j, c] = i
                value[j, c] = grad[i, j]
                total += grad[i, j]
                c += 1
        columns[j].count = c
        mass[j, :c] = 1.0
        value[j, :c] -= total / c
    _index(n, number, columns, constraints, member, belongs)
    assemble(n, number, columns, constraints, member, belongs, heads, mass, value, hessian, centered)
    newton(number, constraints, hessian, factor)
    for j in range(1, n + 1):
        count = columns[j].count
        tilt(j, columns, constraints, member, belongs, heads, slope)
        mean = 0.0
        for c in range(count):
            mean += slope[j, c] / count
        for c in range(count):
            out[heads[j, c], j] = value[j, c] + slope[j, c] - mean
