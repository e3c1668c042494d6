"""Words in a row: how much room each has, and where a long row breaks."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pullback.instruments.drawing import _text

LINE = 500.0  # on a phone, text in a longer line would be too small


class Slot(NamedTuple):
    """The room of one word."""

    left: float
    right: float

    @property
    def center(self) -> float:
        """Its middle."""
        return (self.left + self.right) / 2


def slots(words: Iterable[str], gap: float = 14, least: float = 0) -> list[Slot]:
    """A slot for each word, one after the other."""
    found: list[Slot] = []
    for word in words:
        left = found[-1].right if found else 0.0
        found.append(Slot(left, left + max(_text.width(_text.shorten(word)) + gap, least)))
    return found


def lines(row: Sequence[Slot], longest: float = LINE) -> list[range]:
    """The words of each line: as few lines as there can be, and all about as long."""
    found = _broken(row, longest)
    length = row[-1].right / len(found) if found else 0.0
    while len(even := _broken(row, length)) > len(found):
        length += 4
    return even


def _broken(row: Sequence[Slot], longest: float) -> list[range]:
    """The words of each line, none longer than it should be unless it is a single word."""
    found: list[range] = []
    for i, slot in enumerate(row):
        if found and slot.right - row[found[-1].start].left <= longest:
            found[-1] = range(found[-1].start, i + 1)
        else:
            found.append(range(i, i + 1))
    return found


def stacked(intervals: Sequence[tuple[float, float]]) -> list[int]:
    """A level for each interval, in this order: the lowest on which it touches none before it."""
    levels: list[list[tuple[float, float]]] = []
    found = []
    for left, right in intervals:
        free = (i for i, level in enumerate(levels) if all(right <= a or b <= left for a, b in level))
        at = next(free, len(levels))
        if at == len(levels):
            levels.append([])
        levels[at].append((left, right))
        found.append(at)
    return found
