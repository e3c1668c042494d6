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

BLIND = 1e-3  # the inflow below which a set is found alone
EMPTY = 1e-14  # a residual capacity below this is round-off
SAME = 1e-9  # degrees that differ by less are tied


@inner
def is_feasible(scores, n, single_root, seen, queue):
    """Whether the arcs with a score above −∞ hold an arborescence (with one root arc if `single_root`), in O(n²t).

    With a single root some word next to the root must reach all others.  A word that a failed search has reached
    would reach no more than that search did, so it is not tried again.
    """
    labels = scores.shape[1] // len(seen)
    tried = 0
    seen[1 : n + 1] = 0
    for first in range(1, n + 1):
        if not _is_allowed(scores[0], first, labels) or seen[first] > 0:
            continue
        tried += 1
        filled = 0
        for j in range(first, n + 1 if not single_root else first + 1):
            if _is_allowed(scores[0], j, labels):
                seen[j] = tried
                queue[filled] = j
                filled += 1
        done = 0
        while done < filled:
            i = queue[done]
            done += 1
            for j in range(1, n + 1):
                if seen[j] != tried and i != j and _is_allowed(scores[i], j, labels):
                    seen[j] = tried
                    queue[filled] = j
                    filled += 1
        if filled == n:
            return True
        if not single_root:
            return False
    return False


@inner
def _is_allowed(scores, j, labels):
    """Whether the arc into word j exists with some label, given the scores of arcs from one head."""
    for m in range(labels * j, labels * (j + 1)):
        if scores[m] > -np.inf:
            return True
    return False


@inner
def separate(n, goal, words, arcs, nodes, edges, queue):
    """Begins to look for sets of words that receive less than `goal`; returns how many words are settled.

    Word j receives arcs[j, c].mass from arcs[j, c].head for c < words[j].count.
    """
    _build(n, words, arcs, nodes, edges)
    return settle_fed(n, goal, nodes, queue)


@inner
def separate_within(n, number, goal, words, sets, arcs, nodes, edges, queue):
    """The same for sets that cross none of the family; returns the number of nodes and how many are settled.

    Nodes above n are sets of the family.
    """
    count = _build_within(n, number, words, sets, arcs, nodes, edges)
    return count, settle_fed(count, goal, nodes, queue)


@inner
def settle_fed(n, goal, nodes, queue):
    """Settle the words that the root feeds; returns their number."""
    settled = np.int64(0)
    for j in range(1, n + 1):
        if not nodes[j].settled and nodes[j].fed >= goal:
            settled = settle(j, nodes, queue, settled)
    return settled


@inner
def next_set(n, goal, disjoint, nearest_first, nodes, edges, queue, reached, settled, done, member):
    """The next set that receives less than `goal`, in `member`: (whether there is one, words settled, words done).

    None is missed if there is any.  The set is that of least inflow around some word, which counts as settled from
    then on: further sets do not contain it, but may be nested in this one.  They may not if sets are to be disjoint,
    which takes fewer flows; nor if it receives nothing, for then the dual has no curvature in its multiplier, and one
    after the other is found more easily.

    Few words need a flow, by Dinic's method; the others cost O(arcs) together.  nearest_first: begin with words that
    the root feeds, which takes more flows, but where sets are deeply nested finds the outer ones before the inner.
    """
    while True:
        while done < settled:
            settled = spread(queue[done], goal, nodes, edges, queue, settled)
            done += 1
        if settled == n:
            return False, settled, done
        v = next_word(n, nearest_first, nodes)
        flow, filled = _flow(n, v, goal, nodes, edges, reached)
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
def _build(n, words, arcs, nodes, edges):
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
def _build_within(n, number, words, sets, arcs, nodes, edges):
    """The networks of all sets of the family side by side; returns the number of nodes.

    An arc is an edge of the one set that it belongs to.  What the arcs of a network leave of what a node receives comes
    from outside.
    """
    gradient(n, number, words, sets, arcs)
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
        node.low = node.high = 0
    for k in range(2, number):
        nodes[sets[k].node].fed += sets[k].gradient
    for j in range(1, n + 1):
        for c in range(words[j].count):
            arc = arcs[j, c]
            if arc.mass > 0.0 and arc.set > 0:
                head = nodes[_node_within(arc.set, arc.head, words, sets)]
                modifier = nodes[_node_within(arc.set, j, words, sets)]
                head.first += 1
                head.sends += arc.mass
                modifier.first += 1
                modifier.fed -= arc.mass
    for v in range(1, count + 2):
        nodes[v].first += nodes[v - 1].first
        nodes[v].fed = max(nodes[v].fed, 0.0)
    for j in range(1, n + 1):
        for c in range(words[j].count):
            arc = arcs[j, c]
            if arc.mass > 0.0 and arc.set > 0:
                u, v = _node_within(arc.set, arc.head, words, sets), _node_within(arc.set, j, words, sets)
                nodes[u].first -= 1
                nodes[v].first -= 1
                set_edge(edges[nodes[v].first], u, nodes[u].first, arc.mass)
                set_edge(edges[nodes[u].first], v, nodes[v].first, -arc.mass)
    return count


