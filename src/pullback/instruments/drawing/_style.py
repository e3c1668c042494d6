"""The colors of drawings, in light and in dark."""

_SHAPES = """
.pullback-drawing text{font:16px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:INK}
.pullback-drawing .small,.pullback-drawing .share{font-size:12px;fill:SOFT}
.pullback-drawing .share{paint-order:stroke;stroke:PAPER;stroke-width:4px;stroke-linejoin:round}
.pullback-drawing .heading{font-size:13px;font-weight:600}
.pullback-drawing .paper{fill:PAPER}
.pullback-drawing .track{fill:FAINT}
.pullback-drawing .ghost{fill:none;stroke:RULE}
.pullback-drawing .node{fill:PAPER;stroke:SOFT}
.pullback-drawing .line{fill:none;stroke:POINT;stroke-linecap:round}
.pullback-drawing .tip{fill:POINT}
.pullback-drawing .fill{fill:POINT}
.pullback-drawing .line.agreed{stroke:AGREED}
.pullback-drawing .tip.agreed,.pullback-drawing .fill.agreed,.pullback-drawing .share.agreed{fill:AGREED}
.pullback-drawing .line.extra{stroke-dasharray:.1 5}
.pullback-drawing .line.missed{stroke:MISSED;stroke-dasharray:6 4}
.pullback-drawing .tip.missed,.pullback-drawing .share.missed{fill:MISSED}
.pullback-drawing .outline{fill:none;stroke:AGREED;stroke-width:2px}
.pullback-drawing .outline.missed{stroke:MISSED;stroke-dasharray:4 3}
.pullback-drawing .on-dark{fill:PAPER}
.pullback-drawing .on-light{fill:INK}
"""
_LIGHT = {
    "INK": "#1b2430",
    "SOFT": "#5b6776",
    "RULE": "#c9d0d9",
    "FAINT": "#eef1f5",
    "PAPER": "#ffffff",
    "POINT": "#2463b0",
    "AGREED": "#0c7a5b",
    "MISSED": "#c2500b",
}
_DARK = {
    "INK": "#e8ecf2",
    "SOFT": "#a3afbe",
    "RULE": "#46505d",
    "FAINT": "#232a34",
    "PAPER": "#151a21",
    "POINT": "#7db4f7",
    "AGREED": "#4fd1a5",
    "MISSED": "#f59e57",
}
_LABELS = (  # of segments and spans: light, dark
    ("#2463b0", "#7db4f7"),
    ("#b4530a", "#f2a65a"),
    ("#7a3fa8", "#c79bf0"),
    ("#0c7a5b", "#4fd1a5"),
    ("#b3265e", "#f58bb3"),
    ("#6b6a12", "#d3d06a"),
    ("#0e7490", "#5fcbe3"),
    ("#5b5f6b", "#b3b9c6"),
)
LABELS = len(_LABELS)


def style() -> str:
    """The style sheet of a drawing; every rule names its class, so that drawings share a page with anything else."""
    return f"{_written(_LIGHT, 0)}@media (prefers-color-scheme:dark){{{_written(_DARK, 1)}}}"


def label_class(label: int) -> str:
    """The class of what has this label; colors repeat after a while."""
    return f"label{label % LABELS}"


def _written(colors: dict[str, str], which: int) -> str:
    rules = _SHAPES
    for name, color in colors.items():
        rules = rules.replace(name, color)
    rules += "".join(f".pullback-drawing .fill.label{i}{{fill:{colors[which]}}}" for i, colors in enumerate(_LABELS))
    return rules.replace("\n", "")
