"""Text in a drawing: how wide it is, how it is shortened, and which characters a drawing can hold."""

import re
import unicodedata
from html import escape

_LONGEST = 28
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(label: object) -> str:
    """A label as one line of text: what XML cannot hold becomes �, and a label of spaces becomes visible."""
    text = _NOT_IN_XML.sub("\ufffd", str(label))
    return "␣" if text.isspace() else " ".join(text.split())


def shorten(text: str, longest: int = _LONGEST) -> str:
    """The beginning of a text that is too long to draw."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def escaped(text: str) -> str:
    """Text that may stand in an element or an attribute."""
    return escape(clean(text), quote=True)


def width(text: str, size: float = 16) -> float:
    """About how wide a text is; nobody knows the font, so rather too wide than too narrow."""
    return size * sum(map(_advance, text))


def _advance(character: str) -> float:
    """The width of a character in units of the font size."""
    if unicodedata.combining(character):
        return 0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if character in "iljtfrI.,:;'!|()[] ":
        return 0.36
    if character in "mwMW@%—":
        return 0.93
    return 0.7 if character.isupper() else 0.59


def number(value: float) -> str:
    """A coordinate, with one digit after the point."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")  # + 0.0 turns −0 into 0


def share(p: float) -> str:
    """A probability as people write it: .73, or 1."""
    return {"0.00": "0", "1.00": "1"}.get(f"{p:.2f}", f"{p:.2f}".removeprefix("0"))


def listed(index: tuple[int, ...]) -> str:
    """The index of a part: 3, or [0, 2]."""
    return str(index[0]) if len(index) == 1 else str(list(index))