@inner
def _node_within(k, j, words, sets):
    """The node of word j in the network of set k: the word itself, or the child of k that holds it."""
    home = words[j].home
    if home == k:
        return np.int64(j)
    while sets[home].parent != k:
        home = sets[home].parent
    return np.int64(sets[home].node)


@inner
def words_of(n, number, member, words, sets):
    """Replace the nodes of `separate_within` in `member` by their words; the family may have grown since then."""
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
def _flow(n, v, goal, nodes, edges, reached):
    """Flow from the settled words to v, up to `goal`; also the number of words that reach v when there is no more."""
    flow = nodes[v].fed
    for e in range(nodes[v].first, nodes[v + 1].first):
        nodes[edges[e].target].spare = nodes[edges[e].target].fed
    for e in range(nodes[v].first, nodes[v + 1].first):
        edge = edges[e]
        head = nodes[edge.target]
        if edge.mass > 0.0 and not head.settled:
            sent = min(edge.mass, head.spare)
            head.spare -= sent  # there may be another edge from this head
            flow += sent
    if flow >= goal:  # paths of two arcs are enough
        return flow, 0
    flow, filled = push(n, v, goal, nodes, edges, reached)
    restore(n, nodes, edges)
    return flow, filled


@inner
def push(n, v, goal, nodes, edges, reached):
    """The same, with the flow left in the residuals."""
    flow = nodes[v].fed
    for j in range(1, n + 1):
        nodes[j].spare = nodes[j].fed
    nodes[v].spare = 0.0
    nodes[v].low, nodes[v].high = nodes[v].first, nodes[v + 1].first
    for e in range(nodes[v].first, nodes[v + 1].first):
        edge = edges[e]
        head = nodes[edge.target]
        if edge.mass > 0.0 and not head.settled:
            sent = min(edge.mass, head.spare)
            flow += sent
            head.spare -= sent
            edge.residual -= sent
            edges[edge.twin].residual = sent
    at = np.int64(0)
    for e in range(nodes[v].first, nodes[v + 1].first):  # paths of three arcs
        if edges[e].residual > EMPTY and flow < goal and not nodes[edges[e].target].settled:
            sent, at = _pull(e, at, nodes, edges)
            flow += sent
    filled = 0
    while flow < goal:
        depth, filled = _levels(n, v, nodes, edges, reached)
        if depth < 0:
            break
        flow += _blocking_flow(v, depth, goal - flow, nodes, edges, reached)
    return flow, filled


@inner
def _pull(e, at, nodes, edges):
    """Send along an edge what the heads at its end have to spare, from the one in place `at` on; (how much, place)."""
    edge = edges[e]
    node = nodes[edge.target]
    before = edge.residual
    first, last = np.int64(node.first), np.int64(nodes[edge.target + 1].first)
    e = first + at if at < last - first else first
    for _ in range(first, last):
        further = edges[e]
        head = nodes[further.target]
        if further.residual > EMPTY and head.spare > EMPTY and not head.settled:
            sent = min(min(edge.residual, further.residual), head.spare)
            head.spare -= sent
            further.residual -= sent
            edges[further.twin].residual += sent
            edge.residual -= sent
            _touch(node, e)
            if edge.residual <= EMPTY:
                break
        e = e + 1 if e + 1 < last else first
    edges[edge.twin].residual += before - edge.residual
    return before - edge.residual, e - first


