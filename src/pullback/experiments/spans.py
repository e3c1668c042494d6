"""Spans with labels: from tags to spans, and how many of them were found."""

from collections.abc import Iterable, Sequence, Set

Span = tuple[int, int, str]
"""First position, the one after the last, and label."""


def spans_of(tags: Sequence[str]) -> set[Span]:
    """The spans that tags O, B-X and I-X mark; an I-X without its B-X begins a span, as in conlleval.

    >>> sorted(spans_of(["B-person", "I-person", "O", "I-group", "B-group"]))
    [(0, 2, 'person'), (3, 4, 'group'), (4, 5, 'group')]
    """
    found = set()
    start, label = 0, ""
    for position, tag in enumerate([*tags, "O"]):
        mark, _, here = tag.partition("-")
        if label and (mark != "I" or here != label):
            found.add((start, position, label))
            label = ""
        if here and not label:
            start, label = position, here
    return found


def share_of_found(pairs: Iterable[tuple[Set[object], Set[object]]]) -> dict[str, float]:
    """F1, precision and recall over all examples, each a pair of what was found and of what is true.

    A span counts where both ends and the label are right.  A share of nothing is 0.
    """
    right = found = true = 0
    for predicted, gold in pairs:
        right += len(predicted & gold)
        found += len(predicted)
        true += len(gold)
    return {
        "f1": 2 * right / max(found + true, 1),
        "precision": right / max(found, 1),
        "recall": right / max(true, 1),
    }
