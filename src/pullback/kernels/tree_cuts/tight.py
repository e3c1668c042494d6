"""The sets of words that receive exactly 1, all that a laminar family needs to span them.

Such a set is tight.  Then a flow of 1 to one of its words fills all arcs from outside, and no arc leads it out again:
the tight sets around v are those that the residual graph of a flow to v does not enter.

A set of the family is a problem of its own: its children and the words in none of them are the nodes of a network, and
all that is outside is the root.  So a flow never has to cross the sets that are known.
"""

import numpy as np

from pullback.kernels.tools import inner
from pullback.kernels.tree_cuts.flows import push, restore
from pullback.kernels.tree_cuts.laminar import contains, insert, unite
from pullback.kernels.tree_cuts.networks import clear, connect, list_arc
from pullback.kernels.tree_cuts.subtours import next_word, settle, settle_fed, spread

TIGHT = 1e-9  # at the end, when the masses themselves are known up to round-off


@inner
def complete(n, number, family, room):
    """Add the sets that receive exactly 1 without a multiplier, until the family spans them all; returns its size."""
    words, sets, arcs = family
    nodes, place = room.nodes, room.place
    sets[1].equality |= _from_root(n, words, arcs) <= 1.0 + TIGHT
    k = 1
    while k < number:  # what is found in a set is smaller, and comes later
        count = _number_nodes(n, k, number, words, sets, nodes, place)
        if count > 2:
            away = _leave_out_leaves(n, count, words, arcs, nodes, place)
            if k == 1 and not sets[1].equality:
                away = 0  # not a tight set, but what it has without leaves may be one
            _build(n, count, words, arcs, nodes, room.listed, room.edges, place)
            number = _search(n, k, count, number, sets[k].size - away, family, room)
        k += 1
    return number


@inner
def _search(n, k, count, number, most, family, room):
    """Add sets of nodes of set k that have less than `most` words; returns the new number of sets.

    For one node v after the other, all tight sets around it: the smallest with each other node, which span them.  The
    largest of these is left to its own turn.  What crosses it makes with it a tight set around v and one inside it,
    and says no more than these.  So all its nodes are settled, and count as outside from then on; v alone if there is
    none.  A node that is fed by these alone settles as well: a set around it says no more than the sums of its words.
    Nor does a set around v without a head of v, so that heads are asked first.
    """
    words, sets, _ = family
    nodes, edges, queue, reached = room.nodes, room.edges, room.queue, room.reached
    place, member = room.place, room.member
    searches = 0
    settled, done = settle_fed(count, 1.0 - TIGHT, nodes, queue), 0
    while True:
        while done < settled:
            settled = spread(queue[done], 1.0 - TIGHT, nodes, edges, queue, settled)
            done += 1
        v = next_word(count, True, nodes)
        if v < 0:
            return number
        found = False
        if not _has_more(v, nodes, edges):
            push(count, v, 2.0, nodes, edges, reached)  # all there is
            for u in range(1, count + 1):
                nodes[u].reaches = 0
            for e in range(nodes[v].first, nodes[v + 1].first):
                u = np.int64(edges[e].target)
                if edges[e].mass > 0.0 and not nodes[u].settled and not found:
                    searches += 1
                    found = _is_smaller(u, v, searches, most, nodes, edges, reached)
            nodes[v].reaches = 1
            for u in range(1, count + 1 if found else 1):
                if nodes[u].reaches == 0 and not nodes[u].settled:
                    searches += 1
                    if _is_smaller(u, v, searches, most, nodes, edges, reached):
                        for j in range(1, n + 1):
                            member[j] = place[j] > 0 and nodes[place[j]].seen == searches
                        number = _add(n, number, member, family)
                        _mark_equals(u, searches, nodes, edges, reached)
            restore(count, nodes, edges)
        settled = settle(v, nodes, queue, settled)
        if found:
            around = _child_around(k, v, words, sets, place)
            for j in range(1, n + 1):
                if around > k and place[j] > 0 and not nodes[place[j]].settled and contains(around, j, words, sets):
                    settled = settle(place[j], nodes, queue, settled)


@inner
def _child_around(k, v, words, sets, place):
    """The child of set k that contains node v, or k itself."""
    j = 1
    while place[j] != v:
        j += 1
    child = words[j].home
    while child > k and sets[child].parent != k:
        child = sets[child].parent
    return child


@inner
def _has_more(v, nodes, edges):
    """Whether paths of two arcs show that every set around v and a head of it receives more than 1.

    It receives what leads from outside to v and to the heads in it: more, if each head is fed more than it sends to v.
    """
    for e in range(nodes[v].first, nodes[v + 1].first):
        nodes[edges[e].target].spare = nodes[edges[e].target].fed
    for e in range(nodes[v].first, nodes[v + 1].first):
        head = nodes[edges[e].target]
        if edges[e].mass > 0.0 and not head.settled:
            head.spare -= edges[e].mass
            if head.spare <= TIGHT:
                return False
    return True


