"""The best matching: shortest augmenting paths, begun the way Jonker and Volgenant do.

Rows bid for columns.  Column j has a price v_j, and a row i would get s_ij − v_j from it.  A matching is the best one
if every row has the column it gets most from and columns that nobody has are free of charge: then

    Σ_matched s_ij = Σ_i u_i + Σ_j v_j   with   u_i + v_j ≥ s_ij for all pairs,   u_i = max_j s_ij − v_j

In an optional matching a row may also stay idle, and gets 0.  Three stages keep this true for the rows done so far:

  prices        where all columns will be matched their prices are arbitrary: begin with the best score of each
  bids          a row takes its best column, of several one that nobody has, and raises the price until it gets no
                more than from its second best.  A row that had the column bids next.  Most rows are served so, in O(m)
                each
  augment       of those left, each looks for the chain of rows to move on that costs least: Dijkstra's algorithm over
                columns, O(n m) at worst

Reference: Jonker and Volgenant (1987); Crouse (2016) for fewer rows than columns.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.matching.best_two import best_two
from pullback.kernels.matching.wide import fits, load, write_vertex
from pullback.kernels.tools import fmax, inlined, inner, kernel

BIDS = 4  # per row, on average; then the rest is left to `augment`
SHORT = 12  # columns; with fewer, one number after the other is faster than vectors


class Assignment(NamedTuple):
    """A matching with its prices, and workspace.

    match   (rows,)     column of a row, −1 if it has none
    owner   (columns,)  row of a column, −1 if it has none
    price   (columns,)
    reach   (columns,)  what the start would get from the column at the end of the best chain found so far
    origin  (columns,)  row that would move to this column
    shown   (columns,)  price, or ∞ for a column that chains cannot use any more
    closed, last        columns whose best chain is known, in order, and their reach
    waiting (rows,)     rows left by the bids
    """

    match: np.ndarray
    owner: np.ndarray
    price: np.ndarray
    reach: np.ndarray
    origin: np.ndarray
    shown: np.ndarray
    closed: np.ndarray
    last: np.ndarray
    waiting: np.ndarray


@inner
def new_assignment(rows, cols):
    return Assignment(
        np.empty(rows, np.int64),
        np.empty(cols, np.int64),
        np.empty(cols),
        np.empty(cols),
        np.empty(cols, np.int64),
        np.empty(cols),
        np.empty(cols, np.int64),
        np.empty(cols),
        np.empty(rows, np.int64),
    )


@inner
def assign(score, optional, a):
    """The best matching of a wide score matrix into a.match, and its prices; False if there is none.

    Of an optional matching, a row without a column stays idle.
    """
    rows, cols = score.shape
    idle = 0.0 if optional else -np.inf
    a.match[:rows] = -1
    a.owner[:cols] = -1
    a.price[:cols] = 0.0
    if rows == cols and not optional and not _best_of_columns(score, a.price):
        return False
    waiting = _bid(score, idle, a)
    for k in range(waiting):
        i = a.waiting[k]
        a.shown[:cols] = a.price[:cols]
        if not augment(score, score[i], i, idle, -np.inf, a):
            return False
    return True


@inner
def _best_of_columns(score, price):
    """The best score of each column as its price; False if a column has none."""
    rows, cols = score.shape
    price[:cols] = -np.inf
    for i in range(rows):
        row = score[i]
        for j in range(cols):
            price[j] = fmax(row[j], price[j])
    lowest = np.inf
    for j in range(cols):
        lowest = min(lowest, price[j])
    return lowest > -np.inf


@inner
def _place_of(values, cols, value):
    """The first place that holds `value`."""
    for j in range(cols):
        if values[j] == value:
            return j
    return -1


@inlined
def _bid(score, idle, a):
    """Lets rows bid, each in turn until one takes a column nobody has; returns the number of rows left waiting."""
    rows, cols = score.shape
    match, owner, price, left_over = a.match, a.owner, a.price, a.waiting
    waiting, left = 0, BIDS * rows
    for start in range(rows):
        i = start
        while i >= 0:
            if cols > SHORT:
                best, second, j = best_two(score[i], price)
            else:
                best = best_odd = second = second_odd = -np.inf
                j = j_odd = -1
                for k in range(0, cols - 1, 2):  # two chains of comparisons wait for each other less
                    x, y = score[i, k] - price[k], score[i, k + 1] - price[k + 1]
                    better = x > best
                    second = fmax(best if better else x, second)
                    best, j = x if better else best, k if better else j
                    better = y > best_odd
                    second_odd = fmax(best_odd if better else y, second_odd)
                    best_odd, j_odd = y if better else best_odd, k + 1 if better else j_odd
                if cols % 2:
                    x = score[i, cols - 1] - price[cols - 1]
                    better = x > best
                    second = fmax(best if better else x, second)
                    best, j = x if better else best, cols - 1 if better else j
                better = best_odd > best
                second = fmax(best if better else best_odd, second_odd if better else second)
                best, j = best_odd if better else best, j_odd if better else j
            if best <= idle and idle > -np.inf:
                break
            if j < 0 or left == 0:
                left_over[waiting] = i
                waiting += 1
                break
            left -= 1
            second = max(second, idle)
            if second == best and owner[j] >= 0:
                for other in range(cols):
                    if score[i, other] - price[other] == best and owner[other] < 0:
                        j = other
                        break
            before = owner[j]
            raised = price[j] + (best - second)
            if before >= 0 and not (raised > price[j] and raised < np.inf):  # nobody would give way for ever
                left_over[waiting] = i
                waiting += 1
                break
            if raised < np.inf:
                price[j] = raised
            match[i], owner[j] = j, i
            if before >= 0:
                match[before] = -1
            i = before
    return waiting


@inner
def _extend(row, i, shown, shift, reach, origin):
    """Chains that end with row i moving on; returns the largest reach of all columns that are not closed."""
    best = -np.inf
    for j in range(row.shape[0]):
        value = row[j] - shown[j] - shift
        better = value > reach[j]
        reach[j] = value if better else reach[j]
        origin[j] = i if better else origin[j]
        best = fmax(reach[j], best)
    return best


@inner
def augment(score, first, start, idle, floor, a):
    """Gives row `start`, whose scores are `first`, a column by the best chain of moves, and adjusts the prices.

    a.shown holds the prices, ∞ for columns not to be used.  The chain ends at a column nobody has, or with a row that
    gets `idle`.  False, and nothing changed but workspace, if there is none, or none with a reach of `floor`.
    """
    cols = score.shape[1]
    a.reach[:cols] = -np.inf
    best = _extend(first, start, a.shown, 0.0, a.reach, a.origin)
    rest, last_row, count = idle, start, 0  # the best chain that ends with an idle row
    while True:
        if not max(best, rest) > -np.inf or max(best, rest) < floor:
            return False
        if rest >= best:
            j, best = -1, rest
            break
        j = _place_of(a.reach, cols, best)
        if a.owner[j] < 0:
            break
        i = a.owner[j]
        a.closed[count], a.last[count] = j, best
        count += 1
        a.reach[j], a.shown[j] = -np.inf, np.inf
        shift = score[i, j] - a.price[j] - best
        if idle - shift > rest:
            rest, last_row = idle - shift, i
        best = _extend(score[i], i, a.shown, shift, a.reach, a.origin)
    for k in range(count):
        a.price[a.closed[k]] += a.last[k] - best
    _move(start, j, last_row, a)
    return True


@inner
def _move(start, j, last_row, a):
    """Moves the rows of a chain that ends at column j, or with last_row becoming idle if j = −1."""
    if j < 0:
        j = a.match[last_row]
        a.match[last_row] = -1
        if last_row == start:
            return
    while True:
        i = a.origin[j]
        left = a.match[i]
        a.match[i], a.owner[j] = j, i
        if i == start:
            return
        j = left


@kernel
def argmax(scores, lengths, optional, vertex, lo, hi):
    """The best matching of each instance, as zeros and ones.

    scores, vertex (batch, n, m); lengths (batch, 2), the rows and columns in use; vertex is zero in padding.  A
    matching covers the smaller side; if `optional`, it may leave out whatever it likes.  O(n² m) for n ≤ m at worst.
    Returns the first instance without a matching, or with a score of NaN or +∞ or a length out of range, or −1.
    """
    n, m = scores.shape[1:]
    room = np.empty(n * m)
    a = new_assignment(min(n, m), max(n, m))
    for b in range(lo, hi):
        if not fits(lengths[b], scores[b]):
            return b
        wide, transposed, valid = load(scores[b], lengths[b], room)
        if not valid or not assign(wide, optional, a):
            return b
        write_vertex(a.match, wide.shape, transposed, vertex[b])
    return -1
