"""The sets of words that receive exactly 1, all that a laminar family needs to span them.

Such a set is tight.  Then a flow of 1 to one of its words fills all arcs from outside, and no arc leads it out again:
the tight sets around v are those that the residual graph of a flow to v does not enter.

A set of the family is a problem of its own: its children and the words in none of them are the nodes of a network, and
all that is outside is the root.  So a flow never has to cross the sets that are known.
"""

from pullback.kernels.tools import inner
from pullback.kernels.tree_cuts.laminar import insert, unite
from pullback.kernels.tree_cuts.subtours import push, restore, set_edge

TIGHT = 1e-9  # at the end, when the masses themselves are known up to round-off


@inner
def complete(n, number, words, sets, arcs, nodes, edges, place, reached, member):
    """Add the sets that receive exactly 1 without a multiplier; returns the new number of sets.

    Each arc asks for the smallest such set that contains both its ends and crosses none of the family.  After that none
    is left which crosses none of the family, so that the family spans them all (see `laminar`).
    """
    k = 1
    while k < number:  # what is found in a set is smaller, and comes later
        count = _number_nodes(n, k, number, words, sets, nodes, place)
        if k == 1:
            sets[1].equality |= _from_root(n, words, arcs) <= 1.0 + TIGHT
        away = _leave_out_leaves(n, count, words, arcs, nodes, place)
        if k == 1 and not sets[1].equality:
            away = 0  # not a tight set, but what it has without leaves may be one
        _build(n, count, words, arcs, nodes, edges, place)
        searches = 0
        for v in range(1, count + 1 if count > 2 else 1):
            push(count, v, 2.0, nodes, edges, reached)  # all there is
            for u in range(1, count + 1):
                nodes[u].reaches = 0
            for j in range(1, n + 1):
                if place[j] != v:
                    continue
                for c in range(words[j].count):
                    arc = arcs[j, c]
                    u = place[arc.head]
                    if arc.mass > 0.0 and u > 0 and u != v:
                        searches += 1
                        most = sets[arc.set].size - (away if arc.set == k else 0)
                        if _is_smaller(u, v, searches, most, nodes, edges, reached):
                            for i in range(1, n + 1):
                                member[i] = place[i] > 0 and nodes[place[i]].seen == searches
                            number = _add(n, number, member, words, sets, arcs)
            restore(count, nodes, edges)
        k += 1
    return number


@inner
def _number_nodes(n, k, number, words, sets, nodes, place):
    """The nodes of set k: `place` tells where each word is, 0 if outside; returns their number."""
    count = 0
    for other in range(number):
        sets[other].meet = 0
        if other > k:
            if sets[other].parent == k:
                count += 1
                sets[other].meet = count
                nodes[count].size = sets[other].size
            else:
                sets[other].meet = sets[sets[other].parent].meet
    place[0] = 0
    for j in range(1, n + 1):
        if words[j].home == k:
            count += 1
            place[j] = count
            nodes[count].size = 1
        else:
            place[j] = sets[words[j].home].meet
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
            nodes[u].level = 0
        for j in range(1, n + 1):
            if place[j] > 0:
                for c in range(words[j].count):
                    if arcs[j, c].mass > 0.0 and place[arcs[j, c].head] != place[j]:
                        nodes[place[arcs[j, c].head]].level = 1
        for j in range(1, n + 1):
            if place[j] > 0 and nodes[place[j]].level == 0:
                place[j] = 0
                away += 1
                found = True
    return away


@inner
def _build(n, count, words, arcs, nodes, edges, place):
    """The network of the arcs between nodes, the heads of each first."""
    for u in range(count + 2):
        node = nodes[u]
        node.first = 0
        node.level = 0  # for now, how many heads it has
        node.fed = 0.0
        node.settled = 0
        node.low = node.high = 0
        node.seen = 0
    for j in range(1, n + 1):
        v = place[j]
        if v > 0:
            for c in range(words[j].count):
                u = place[arcs[j, c].head]
                if arcs[j, c].mass <= 0.0 or u == v:
                    continue
                if u == 0:
                    nodes[v].fed += arcs[j, c].mass
                else:
                    nodes[u].first += 1
                    nodes[v].first += 1
                    nodes[v].level += 1
    for u in range(1, count + 2):
        nodes[u].current = nodes[u - 1].first
        nodes[u].first += nodes[u - 1].first
    for j in range(1, n + 1):
        v = place[j]
        if v > 0:
            for c in range(words[j].count):
                u = place[arcs[j, c].head]
                if arcs[j, c].mass > 0.0 and u > 0 and u != v:
                    head, modifier = nodes[u], nodes[v]
                    head.first -= 1
                    set_edge(edges[modifier.current], u, head.first, arcs[j, c].mass)
                    set_edge(edges[head.first], v, modifier.current, -arcs[j, c].mass)
                    modifier.current += 1
    for u in range(1, count + 1):
        nodes[u].first -= nodes[u].level


@inner
def _is_smaller(u, v, search, most, nodes, edges, reached):
    """Whether the smallest tight set that contains u and v, to which the flow goes, has less than `most` words.

    Then its nodes are marked as seen by this search.  `most` is the size of a tight set around both, which no search
    leaves.  So a search ends where one has been that found all of it, or the root.
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
            if edges[e].residual > TIGHT:
                target = nodes[edges[e].target]
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
def _add(n, number, member, words, sets, arcs):
    """The family with a tight set, made to fit; returns the new number of sets."""
    unite(n, number, member, words, sets)
    place = insert(n, number, member, words, sets, arcs)
    if place > 0:
        sets[place].equality = 1
        number += 1
    return number
