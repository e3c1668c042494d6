"""The order of a row of numbers: by insertion where they are few, byte by byte where they are many.

The bits of a float, with the sign flipped, and all other bits too where it is negative, are a whole number that has the
same order.  These are sorted by their last byte, then by the one before it, and so on, each time keeping the order of
what is equal.  A byte that all numbers share changes nothing and is skipped: three of eight, for numbers that were
single precision.  O(n).  Reference: Knuth (1973), 5.2.5.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.tools import inner

_FEW = 48  # below, insertion is faster
_SIGN = np.uint64(1) << np.uint64(63)
_BYTE = np.uint64(255)

# The numbers and their bits, in the same memory; the bits and their places once sorted by a byte; a count of bytes.
_Sorting = namedtuple("_Sorting", ["numbers", "bits", "bits_after", "order_after", "count"])


@inner
def sorting(size):
    """Room to sort rows of `size` numbers."""
    numbers = np.empty(size)
    return _Sorting(
        numbers, numbers.view(np.uint64), np.empty(size, np.uint64), np.empty(size, np.int32), np.empty(256, np.uint64)
    )


@inner
def sort(row, n, work, order):
    """Writes the order in which row[: n] ascends, equal numbers as they come; False if one is NaN or infinite."""
    ascends, finite = True, True
    for i in range(n):
        order[i] = i
        finite &= np.isfinite(row[i])
        ascends &= i == 0 or row[i - 1] <= row[i]
    if finite and not ascends:
        if n < _FEW:
            _insert(row, n, order)
        else:
            _sort_bytes(row, n, work, order)
    return finite


@inner
def _insert(row, n, order):
    for i in range(1, n):
        k = i
        while k > 0 and row[order[k - 1]] > row[i]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = i


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
