"""Violated subtour sets of a fractional tree, found exactly by maximum flow.

A point μ whose columns are distributions over heads is a mixture of arborescences exactly when every set S of words
receives at least 1 from outside (Edmonds 1967),

    Σ_{i∉S, j∈S} μ[i, j] ≥ 1,     which is the subtour constraint     Σ_{i,j∈S} μ[i, j] ≤ |S| − 1,

that is, when a flow of 1 reaches each word from the root.  Words whose flow is known are `settled`: every violated set
is disjoint from them, so they count as the root from then on, and most words settle without a flow of their own.
"""

import numpy as np

from pullback.kernels._vector import kernel

NODE = np.dtype(
    [
        ("fed", np.float64),  # mass from the root and the settled words
        ("sends", np.float64),  # mass to the words that are not settled
        ("used", np.float64),  # what the present flow takes of `fed`
        ("degree", np.float64),  # mass exchanged with the other members of a set
        ("settled", np.int64),
        ("seen", np.int64),  # the last search that came here
        ("via", np.int64),  # and the arc it came by, e forwards or ~e backwards
        ("enter", np.int64),  # arcs[enter : next word's enter] end here
        ("leave", np.int64),  # leaving[leave : next word's leave] are the arcs that begin here
    ],
    align=True,
)
ARC = np.dtype([("head", np.int64), ("modifier", np.int64), ("mass", np.float64), ("flow", np.float64)], align=True)

EMPTY = 1e-14  # a residual capacity below this is round-off


@kernel
def is_feasible(scores, n, single_root, seen, queue):
    """Whether the arcs with a score above −∞ hold an arborescence (with one root arc if `single_root`), in O(n²).

    With a single root some word next to the root must reach all others.  A word that a failed search has reached
    would reach no more than that search did, so it is not tried again.
    """
    tried = 0
    seen[1 : n + 1] = 0
    for first in range(1, n + 1):
        if not scores[0, first] > -np.inf or seen[first] > 0:
            continue
        tried += 1
        filled = 0
        for j in range(first, n + 1 if not single_root else first + 1):
            if scores[0, j] > -np.inf:
                seen[j] = tried
                queue[filled] = j
                filled += 1
        done = 0
        while done < filled:
            i = queue[done]
            done += 1
            for j in range(1, n + 1):
                if seen[j] != tried and i != j and scores[i, j] > -np.inf:
                    seen[j] = tried
                    queue[filled] = j
                    filled += 1
        if filled == n:
            return True
        if not single_root:
            return False
    return False


@kernel
def separate(n, goal, columns, heads, mass, nodes, arcs, leaving, queue, found, sizes):
    """Disjoint sets of words that receive less than `goal`; none is missed if there is any.

    Column j puts mass[j, c] on the word heads[j, c] for c < columns[j].count.  Row k of `found` becomes the indicator
    of the k-th set and sizes[k] its size.  Returns the number of sets.
    Few words need a flow, O(arcs) for each path of it; the others cost O(arcs) together.
    """
    _build(n, columns, heads, mass, nodes, arcs, leaving)
    settled = 0
    for j in range(1, n + 1):
        if nodes[j].fed >= goal:
            settled = _settle(j, nodes, queue, settled)
    done = 0
    search = 0
    sets = 0
    while True:
        while done < settled:
            settled = _spread(queue[done], goal, nodes, arcs, leaving, queue, settled)
            done += 1
        if settled == n:
            return sets
        v = _next_word(n, nodes)
        flow, search, reached = _flow(n, v, goal, search, nodes, arcs, leaving, queue[n:])
        if flow >= goal:
            settled = _settle(v, nodes, queue, settled)
            continue
        # The words that still reach v are the smallest set of least inflow around v.
        sizes[sets] = _peel(n, reached, nodes, arcs, leaving, queue[n:], found[sets])
        for q in range(reached):
            if found[sets, queue[n + q]] > 0.0:
                settled = _settle(queue[n + q], nodes, queue, settled)
        sets += 1


@kernel
def _build(n, columns, heads, mass, nodes, arcs, leaving):
    """The positive arcs between words by modifier, their numbers by head."""
    for i in range(n + 2):
        nodes[i].leave = 0
        nodes[i].sends = 0.0
        nodes[i].fed = 0.0
        nodes[i].settled = 0
        nodes[i].seen = 0
    e = 0
    for j in range(1, n + 1):
        nodes[j].enter = e
        for c in range(columns[j].count):
            if mass[j, c] > 0.0:
                i = heads[j, c]
                if i == 0:
                    nodes[j].fed = mass[j, c]
                else:
                    arcs[e].head = i
                    arcs[e].modifier = j
                    arcs[e].mass = mass[j, c]
                    nodes[i].sends += mass[j, c]
                    nodes[i + 1].leave += 1
                    e += 1
    nodes[n + 1].enter = e
    for i in range(1, n + 2):
        nodes[i].leave += nodes[i - 1].leave
    for e in range(nodes[n + 1].enter):
        i = arcs[e].head
        leaving[nodes[i].leave] = e
        nodes[i].leave += 1
    for i in range(n + 1, 0, -1):
        nodes[i].leave = nodes[i - 1].leave


@kernel
def _settle(j, nodes, queue, settled):
    nodes[j].settled = 1
    queue[settled] = j
    return settled + 1


