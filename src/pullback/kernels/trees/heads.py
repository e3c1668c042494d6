"""Dependency trees as lists of heads: to and from arc matrices, and the test of what a tree is."""

from pullback.kernels.tools import inner, kernel


@kernel
def write_arcs(heads, lengths, arcs, lo, hi):
    """arcs[b, h, m] = 1 where heads[b, m] = h, for the words m = 1 … lengths[b]; 0 elsewhere."""
    for b in range(lo, hi):
        arcs[b] = 0
        for m in range(1, lengths[b] + 1):
            arcs[b, heads[b, m], m] = 1
    return -1


@inner
def read_heads(arcs, n, heads):
    """The head of every word of an arc matrix; False unless each word 1 … n has one arc and nothing else is set."""
    size = arcs.shape[0]
    for m in range(size):
        heads[m] = -1
        for h in range(size):
            if arcs[h, m] != 0:
                if arcs[h, m] != 1 or heads[m] >= 0 or h > n:
                    return False
                heads[m] = h
        if (heads[m] >= 0) != (1 <= m <= n):
            return False
    return True


@inner
def is_tree(heads, n, single_root, projective):
    """Whether heads[1 … n] lead every word to the root, under one root arc and without crossing if so asked. O(n²)."""
    roots = 0
    for m in range(1, n + 1):
        roots += heads[m] == 0
        ancestor, steps = m, 0
        while ancestor != 0 and steps <= n:
            ancestor, steps = heads[ancestor], steps + 1
        if ancestor != 0:
            return False
    if single_root and n > 0 and roots != 1:
        return False
    if projective:
        for a in range(1, n + 1):
            left, right = min(a, heads[a]), max(a, heads[a])
            for b in range(left + 1, right):  # an arc from inside to outside crosses
                if heads[b] < left or heads[b] > right:
                    return False
    return True


@kernel
def read_trees(arcs, lengths, single_root, projective, heads, lo, hi):
    """The heads of every arc matrix that is a dependency tree over lengths[b] words; −1 throughout for the others.

    heads[b, m] for m = 1 … lengths[b], 0 at m = 0, −1 beyond.
    """
    for b in range(lo, hi):
        n = lengths[b]
        if read_heads(arcs[b], n, heads[b]) and is_tree(heads[b], n, single_root, projective):
            heads[b, 0] = 0
        else:
            heads[b] = -1
    return -1
