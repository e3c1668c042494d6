"""The networks in which flows tell what sets of words receive: nodes, and the edges between them.

There is one network of all words, or one for each set of a laminar family, side by side: its children and the words in
none of them are the nodes, and all that is outside is the root.
"""

import numpy as np

from pullback.kernels.tools import inner
from pullback.kernels.tree_cuts.dual import gradient

NODE = np.dtype(
    [
        ("first", np.uint32),  # its edges are edges[first : first of the next word]
        ("fed", np.float64),  # mass from the root and from settled words
        ("sends", np.float64),  # mass to words that are not settled
        ("settled", np.uint32),
        ("spare", np.float64),  # what the present flow leaves of `fed`
        ("level", np.int32),  # distance to the word of the present flow, -1 unknown
        ("current", np.uint32),  # the next edge to try
        ("low", np.uint32),  # none of its edges but edges[low:high], and their twins, are on paths of the present flow
        ("high", np.uint32),
        ("gives", np.float64),  # mass to the others of a violated set
        ("size", np.uint32),  # of words that it stands for
        ("seen", np.uint32),  # the last search that came here
        ("reaches", np.int64),  # how many words the present search would find from here, 0 unknown
    ],
    align=True,
)
# An arc of positive mass gives its modifier an edge to the head, of this mass, and its head an edge to the modifier, of
# the opposite mass.  Flows are searched backwards: the capacity of the first is the mass, of the second what flows.
EDGE = np.dtype(
    [("target", np.uint32), ("twin", np.uint32), ("mass", np.float64), ("residual", np.float64)], align=True
)


@inner
def build(n, words, arcs, nodes, edges):
    """The network of the arcs with positive mass between words; those that differ by their label make one edge."""
    for i in range(n + 2):
        node = nodes[i]
        node.first = 0
        node.fed = 0.0
        node.sends = 0.0
        node.settled = 0
        node.low = node.high = 0
    for j in range(1, n + 1):
        last = np.int64(0)
        for c in range(words[j].count):
            arc = arcs[j, c]
            if arc.mass > 0.0:
                if arc.head == 0:
                    nodes[j].fed += arc.mass
                else:
                    head = nodes[arc.head]
                    head.sends += arc.mass
                    head.first += arc.head != last
                    nodes[j].first += arc.head != last
                    last = np.int64(arc.head)
    for i in range(1, n + 2):
        nodes[i].first += nodes[i - 1].first
    for j in range(1, n + 1):
        last = np.int64(0)
        for c in range(words[j].count):
            arc = arcs[j, c]
            if arc.mass > 0.0 and arc.head > 0:
                head, modifier = nodes[arc.head], nodes[j]
                mass = arc.mass
                if arc.head == last:
                    mass += edges[modifier.first].mass
                else:
                    head.first -= 1
                    modifier.first -= 1
                    last = np.int64(arc.head)
                set_edge(edges[modifier.first], last, head.first, mass)
                set_edge(edges[head.first], j, modifier.first, -mass)


@inner
def build_within(n, number, words, sets, arcs, nodes, edges, around):
    """The networks of all sets of the family side by side; returns the number of nodes.

    An arc is an edge of the one set that it belongs to, together with others between the same nodes.  What the arcs of
    a network leave of what a node receives comes from outside.  around (number, number) is room for a table.
    """
    gradient(n, number, words, sets, arcs)
    _list_around(number, sets, around)
    count = n
    for k in range(2, number):
        count += 1
        sets[k].node = count
    for v in range(count + 2):
        node = nodes[v]
        node.first = 0
        node.fed = 1.0
        node.sends = 0.0
        node.settled = 0
        node.seen = 0
    for k in range(2, number):
        nodes[sets[k].node].fed += sets[k].gradient
    listed = edges[2 * (len(edges) // 3) :]  # two edges for each arc fill no more than the first two thirds
    _list_by_modifier(n, count, words, sets, arcs, nodes, listed, around)
    _merge(count, nodes, listed)
    _connect(count, nodes, listed, edges)
    return count


@inner
def _list_by_modifier(n, count, words, sets, arcs, nodes, listed, around):
    """The arcs into node v between nodes of the same network, in listed[low:high]; and what nodes get and send."""
    for j in range(1, n + 1):
        for c in range(words[j].count):
            arc = arcs[j, c]
            if arc.mass > 0.0 and arc.set > 0:
                nodes[_node_within(arc.set, arc.head, words, sets, around)].sends += arc.mass
                modifier = nodes[_node_within(arc.set, j, words, sets, around)]
                modifier.fed -= arc.mass
                modifier.first += 1
    filled = 0
    for v in range(1, count + 1):
        nodes[v].fed = max(nodes[v].fed, 0.0)
        nodes[v].low = nodes[v].high = filled
        filled += nodes[v].first
    for j in range(1, n + 1):
        for c in range(words[j].count):
            arc = arcs[j, c]
            if arc.mass > 0.0 and arc.set > 0:
                modifier = nodes[_node_within(arc.set, j, words, sets, around)]
                entry = listed[modifier.high]
                entry.target = _node_within(arc.set, arc.head, words, sets, around)
                entry.mass = arc.mass
                modifier.high += 1


@inner
def _merge(count, nodes, listed):
    """Make one of the arcs between the same two nodes: thousands may lead from one large set to another."""
    for v in range(1, count + 1):
        filled = nodes[v].low
        for e in range(nodes[v].low, nodes[v].high):
            head = nodes[listed[e].target]
            if head.seen == v:
                listed[head.current].mass += listed[e].mass
            else:
                head.seen = v
                head.current = filled
                listed[filled] = listed[e]
                filled += 1
        nodes[v].high = filled


@inner
def _connect(count, nodes, listed, edges):
    """The edges of the listed arcs, at both their ends."""
    for v in range(count + 2):
        nodes[v].first = 0
    for v in range(1, count + 1):
        nodes[v].first += nodes[v].high - nodes[v].low
        for e in range(nodes[v].low, nodes[v].high):
            nodes[listed[e].target].first += 1
    for v in range(1, count + 2):
        nodes[v].first += nodes[v - 1].first
    for v in range(1, count + 1):
        for e in range(nodes[v].low, nodes[v].high):
            u, mass = np.int64(listed[e].target), listed[e].mass
            nodes[u].first -= 1
            nodes[v].first -= 1
            set_edge(edges[nodes[v].first], u, nodes[u].first, mass)
            set_edge(edges[nodes[u].first], v, nodes[v].first, -mass)
        nodes[v].low = nodes[v].high = 0


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
    return np.int64(j if home == k else sets[np.int64(around[home, sets[k].level + 1])].node)


@inner
def words_of(n, number, member, words, sets):
    """Replace the nodes of `build_within` in `member` by their words; the family may have grown since then."""
    sets[0].meet = sets[1].meet = 0
    for k in range(2, number):
        is_node = sets[k].node > 0 and member[sets[k].node]
        sets[k].meet = is_node or sets[sets[k].parent].meet > 0
    for j in range(1, n + 1):
        member[j] = member[j] or sets[words[j].home].meet > 0


@inner
def set_edge(edge, target, twin, mass):
    edge.target = target
    edge.twin = twin
    edge.mass = mass
    edge.residual = max(mass, 0.0)
