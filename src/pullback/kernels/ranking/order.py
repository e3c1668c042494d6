"""The order of a row of numbers, in O(n): in as many buckets as numbers, or byte by byte where they crowd.

Buckets cut the way from the lowest to the highest number into equal pieces.  Numbers that are spread about evenly share
a bucket with few others, and insertion puts these in order.

Otherwise, the bits of a float, with the sign flipped, and all other bits too where it is negative, are a whole number
that has the same order.  These are sorted by their last byte, then by the one before it, and so on, each time keeping
the order of what is equal.  A byte that all numbers share changes nothing and is skipped.
Reference: Knuth (1973), 5.2.5.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.tools import inner

_FEW = 16  # below, insertion is faster
_CROWDED = 8  # comparisons for each number that insertion may need
_SIGN = np.uint64(1) << np.uint64(63)
_BYTE = np.uint64(255)

# The numbers and their bits, in the same memory; the bits and their places once sorted by a byte; a count of bytes; the
# bucket of each number, and where the next number of each bucket goes.
_Sorting = namedtuple("_Sorting", ["numbers", "bits", "bits_after", "order_after", "count", "bucket", "next"])


@inner
def sorting(size):
    """Room to sort rows of `size` numbers."""
    numbers = np.empty(size)
    return _Sorting(
        numbers,
        numbers.view(np.uint64),
        np.empty(size, np.uint64),
        np.empty(size, np.int32),
        np.empty(256, np.uint64),
        np.empty(size, np.int32),
        np.empty(size + 1, np.int64),
    )


@inner
def sort(row, n, work, order):
    """Writes the order in which row[: n] ascends, equal numbers as they come; False if one is NaN or infinite."""
    ascends, finite = True, True
    for i in range(n):
        order[i], work.numbers[i] = i, row[i]
        finite &= np.isfinite(row[i])
        ascends &= i == 0 or row[i - 1] <= row[i]
    if finite and not ascends:
        if n < _FEW or _fill_buckets(row, n, work, order):
            _insert(work.numbers, n, order)
        else:
            _sort_bytes(row, n, work, order)
    return finite


@inner
def _insert(numbers, n, order):
    """Sorts the numbers and their places; fast where few are out of order."""
    for i in range(1, n):
        number, place, k = numbers[i], order[i], i
        while k > 0 and numbers[k - 1] > number:
            numbers[k], order[k] = numbers[k - 1], order[k - 1]
            k -= 1
        numbers[k], order[k] = number, place


# ---- buckets


@inner
def _fill_buckets(row, n, work, order):
    """Writes the numbers and their places bucket by bucket; False, and nothing, if they crowd in few of them."""
    numbers, bucket, following = work.numbers, work.bucket, work.next
    low = high = numbers[0]
    for i in range(n):
        low, high = min(low, numbers[i]), max(high, numbers[i])
        following[i] = 0
    following[n] = 0
    per_number = (n - 1) / (high - low)
    if not 0.0 < per_number < np.inf:  # numbers at the ends of what a float can be
        return False
    for i in range(n):
        bucket[i] = np.int32((numbers[i] - low) * per_number)  # rounds, and never changes the order
        following[bucket[i] + 1] += 1
    pairs = 0
    for k in range(n):
        pairs += following[k + 1] * following[k + 1]
        following[k + 1] += following[k]
    if pairs > _CROWDED * n:
        return False
    for i in range(n):
        place = following[bucket[i]]
        following[bucket[i]] += 1
        numbers[place], order[place] = row[i], i
    return True


# ---- bytes


@inner
def _sort_bytes(row, n, work, order):
    bits, bits_after, order_before, order_after = work.bits, work.bits_after, order, work.order_after
    differ = np.uint64(0)
    for i in range(n):
        work.numbers[i] = row[i] + 0.0  # −0 is 0
        bits[i] = ~bits[i] if bits[i] & _SIGN else bits[i] | _SIGN
        differ |= bits[i] ^ bits[0]
    turns = 0
    for byte in range(8):
        shift = np.uint64(8 * byte)
        if (differ >> shift) & _BYTE != 0:
            _sort_byte(shift, n, bits, order_before, bits_after, order_after, work.count)
            bits, bits_after = bits_after, bits
            order_before, order_after = order_after, order_before
            turns += 1
    if turns % 2 == 1:
        for i in range(n):
            order[i] = work.order_after[i]


@inner
def _sort_byte(shift, n, bits, order, bits_after, order_after, count):
    """Sorts by one byte; what agrees in it stays in turn."""
    for digit in range(256):
        count[digit] = 0
    for i in range(n):
        count[(bits[i] >> shift) & _BYTE] += np.uint64(1)
    first = np.uint64(0)
    for digit in range(256):  # where the numbers with this byte begin
        count[digit], first = first, first + count[digit]
    for i in range(n):
        digit = (bits[i] >> shift) & _BYTE
        place = count[digit]
        bits_after[place], order_after[place] = bits[i], order[i]
        count[digit] = place + np.uint64(1)
