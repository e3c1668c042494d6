"""Which structure is drawn how."""

from functools import singledispatch

from pullback.instruments.drawing._bars import bars
from pullback.instruments.drawing._canvas import Canvas
from pullback.instruments.drawing._example import Example
from pullback.structures._structure import Structure


@singledispatch
def picture(structure: Structure, example: Example) -> Canvas:
    """The picture of one example, chosen by the type of the structure; bars if nothing else was registered.

    `picture.register(Window)` registers a function of a structure and an `Example` for a structure of one's own, and
    `picture.dispatch(pb.Subset)` gives one that is there already (see `functools.singledispatch`).
    """
    return bars(example)
