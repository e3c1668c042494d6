"""Rows bid for columns, the second and third stage of `assignment`: in one matrix, or in several side by side."""

from typing import NamedTuple

import numpy as np

from pullback.kernels.matching.best_two import best_of_columns, best_two
from pullback.kernels.tools import borrowing, inner

BIDS = 4  # per row, on average; then the rest is left to `augment`
_WAITS = -2


@borrowing
def starting_prices(score, optional, price):
    """The best score of each column if all of them will be matched, otherwise 0; False if a column has none."""
    rows, cols = score.shape
    price[:cols] = 0.0
    if optional or rows < cols:
        return True
    best_of_columns(score, price)
    lowest = np.inf
    for j in range(cols):
        lowest = min(lowest, price[j])
    return lowest > -np.inf


@borrowing
def first_bids(score, idle, match, owner, price, waiting, asked):
    """Every row bids once, all at the same prices, so that none waits for another; who asks first gets a column.

    The rows that got none are written to `waiting`; returns how many.  `asked` is workspace: the price of each column
    after this round.
    """
    rows, cols = score.shape
    for j in range(cols):
        owner[j] = -1
        asked[j] = price[j]
    count = 0
    for i in range(rows):
        best, second, j = best_two(score[i], price)
        j = max(j, 0)
        gets = (best > idle) & (owner[j] < 0)  # no branch, as it would be mispredicted
        match[i] = j if gets else -1
        owner[j] = i if gets else owner[j]
        asked[j] = price[j] + (best - max(second, idle)) if gets else asked[j]
        waiting[count] = i
        count += not gets
    for j in range(cols):
        price[j] = asked[j] if asked[j] < np.inf else price[j]
    return count


@borrowing
def _bid(row, i, idle, match, owner, price):
    """Row i, whose scores are `row`, bids; returns the row that lost its column, −1 if none did, or _WAITS."""
    best, second, j = best_two(row, price)
    if best <= idle:
        return _WAITS if idle == -np.inf else -1
    second = max(second, idle)
    if second == best and owner[j] >= 0:
        for other in range(len(row)):
            if row[other] - price[other] == best and owner[other] < 0:
                j = other
                break
    before = owner[j]
    raised = price[j] + (best - second)
    if before >= 0:
        if not (raised > price[j] and raised < np.inf):  # nobody would give way for ever
            return _WAITS
        match[before] = -1
    if raised < np.inf:
        price[j] = raised
    match[i], owner[j] = j, i
    return before


@borrowing
def bid_in_turn(score, bidding, idle, a):
    """Lets the first rows of a.waiting bid, each with those it displaces; returns how many are waiting then.

    a: an `Assignment`.
    """
    waiting, left = 0, BIDS * len(score)
    for k in range(bidding):
        i = a.waiting[k]
        while i >= 0:
            before = _bid(score[i], i, idle, a.match, a.owner, a.price) if left > 0 else _WAITS
            left -= 1
            if before == _WAITS:
                a.waiting[waiting] = i
                waiting += 1
            i = before
    return waiting


class Auction(NamedTuple):
    """Several matrices in which rows bid; the first axis of each array counts them.

    score                           wide matrices, row after row
    match, owner, price, waiting    as in `Assignment`
    cols                            columns in use
    bidding                         how many rows wait for a bid
    place                           the place of the one that bids, or whose turn it was, in `waiting`
    bidder                          the row that bids next
    left                            how many bids are left
    unserved                        how many rows wait in vain
    busy                            the matrices in which somebody bids
    """

    score: np.ndarray
    match: np.ndarray
    owner: np.ndarray
    price: np.ndarray
    waiting: np.ndarray
    cols: np.ndarray
    bidding: np.ndarray
    place: np.ndarray
    bidder: np.ndarray
    left: np.ndarray
    unserved: np.ndarray
    busy: np.ndarray


@inner
def new_auction(count, rows, cols):
    return Auction(
        np.empty((count, rows * cols)),
        np.empty((count, rows), np.int64),
        np.empty((count, cols), np.int64),
        np.empty((count, cols)),
        np.empty((count, rows), np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
    )


@borrowing
def bid_side_by_side(several, count, idle):
    """`bid_in_turn` for the first matrices, one bid each and then the next.

    A bid waits for the prices of the one before, but only in the same matrix: a processor works at several.
    """
    busy = 0
    for t in range(count):
        several.place[t], several.unserved[t] = 0, 0
        several.bidder[t] = several.waiting[t, 0]
        several.busy[busy] = t
        busy += several.bidding[t] > 0
    while busy > 0:
        still = 0
        for k in range(busy):
            t = several.busy[k]
            i, cols = several.bidder[t], several.cols[t]
            row = several.score[t, i * cols : (i + 1) * cols]
            before = _WAITS
            if several.left[t] > 0:
                before = _bid(row, i, idle, several.match[t], several.owner[t], several.price[t])
            several.left[t] -= 1
            if before == _WAITS:
                several.waiting[t, several.unserved[t]] = i
                several.unserved[t] += 1
            if before < 0:
                several.place[t] += 1
                before = several.waiting[t, several.place[t]] if several.place[t] < several.bidding[t] else -1
            several.bidder[t] = before
            several.busy[still] = t
            still += before >= 0
        busy = still
