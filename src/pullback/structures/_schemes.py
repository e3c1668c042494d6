"""Tags that mark spans: which of them may follow each other."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Scheme(NamedTuple):
    """Tags and what they allow, as scores of 0 and −∞.

    names: of the t tags;  transitions: (t, t), [tag before, tag];  start, end: (t,), for the first and the last tag.
    """

    names: tuple[str, ...]
    transitions: Tensor
    start: Tensor
    end: Tensor


def bio(labels: Sequence[str]) -> Scheme:
    """O, B-X, I-X: a span is B-X and any number of I-X."""
    return _scheme("bio", labels, "BI", opens="", follows={"I": "BI"})


def bioes(labels: Sequence[str]) -> Scheme:
    """O, B-X, I-X, E-X, S-X: a span is S-X, or B-X, any number of I-X, and E-X."""
    return _scheme("bioes", labels, "BIES", opens="BI", follows={"I": "BI", "E": "BI"})


def _scheme(name: str, labels: Sequence[str], marks: str, *, opens: str, follows: dict[str, str]) -> Scheme:
    """opens: marks of a span that has to go on;  follows: the marks, of the same span, that a mark needs before it."""
    if isinstance(labels, str) or len(set(labels)) != len(labels):
        raise ValueError(f"Tagging.{name}: labels are {labels!r}; expected different names, such as ['PER', 'LOC'].")
    tags = [("O", ""), *((mark, label) for label in labels for mark in marks)]

    def may_follow(before: tuple[str, str], tag: tuple[str, str]) -> bool:
        continues = before[1] == tag[1] and before[0] in follows.get(tag[0], "")
        return continues or (tag[0] not in follows and before[0] not in opens)

    def scores(allow: Callable[[tuple[str, str]], bool]) -> Tensor:
        return torch.tensor([0.0 if allow(tag) else -torch.inf for tag in tags])

    return Scheme(
        tuple(mark if not label else f"{mark}-{label}" for mark, label in tags),
        torch.stack([scores(lambda tag, before=before: may_follow(before, tag)) for before in tags]),  # type: ignore[misc]
        scores(lambda tag: tag[0] not in follows),
        scores(lambda tag: tag[0] not in opens),
    )
