"""Docstrings as the pages show them: examples as code, lists of arguments as lists, names of classes as links."""

import re
from typing import Any

import griffe

import pullback

CLASSES = "|".join(name for name in pullback.__all__ if name[0].isupper() and name != "CATALOG")
ARGUMENT = r"[a-z_]\w*(?:\(.*?\))?:\s"  # `lengths: …`, `criterion(ŷ, y): …`


class Readable(griffe.Extension):
    """Rewrites every docstring from what reads well in a terminal to what reads well on a page."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            paragraphs = obj.docstring.value.split("\n\n")
            obj.docstring.value = "\n\n".join(map(_readable, paragraphs))


def _readable(paragraph: str) -> str:
    if paragraph.startswith(">>> "):
        return f"```pycon\n{paragraph}\n```"
    if paragraph.startswith("    "):
        return paragraph
    if re.match(ARGUMENT, paragraph):
        paragraph = _listed(paragraph)
    paragraph = re.sub(r"\s+(?=References?: )", "\n\n", paragraph)
    return re.sub(rf"`({CLASSES})`", r"[`\1`][pullback.\1]", paragraph)


def _listed(paragraph: str) -> str:
    """Arguments, each on a line or after two spaces, as a list."""
    items = re.split(rf"(?:\n|;  |  )(?={ARGUMENT})", paragraph)
    lines = []
    for item in items:
        name, text = item.split(": ", 1)
        lines.append(f"- `{name}`: {' '.join(text.split())}")
    return "\n".join(lines)
