"""Violated subtour sets of a fractional tree, found exactly by maximum flow.

A point μ whose columns are distributions over heads is a mixture of arborescences exactly when every set S of words
receives at least 1 from outside (Edmonds 1967),

    Σ_{i∉S, j∈S} μ[i, j] ≥ 1,     which is the subtour constraint     Σ_{i,j∈S} μ[i, j] ≤ |S| − 1,

that is, when a flow of 1 reaches each word from the root.  Words whose flow is known are `settled`: every violated set
is disjoint from them, so they count as the root from then on, and most words settle without a flow of their own.

Where sets are known that receive exactly 1, one that is violated need cross none of them (see `laminar`).  Then each of
these is a problem of its own: its children and the words in none of them are the nodes of a network, and all that is
outside is the root.  Long ways through nested sets become short flows, and sets are found at every depth at once.
"""

import numpy as np

from pullback.kernels.tools import inner
from pullback.kernels.tree_cuts.flows import flow_to
from pullback.kernels.tree_cuts.networks import build, build_within

BLIND = 1e-3  # the inflow below which a set is found alone
SAME = 1e-9  # degrees that differ by less are tied


@inner
def separate(n, goal, family, room):
    """Begins to look for sets of words that receive less than `goal`; returns how many words are settled.

    Word j receives arcs[j, c].mass from arcs[j, c].head for c < words[j].count.
    """
    nodes = room.nodes
    build(n, family.words, family.arcs, nodes, room.listed, room.edges)
    return settle_fed(n, goal, nodes, room.queue)


@inner
def separate_within(n, number, goal, family, room):
    """The same for sets that cross none of the family; returns the number of nodes and how many are settled.

    Nodes above n are sets of the family.
    """
    count = build_within(n, number, family, room)
    return count, settle_fed(count, goal, room.nodes, room.queue)


@inner
def settle_fed(n, goal, nodes, queue):
    """Settle the words that the root feeds; returns their number."""
    settled = np.int64(0)
    for j in range(1, n + 1):
        if not nodes[j].settled and nodes[j].fed >= goal:
            settled = settle(j, nodes, queue, settled)
    return settled


@inner
def next_set(n, goal, disjoint, nearest_first, settled, done, room):
    """The next set that receives less than `goal`, in room.member: (whether there is one, words settled, words done).

    None is missed if there is any.  The set is that of least inflow around some word, which counts as settled from
    then on: further sets do not contain it, but may be nested in this one.  They may not if sets are to be disjoint,
    which takes fewer flows; nor if it receives nothing, for then the dual has no curvature in its multiplier, and one
    after the other is found more easily.

    Few words need a flow, by Dinic's method; the others cost O(arcs) together.  nearest_first: begin with words that
    the root feeds, which takes more flows, but where sets are deeply nested finds the outer ones before the inner.
    """
    nodes, edges, queue, reached, member = room.nodes, room.edges, room.queue, room.reached, room.member
    while True:
        while done < settled:
            settled = spread(queue[done], goal, nodes, edges, queue, settled)
            done += 1
        if settled == n:
            return False, settled, done
        v = next_word(n, nearest_first, nodes)
        flow, filled = flow_to(n, v, goal, nodes, edges, reached)
        settled = settle(v, nodes, queue, settled)
        if flow < goal:
            break
    # The words that still reach v are the smallest set of least inflow around v.
    member[: n + 1] = False
    for q in range(filled):
        member[reached[q]] = True
    _peel(reached[:filled], nodes, edges, member)
    if disjoint or flow < BLIND:
        for q in range(filled):
            if member[reached[q]] and not nodes[reached[q]].settled:
                settled = settle(reached[q], nodes, queue, settled)
    return True, settled, done


@inner
def settle(j, nodes, queue, settled):
    nodes[j].settled = 1
    queue[settled] = j
    return settled + 1


@inner
def spread(j, goal, nodes, edges, queue, settled):
    """Word j is settled: it feeds its modifiers, some of which settle in turn, and its heads send less."""
    for e in range(nodes[j].first, nodes[j + 1].first):
        edge = edges[e]
        node = nodes[edge.target]
        if edge.mass > 0.0:
            node.sends -= edge.mass
        elif not node.settled:
            node.fed -= edge.mass
            if node.fed >= goal:
                settled = settle(np.int64(edge.target), nodes, queue, settled)
    return settled


@inner
def next_word(n, nearest_first, nodes):
    """The word that is fed most; or fed and sends most, a greedy feedback vertex set: few flows break all cycles."""
    best = -1
    most = -np.inf
    sending = 0.0 if nearest_first else 1.0
    for j in range(1, n + 1):
        node = nodes[j]
        if not node.settled and node.fed + sending * node.sends > most:
            most = node.fed + sending * node.sends
            best = j
    return best


@inner
def _peel(words, nodes, edges, member):
    """Drop the words that hang off a violated set.

    Without u the set receives degree(u) − 1 more, so a degree of less than 1 makes the smaller set more violated.  One
    of exactly 1 leaves it as violated, and then only a word that is head of none is dropped: where scores are tied, a
    chain of sets may be violated alike, and word after word would fall off until every set is the innermost.
    """
    size = len(words)
    for j in words:
        nodes[j].degree = 0.0
        nodes[j].gives = 0.0
        for e in range(nodes[j].first, nodes[j + 1].first):
            if member[edges[e].target]:
                nodes[j].degree += abs(edges[e].mass)
                nodes[j].gives -= min(edges[e].mass, 0.0)
    shrinking = True
    while shrinking:
        shrinking = False
        for j in words:
            node = nodes[j]
            hangs = node.degree < 1.0 - SAME or (node.degree <= 1.0 + SAME and node.gives <= SAME)
            if size > 2 and member[j] and hangs:
                shrinking = True
                member[j] = False
                size -= 1
                for e in range(node.first, nodes[j + 1].first):
                    nodes[edges[e].target].degree -= abs(edges[e].mass)
                    nodes[edges[e].target].gives -= max(edges[e].mass, 0.0)