@inner
def _number_nodes(n, k, number, words, sets, nodes, place):
    """The nodes of set k: `place` tells where each word is, 0 if outside; returns their number."""
    count = 0
    for other in range(k + 1):
        sets[other].node = 0
    for other in range(k + 1, number):
        if sets[other].parent == k:
            count += 1
            sets[other].node = count
            nodes[count].size = sets[other].size
        else:
            sets[other].node = sets[sets[other].parent].node
    place[0] = 0
    for j in range(1, n + 1):
        if words[j].home == k:
            count += 1
            place[j] = count
            nodes[count].size = 1
        else:
            place[j] = sets[words[j].home].node
    return count


@inner
def _from_root(n, words, arcs):
    """What the set of all words receives."""
    total = 0.0
    for j in range(1, n + 1):
        for c in range(words[j].count):
            total += arcs[j, c].mass if arcs[j, c].head == 0 else 0.0
    return total


@inner
def _leave_out_leaves(n, count, words, arcs, nodes, place):
    """Put nodes that are head of none outside, one after the other; returns how many words they have.

    A tight set with such a node is tight without it, and says nothing that this and the sum of the node do not say.
    """
    away, found = 0, True
    while found:
        found = False
        for u in range(1, count + 1):
            nodes[u].is_head = 0
        for j in range(1, n + 1):
            if place[j] > 0:
                for c in range(words[j].count):
                    if arcs[j, c].mass > 0.0 and place[arcs[j, c].head] != place[j]:
                        nodes[place[arcs[j, c].head]].is_head = 1
        for j in range(1, n + 1):
            if place[j] > 0 and nodes[place[j]].is_head == 0:
                place[j] = 0
                away += 1
                found = True
    return away


@inner
def _build(n, count, words, arcs, nodes, listed, edges, place):
    """The network of the arcs between nodes.  Those of which all words are outside are settled."""
    clear(count, 0.0, nodes)
    for v in range(1, count + 1):
        nodes[v].settled = 1
        nodes[v].seen = 0
    filled = np.int64(0)
    for j in range(1, n + 1):
        v = place[j]
        if v > 0:
            nodes[v].settled = 0
            for c in range(words[j].count):
                u = place[arcs[j, c].head]
                if arcs[j, c].mass > 0.0 and u != v:
                    if u == 0:
                        nodes[v].fed += arcs[j, c].mass
                    else:
                        filled = list_arc(u, v, arcs[j, c].mass, nodes, listed, filled)
    connect(count, filled, nodes, listed, edges)


@inner
def _is_smaller(u, v, search, most, nodes, edges, reached):
    """Whether the smallest tight set that contains u and v, to which the flow goes, has less than `most` words.

    Then its nodes are marked as seen by this search.  `most` is the size of a tight set around both, which no search
    leaves.  So a search ends where one has been that found all of it, or the outside.
    """
    if nodes[u].reaches >= most:
        return False
    nodes[u].seen = nodes[v].seen = search
    found = nodes[u].size + nodes[v].size
    reached[0] = u
    filled, done = 1, 0
    while done < filled:
        node = nodes[reached[done]]
        done += 1
        if node.spare > TIGHT:
            found = most
        if found >= most:
            break
        for e in range(node.first, nodes[reached[done - 1] + 1].first):
            target = nodes[edges[e].target]
            if edges[e].residual > TIGHT and not target.settled:
                if target.reaches >= most:
                    found = most
                    break
                if target.seen != search:
                    target.seen = search
                    found += target.size
                    reached[filled] = edges[e].target
                    filled += 1
    if found >= most:
        nodes[u].reaches = most
        return False
    return True


@inner
def _mark_equals(u, search, nodes, edges, reached):
    """Mark the nodes of the set that this search found from u which reach u: the same set is found from them."""
    nodes[u].reaches = 1
    reached[0] = u
    filled, done = 1, 0
    while done < filled:
        first, last = nodes[reached[done]].first, nodes[reached[done] + 1].first
        done += 1
        for e in range(first, last):
            target = nodes[edges[e].target]
            if edges[edges[e].twin].residual > TIGHT and target.seen == search and target.reaches == 0:
                target.reaches = 1
                reached[filled] = edges[e].target
                filled += 1


@inner
def _add(n, number, member, family):
    """The family with a tight set, made to fit; returns the new number of sets."""
    unite(n, number, member, family.words, family.sets)
    place = insert(n, number, member, family)
    if place > 0:
        family.sets[place].equality = 1
        number += 1
    return number