@kernel
def _spread(j, goal, nodes, arcs, leaving, queue, settled):
    """Word j is settled: it feeds its modifiers, some of which settle in turn, and its heads send less."""
    for p in range(nodes[j].leave, nodes[j + 1].leave):
        e = leaving[p]
        k = arcs[e].modifier
        if not nodes[k].settled:
            nodes[k].fed += arcs[e].mass
            if nodes[k].fed >= goal:
                settled = _settle(k, nodes, queue, settled)
    for e in range(nodes[j].enter, nodes[j + 1].enter):
        nodes[arcs[e].head].sends -= arcs[e].mass
    return settled


@kernel
def _next_word(n, nodes):
    """The word that is fed and sends most: a greedy feedback vertex set, so that few flows break all cycles."""
    best = -1
    for j in range(1, n + 1):
        if not nodes[j].settled and (best < 0 or nodes[j].fed + nodes[j].sends > nodes[best].fed + nodes[best].sends):
            best = j
    return best


@kernel
def _flow(n, v, goal, search, nodes, arcs, leaving, queue):
    """Flow from the settled words to v, up to `goal`, by shortest augmenting paths searched backwards from v.

    Returns the flow, the number of searches so far and the length of `queue`: the words the last search reached.
    """
    for j in range(1, n + 1):
        nodes[j].used = 0.0
    for e in range(nodes[n + 1].enter):
        arcs[e].flow = 0.0
    nodes[v].used = nodes[v].fed
    flow = nodes[v].fed
    for e in range(nodes[v].enter, nodes[v + 1].enter):  # the paths of two arcs need no search
        i = arcs[e].head
        if not nodes[i].settled:
            arcs[e].flow = min(arcs[e].mass, nodes[i].fed)
            nodes[i].used = arcs[e].flow
            flow += arcs[e].flow
    reached = 0
    while flow < goal:
        search += 1
        source, reached = _search(v, search, nodes, arcs, leaving, queue)
        if source < 0:
            break
        flow += _augment(source, v, nodes, arcs)
    return flow, search, reached


@kernel
def _search(v, search, nodes, arcs, leaving, queue):
    """The nearest word that reaches v in the residual graph and has mass to spare, or -1."""
    nodes[v].seen = search
    queue[0] = v
    reached = 1
    done = 0
    while done < reached:
        j = queue[done]
        done += 1
        for e in range(nodes[j].enter, nodes[j + 1].enter):
            i = arcs[e].head
            if nodes[i].seen != search and not nodes[i].settled and arcs[e].mass - arcs[e].flow > EMPTY:
                nodes[i].seen = search
                nodes[i].via = e
                if nodes[i].fed - nodes[i].used > EMPTY:
                    return i, reached
                queue[reached] = i
                reached += 1
        for p in range(nodes[j].leave, nodes[j + 1].leave):
            e = leaving[p]
            i = arcs[e].modifier
            if arcs[e].flow > EMPTY and nodes[i].seen != search and not nodes[i].settled:
                nodes[i].seen = search
                nodes[i].via = ~e
                if nodes[i].fed - nodes[i].used > EMPTY:
                    return i, reached
                queue[reached] = i
                reached += 1
    return -1, reached


@kernel
def _augment(source, v, nodes, arcs):
    """Send what the path from `source` to v can carry."""
    push = nodes[source].fed - nodes[source].used
    i = source
    while i != v:
        e = nodes[i].via
        if e >= 0:
            push = min(push, arcs[e].mass - arcs[e].flow)
            i = arcs[e].modifier
        else:
            push = min(push, arcs[~e].flow)
            i = arcs[~e].head
    nodes[source].used += push
    i = source
    while i != v:
        e = nodes[i].via
        if e >= 0:
            arcs[e].flow += push
            i = arcs[e].modifier
        else:
            arcs[~e].flow -= push
            i = arcs[~e].head
    return push


@kernel
def _peel(n, reached, nodes, arcs, leaving, queue, member):
    """Drop the words that hang off a violated set; `member` becomes its indicator.  Returns its size.

    Without u the set receives degree(u) − 1 more, so a degree of at most 1 makes the smaller set no less violated.
    """
    member[: n + 1] = 0.0
    for q in range(reached):
        member[queue[q]] = 1.0
    for q in range(reached):
        j = queue[q]
        nodes[j].degree = 0.0
        for e in range(nodes[j].enter, nodes[j + 1].enter):
            nodes[j].degree += arcs[e].mass * member[arcs[e].head]
        for p in range(nodes[j].leave, nodes[j + 1].leave):
            nodes[j].degree += arcs[leaving[p]].mass * member[arcs[leaving[p]].modifier]
    size = reached
    shrinking = True
    while shrinking:
        shrinking = False
        for q in range(reached):
            j = queue[q]
            if size > 2 and member[j] > 0.0 and nodes[j].degree <= 1.0 + 1e-12:
                shrinking = True
                member[j] = 0.0
                size -= 1
                for e in range(nodes[j].enter, nodes[j + 1].enter):
                    nodes[arcs[e].head].degree -= arcs[e].mass
                for p in range(nodes[j].leave, nodes[j + 1].leave):
                    nodes[arcs[leaving[p]].modifier].degree -= arcs[leaving[p]].mass
    return size
