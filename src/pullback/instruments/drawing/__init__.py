"""How each structure looks: one file for each way of drawing, and what they share.

`picture` chooses by the type of a structure, and another type may be registered with it.  A picture gets an `Example`
and gives a `Canvas`, and `framed` makes a `Drawing` of that.  Structures do not know how they are drawn.
"""

from pullback.instruments.drawing._canvas import Canvas
from pullback.instruments.drawing._drawing import Drawing, framed
from pullback.instruments.drawing._example import Example, Part
from pullback.instruments.drawing._picture import picture

__all__ = ["Canvas", "Drawing", "Example", "Part", "framed", "picture"]
