"""The networks in which flows tell what sets of words receive: nodes, and the edges between them.

There is one network of all words, or one for each set of a laminar family, side by side: its children and the words in
none of them are the nodes, and all that is outside is the root.

A network is built in two steps: its arcs are listed, which says what nodes there are and what the root feeds them, and
then they are connected.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.tools import inner
from pullback.kernels.tree_cuts.dual import gradient
from pullback.kernels.tree_cuts.laminar import add_chosen

NODE = np.dtype(
    [
        ("first", np.uint32),  # its edges are edges[first : first of the next word]
        ("settled", np.uint32),
        ("fed", np.float64),  # mass from the root and from settled words
        ("sends", np.float64),  # mass to words that are not settled
        ("spare", np.float64),  # what the present flow leaves of `fed`
        ("level", np.int32),  # distance to the word of the present flow, -1 unknown
        ("current", np.uint32),  # the next edge to try
        ("low", np.uint32),  # none of its edges but edges[low:high], and their twins, are on paths of the present flow
        ("high", np.uint32),
        ("degree", np.float64),  # mass exchanged with the others of a violated set
        ("gives", np.float64),  # the part of it that goes to them
        ("size", np.uint32),  # of words that it stands for
        ("seen", np.uint32),  # the last search that came here
        ("reaches", np.uint32),  # how many words the present search would find from here, 0 unknown
        ("is_head", np.uint32),  # whether it sends anything to other nodes
        ("cursor", np.uint32),  # where the next arc into it is listed
        ("latest", np.uint32),  # where the last arc from it is listed
    ],
    align=True,
)
# An arc of positive mass gives its modifier an edge to the head, of this mass, and its head an edge to the modifier, of
# the opposite mass.  Flows are searched backwards: the capacity of the first is the mass, of the second what flows.
EDGE = np.dtype(
    [("target", np.uint32), ("twin", np.uint32), ("mass", np.float64), ("residual", np.float64)], align=True
)
LISTED = np.dtype([("head", np.uint32), ("modifier", np.uint32), ("mass", np.float64)], align=True)


class Room(NamedTuple):
    """Workspace of a search for sets of words, in a network of up to twice as many nodes: words and sets.

    nodes, edges, listed   of the network; two edges for each listed arc
    queue                  the nodes that are settled, in this order
    reached                the nodes that a search has reached, or the edges of a path
    place                  the node of each word in the network of one set, 0 outside
    member, union          whether nodes belong to the set that was found, and to its union with another
    around                 the set at each level around each set of the family
    """

    nodes: np.ndarray
    edges: np.ndarray
    listed: np.ndarray
    queue: np.ndarray
    reached: np.ndarray
    place: np.ndarray
    member: np.ndarray
    union: np.ndarray
    around: np.ndarray


@inner
def new_room(size, width):
    """For `size` nodes, the root and words, with up to `width` arcs into each.

    Edges and list are one block, more than half of what a projection needs: the C library then keeps all of that from
    one call to the next, where it would otherwise ask the system for it each time.
    """
    most = size * width
    network = np.empty(8 * most)  # numbers of 8 bytes
    return Room(
        np.empty(2 * size + 1, NODE),
        network[: 6 * most].view(EDGE),
        network[6 * most :].view(LISTED),
        np.empty(2 * size, np.int64),
        np.empty(2 * size, np.int64),
        np.empty(size, np.int64),
        np.empty(2 * size, np.bool_),
        np.empty(2 * size, np.bool_),
        np.empty((size + 2, size + 2), np.uint32),
    )


@inner
def build(n, words, arcs, nodes, listed, edges):
    """The network of the arcs with positive mass between words; those that differ by their label make one edge."""
    clear(n, 0.0, nodes)
    filled = np.int64(0)
    for j in range(1, n + 1):
        last = np.int64(0)
        for c in range(words[j].count):
            arc = arcs[j, c]
            if arc.mass > 0.0:
                if arc.head == 0:
                    nodes[j].fed += arc.mass
                else:
                    nodes[arc.head].sends += arc.mass
                    if arc.head == last:
                        listed[filled - 1].mass += arc.mass
                    else:
                        last = np.int64(arc.head)
                        filled = list_arc(last, j, arc.mass, nodes, listed, filled)
    connect(n, filled, nodes, listed, edges)


@inner
def build_within(n, number, family, room):
    """The networks of all sets of the family side by side; returns the number of nodes.

    An arc is an edge of the one set that it belongs to, together with others between the same nodes.  What the arcs of
    a network leave of what a node receives comes from outside.
    """
    words, sets, arcs = family
    nodes, listed = room.nodes, room.listed
    gradient(n, number, words, sets, arcs)
    _list_around(number, sets, room.around)
    count = n
    for k in range(2, number):
        count += 1
        sets[k].node = count
    clear(count, 1.0, nodes)
    for v in range(count + 2):
        nodes[v].cursor = 0
        nodes[v].latest = 0
    for k in range(2, number):
        nodes[sets[k].node].fed += sets[k].gradient
    filled = _list_by_modifier(n, count, words, sets, arcs, nodes, listed, room.around)
    filled = _merge(filled, nodes, listed)
    connect(count, filled, nodes, listed, room.edges)
    return count


@inner
def clear(count, fed, nodes):
    """Nodes without edges, of which each word is fed the same."""
    for v in range(count + 2):
        node = nodes[v]
        node.first = 0
        node.settled = 0
        node.fed = fed
        node.sends = 0.0
        node.low = node.high = 0


@inner
def list_arc(head, modifier, mass, nodes, listed, filled):
    """One more arc of a network; returns how many there are now."""
    nodes[head].first += 1
    nodes[modifier].first += 1
    _write(listed[filled], head, modifier, mass)
    return filled + 1


@inner
def _write(arc, head, modifier, mass):
    arc.head = head
    arc.modifier = modifier
    arc.mass = mass


@inner
def connect(count, filled, nodes, listed, edges):
    """The edges of the listed arcs, at both their ends: what comes later in the list comes first at a node.

    Until then `first` is the number of edges of a node.
    """
    for v in range(1, count + 2):
        nodes[v].first += nodes[v - 1].first
    for q in range(filled):
        u, v, mass = np.int64(listed[q].head), np.int64(listed[q].modifier), listed[q].mass
        nodes[u].first -= 1
        nodes[v].first -= 1
        _set_edge(edges[nodes[v].first], u, nodes[u].first, mass)
        _set_edge(edges[nodes[u].first], v, nodes[v].first, -mass)


@inner
def _set_edge(edge, target, twin, mass):
    edge.target = target
    edge.twin = twin
    edge.mass = mass
    edge.residual = max(mass, 0.0)


@inner
def _list_by_modifier(n, count, words, sets, arcs, nodes, listed, around):
    """List the arcs between nodes of a network by modifier, and what nodes send and still get; returns their number."""
    for j in range(1, n + 1):
        for c in range(words[j].count):
            arc = arcs[j, c]
            if arc.mass > 0.0 and arc.set > 0:
                nodes[_node_within(arc.set, arc.head, words, sets, around)].sends += arc.mass
                v = _node_within(arc.set, j, words, sets, around)
                nodes[v].fed -= arc.mass
                nodes[v + 1].cursor += 1
    for v in range(1, count + 1):
        nodes[v].fed = max(nodes[v].fed, 0.0)
        nodes[v + 1].cursor += nodes[v].cursor
    for j in range(1, n + 1):
        for c in range(words[j].count):
            arc = arcs[j, c]
            if arc.mass > 0.0 and arc.set > 0:
                u = _node_within(arc.set, arc.head, words, sets, around)
                v = _node_within(arc.set, j, words, sets, around)
                _write(listed[nodes[v].cursor], u, v, arc.mass)
                nodes[v].cursor += 1
    return np.int64(nodes[count + 1].cursor)


@inner
def _merge(filled, nodes, listed):
    """Make one of the arcs between the same two nodes: thousands may lead from one large set to another.

    The list is by modifier.  Returns how many are left.
    """
    left = np.int64(0)
    for q in range(filled):
        head, modifier, mass = listed[q].head, listed[q].modifier, listed[q].mass
        latest = nodes[head].latest
        if latest < left and listed[latest].head == head and listed[latest].modifier == modifier:
            listed[latest].mass += mass
        else:
            nodes[head].latest = left
            left = list_arc(head, modifier, mass, nodes, listed, left)
    return left


@inner
def _list_around(number, sets, around):
    """The set at each level around each set, itself at the end, so that arcs of deep families need not climb."""
    for k in range(1, number):
        parent = sets[k].parent
        sets[k].level = sets[parent].level + 1 if k > 1 else 0
        for q in range(sets[k].level):
            around[k, q] = around[parent, q]
        around[k, sets[k].level] = k


@inner
def _node_within(k, j, words, sets, around):
    """The node of word j in the network of set k: the word itself, or the child of k that holds it."""
    home = words[j].home
    return np.int64(j if home == k else sets[around[home, sets[k].level + 1]].node)


@inner
def words_of(n, number, member, words, sets):
    """Replace the nodes of `build_within` in `member` by their words; the family may have grown since then."""
    sets[0].chosen = sets[1].chosen = 0
    for k in range(2, number):
        is_node = sets[k].node > 0 and member[sets[k].node]
        sets[k].chosen = is_node or sets[sets[k].parent].chosen > 0
    add_chosen(n, member, words, sets)
