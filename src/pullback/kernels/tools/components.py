"""Components of a graph that grows, as trees of parents: union and find."""

from pullback.kernels.tools.compilation import inner


@inner
def root_of(parent, v):
    """The root of the tree of v, which is its own parent; paths are halved on the way."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v