@inner
def _touch(node, e):
    """Note that the present flow goes through edge e of a node."""
    if node.high == 0:
        node.low, node.high = e, e + 1
    else:
        node.low, node.high = min(node.low, e), max(node.high, e + 1)


@inner
def restore(n, nodes, edges):
    """Takes the last flow out of the residuals."""
    for j in range(1, n + 1):
        for e in range(nodes[j].low, nodes[j].high):
            edge = edges[e]
            edge.residual = max(edge.mass, 0.0)
            edges[edge.twin].residual = max(-edge.mass, 0.0)
        nodes[j].low = nodes[j].high = 0


@inner
def _levels(n, v, nodes, edges, reached):
    """Distances to v in the residual graph, up to the nearest words with something to spare; -1 if there are none."""
    for j in range(1, n + 1):
        nodes[j].level = -1
    nodes[v].level = 0
    reached[0] = v
    filled = 1
    done = 0
    depth = -1
    while done < filled:
        j = reached[done]
        done += 1
        if nodes[j].level == depth:
            break
        nodes[j].current = nodes[j].first
        for e in range(nodes[j].first, nodes[j + 1].first):
            if edges[e].residual > EMPTY:
                node = nodes[edges[e].target]
                if node.level < 0 and not node.settled:
                    node.level = nodes[j].level + 1
                    reached[filled] = edges[e].target
                    filled += 1
                    if node.spare > EMPTY:
                        depth = node.level
    return depth, filled


@inner
def _blocking_flow(v, depth, wanted, nodes, edges, path):
    """Send along shortest paths until each has a full edge, or `wanted` has arrived; returns what has."""
    total = 0.0
    at = 0
    j = v
    while total < wanted:
        if at == depth:
            push = nodes[j].spare
            for q in range(depth):
                push = min(push, edges[path[q]].residual)
            nodes[j].spare -= push
            total += push
            at = depth - 1
            for q in range(depth - 1, -1, -1):
                edge = edges[path[q]]
                twin = edges[edge.twin]
                edge.residual -= push
                twin.residual += push
                _touch(nodes[twin.target], path[q])
                if edge.residual <= EMPTY:
                    at = q
            j = edges[edges[path[at]].twin].target
            continue
        last = nodes[j + 1].first
        e = nodes[j].current
        while e < last:
            if edges[e].residual > EMPTY:
                node = nodes[edges[e].target]
                if node.level == at + 1 and (at + 1 < depth or node.spare > EMPTY):
                    break
            e += 1
        nodes[j].current = e
        if e < last:
            path[at] = e
            at += 1
            j = edges[e].target
        elif at == 0:
            break
        else:
            nodes[j].level = -1
            at -= 1
            j = edges[edges[path[at]].twin].target
    return total


@inner
def _peel(words, nodes, edges, member):
    """Drop the words that hang off a violated set.

    Without u the set receives degree(u) − 1 more, so a degree of less than 1 makes the smaller set more violated.  One
    of exactly 1 leaves it as violated, and then only a word that is head of none is dropped: where scores are tied, a
    chain of sets may be violated alike, and word after word would fall off until every set is the innermost.
    """
    size = len(words)
    for j in words:
        nodes[j].spare = 0.0  # now the degree: the mass exchanged with the others
        nodes[j].gives = 0.0
        for e in range(nodes[j].first, nodes[j + 1].first):
            if member[edges[e].target]:
                nodes[j].spare += abs(edges[e].mass)
                nodes[j].gives -= min(edges[e].mass, 0.0)
    shrinking = True
    while shrinking:
        shrinking = False
        for j in words:
            node = nodes[j]
            hangs = node.spare < 1.0 - SAME or (node.spare <= 1.0 + SAME and node.gives <= SAME)
            if size > 2 and member[j] and hangs:
                shrinking = True
                member[j] = False
                size -= 1
                for e in range(node.first, nodes[j + 1].first):
                    nodes[edges[e].target].spare -= abs(edges[e].mass)
                    nodes[edges[e].target].gives -= max(edges[e].mass, 0.0)
