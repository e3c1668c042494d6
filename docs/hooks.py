"""What the pages take from the library itself: the table of estimators, and the modules of each room."""

import re
from pathlib import Path
from typing import Any

import pullback

SOURCE = Path(__file__).parents[1] / "src" / "pullback"
INTERFACES = ("_structure", "_regularizer", "_descent", "_estimator")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace `<!-- catalog -->` by the table, and `<!-- room: descents -->` by that room's documentation."""
    markdown = markdown.replace("<!-- catalog -->", _catalog())
    return re.sub(r"<!-- room: (\w+) -->", lambda match: _room(match[1]), markdown)


def _catalog() -> str:
    rows = ["| name | kind | gradient to the scores | needs beside argmax | decoder evaluations | callable |"]
    rows.append("|---|---|---|---|---|---|")
    for name, entry in pullback.CATALOG.items():
        handed = "yes" if entry.callable else ""
        cells = (f"`{name}`", entry.kind, entry.formula, entry.needs_in_words, str(entry.evaluations), handed)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _room(room: str) -> str:
    """The room's own words, its interface, then its members in alphabetical order."""
    blocks = [f"::: pullback.{room}\n    options:\n      members: false\n      show_root_heading: false\n"]
    modules = [path.relative_to(SOURCE).with_suffix("").parts for path in sorted((SOURCE / room).rglob("*.py"))]
    for parts in modules:
        if parts[-1] in INTERFACES:
            name = f"pullback.{'.'.join(parts)}"
            public = [
                shown for shown in pullback.__all__ if getattr(getattr(pullback, shown), "__module__", "") == name
            ]
            blocks.append(f"::: {name}\n    options:\n      members: {public}\n      show_root_heading: false\n")
    for parts in modules:
        if not parts[-1].startswith("_"):
            blocks.append(f"::: pullback.{'.'.join(parts)}\n")
    return "\n".join(blocks)
