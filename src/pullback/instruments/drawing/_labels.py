"""Parts with labels: what is drawn is an arc or a span, and its likeliest label is written on it."""

from typing import NamedTuple

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._example import FAINT, SURE, Example, Part


class Labelled(NamedTuple):
    """A part with all its labels taken together, and the likeliest of them."""

    part: Part
    label: str
    """Empty where parts have no labels."""
    share: float
    """How probable the part is with this label."""
    gold_label: str
    """The label that gold has, if it is another."""
    shares: str
    """All labels that are likely, for the title."""

    @property
    def text(self) -> str:
        """What is written on the part: its label, and its probability if that is neither one nor very small."""
        if not self.part.is_shown:
            return ""
        number = _text.share(self.share) if self.part.p >= FAINT and self.share <= SURE else ""
        return f"{self.label if self.part.p >= FAINT else ''} {number}".strip()


def with_labels(example: Example, names: list[str]) -> list[Labelled]:
    """The parts to draw of an example whose last dimension are labels with these names, or that has no labels."""
    if not names:
        return [Labelled(part, "", part.p, "", "") for part in example.parts()]
    gold = example.gold
    found = []
    for part in example.parts(example.point.sum(-1), None if gold is None else gold.sum(-1)):
        shares = example.point[part.index].tolist()
        best = max(range(len(names)), key=shares.__getitem__)
        known = None if gold is None or not part.is_gold else int(gold[part.index].argmax())
        gold_label = names[known] if known is not None and (known != best or not part.is_shown) else ""
        likely = (f", {name} {share:.3f}" for name, share in zip(names, shares) if share >= example.threshold)
        found.append(Labelled(part, names[best], shares[best], gold_label, "".join(likely)))
    return found
