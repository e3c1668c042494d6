"""The best matching: shortest augmenting paths, begun the way Jonker and Volgenant do.

Rows bid for columns.  Column j has a price v_j, and a row i would get s_ij − v_j from it.  A matching is the best one
if every row has the column it gets most from and columns that nobody has are free of charge: then

    Σ_matched s_ij = Σ_i u_i + Σ_j v_j   with   u_i + v_j ≥ s_ij for all pairs,   u_i = max_j s_ij − v_j

In an optional matching a row may also stay idle, and gets 0.  Four stages keep this true for the rows done so far:

  prices        where all columns will be matched their prices are arbitrary: begin with the best score of each
  first bids    every row bids for its best column at the same prices, and the first to ask gets it
  bids          a row that is left takes its best column, of several one that nobody has, and raises the price until it
                gets no more than from its second best.  A row that had the column bids next.  Most rows are served so,
                in O(m) each
  augment       of those left, each looks for the chain of rows to move on that costs least: Dijkstra's algorithm over
                columns, O(n m) at worst

Reference: Jonker and Volgenant (1987); Crouse (2016) for fewer rows than columns.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.matching.bids import BIDS, bid_in_turn, bid_side_by_side, first_bids, new_auction, starting_prices
from pullback.kernels.matching.wide import fill, fits, wide_shape, write_vertex
from pullback.kernels.tools import borrowing, fmax, inner, kernel

ROOM = 2048  # numbers to load before any is read, few enough for a cache: what was written just now is slow to read


class Assignment(NamedTuple):
    """A matching with its prices, and workspace.

    match   (rows,)     column of a row, −1 if it has none
    owner   (columns,)  row of a column, −1 if it has none
    price   (columns,)
    waiting (rows,)     rows left by the bids
    reach   (columns,)  what the start would get from the column at the end of the best chain found so far
    origin  (columns,)  row that would move to this column
    shown   (columns,)  price, or ∞ for a column that chains cannot use any more
    closed, last        columns whose best chain is known, in order, and their reach
    """

    match: np.ndarray
    owner: np.ndarray
    price: np.ndarray
    waiting: np.ndarray
    reach: np.ndarray
    origin: np.ndarray
    shown: np.ndarray
    closed: np.ndarray
    last: np.ndarray


@inner
def new_assignment(rows, cols):
    return Assignment(
        np.empty(rows, np.int64),
        np.empty(cols, np.int64),
        np.empty(cols),
        np.empty(rows, np.int64),
        np.empty(cols),
        np.empty(cols, np.int64),
        np.empty(cols),
        np.empty(cols, np.int64),
        np.empty(cols),
    )


@borrowing
def assign(score, optional, a):
    """The best matching of a wide score matrix into a.match, and its prices; False if there is none.

    Of an optional matching, a row without a column stays idle.
    """
    if not starting_prices(score, optional, a.price):
        return False
    idle = 0.0 if optional else -np.inf
    bidding = first_bids(score, idle, a.match, a.owner, a.price, a.waiting, a.reach)
    return _serve(score, bid_in_turn(score, bidding, idle, a), idle, a)


@borrowing
def _serve(score, waiting, idle, a):
    """Serves the first rows of a.waiting, each by the best chain; False if one has none."""
    for k in range(waiting):
        i = a.waiting[k]
        for j in range(score.shape[1]):
            a.shown[j] = a.price[j]
        if not augment(score, score[i], i, idle, -np.inf, a):
            return False
    return True


@borrowing
def _place_of(values, cols, value):
    """The first place that holds `value`."""
    for j in range(cols):
        if values[j] == value:
            return j
    return -1


@borrowing
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


@borrowing
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


@borrowing
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
    rows, cols = min(n, m), max(n, m)
    several = new_auction(max(1, min(hi - lo, ROOM // (n * m))), rows, cols)
    a = new_assignment(rows, cols)  # its matching and prices are replaced by those of an instance
    vertex[lo:hi] = 0
    first = lo
    while first < hi:
        end = min(first + len(several.score), hi)
        loaded = _load(scores[first:end], lengths[first:end], several.score)
        solved = _solve(lengths[first : first + loaded], optional, several, a, vertex[first:end])
        first += solved
        if first < end:
            return first
    return -1


@borrowing
def _load(scores, lengths, rooms):
    """Loads instances, as wide matrices, up to the first that cannot have a matching; returns how many."""
    for t in range(len(scores)):
        if not fits(lengths[t], scores[t]) or not fill(scores[t], lengths[t], rooms[t]):
            return t
    return len(scores)


@borrowing
def _solve(lengths, optional, several, a, vertex):
    """The best matchings of loaded instances, up to the first that has none; returns how many."""
    count, idle = len(lengths), 0.0 if optional else -np.inf
    for t in range(count):
        (rows, cols), _ = wide_shape(lengths[t])
        wide = several.score[t, : rows * cols].reshape(rows, cols)
        if not starting_prices(wide, optional, several.price[t]):
            count = t
            break
        several.cols[t], several.left[t] = cols, BIDS * rows
        match, owner, price, waiting = several.match[t], several.owner[t], several.price[t], several.waiting[t]
        several.bidding[t] = first_bids(wide, idle, match, owner, price, waiting, a.reach)
    bid_side_by_side(several, count, idle)
    for t in range(count):
        (rows, cols), transposed = wide_shape(lengths[t])
        wide = several.score[t, : rows * cols].reshape(rows, cols)
        own = several.match[t], several.owner[t], several.price[t], several.waiting[t]
        one = Assignment(*own, a.reach, a.origin, a.shown, a.closed, a.last)
        if not _serve(wide, several.unserved[t], idle, one):
            return t
        write_vertex(one.match, wide.shape, transposed, vertex[t])
    return count
