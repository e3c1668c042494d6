"""The best dependency trees: maximum spanning arborescences in O(n²) by contraction.

From any word, follow best incoming arcs backwards.  Reaching the finished part ends the path; coming back to the path
closes a cycle, which is contracted into one node, and the walk goes on from there.  At the end contracted nodes are
opened from the last to the first: the arc that enters a node replaces one arc of its cycle.

Rows hold the arcs *into* a node, `enter[modifier, head]`, so every step is a pass over a row.  Heads stay words; a
contraction merges rows, max over the cycle of (row − chosen value).  At most 2n rows are scanned and n merged.

Exactly one root arc: compare (number of root arcs, score) lexicographically.  No cycle goes through the root, so the
first component is 1 for the root's arc and 0 for any other, whatever was contracted: a node takes the root's arc only
if it has no other.  There is no penalty, hence no lost digits.

References: Tarjan (1977), Gabow et al. (1986); for the k best, Lawler (1972).
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.tools import fmax, inner, kernel

# What the contraction of one instance needs.  A *slot* is the word whose row stands for a contracted node; nodes are
# numbered words first, then contractions in the order they were made.
_Workspace = namedtuple(
    "_Workspace",
    [
        "enter",  # [slot, head]: value of the best arc from the word `head` into the node
        "into",  # [slot, head]: the word that arc enters
        "slot",  # [word]: the slot of the node it belongs to
        "node",  # [slot]: the node standing there
        "value",  # [slot]: value of the arc chosen to enter it
        "state",  # [slot]: new, on the path, or finished
        "path",
        "chosen",  # [node]: the (head, modifier) that enters it
        "parent",  # [node]: the node it was contracted into
        "opened",  # [node]
    ],
)
_NEW, _ON_PATH, _FINISHED = 0, 1, 2


@inner
def workspace(size):
    return _Workspace(
        np.empty((size, size)),
        np.empty((size, size), np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty((2 * size, 2), np.int64),
        np.empty(2 * size, np.int64),
        np.empty(2 * size, np.bool_),
    )


@inner
def transpose(scores, n, enter):
    """Writes enter[modifier, head] for the arcs among n words and the root; False if a score is NaN or +∞."""
    valid = True
    for head in range(n + 1):
        row = scores[head]
        for modifier in range(1, n + 1):
            if modifier != head:
                x = np.float64(row[modifier])
                enter[modifier, head] = x
                valid &= x < np.inf
        enter[head, head] = -np.inf
    return valid


@inner
def _best_head(enter, slot, n, single_root):
    """The head of the best arc into a slot and its value; the root's arc only without another if `single_root`."""
    best = -np.inf
    for head in range(1, n + 1):
        best = fmax(enter[slot, head], best)
    if best == -np.inf or (enter[slot, 0] >= best and not single_root):
        return 0, enter[slot, 0]
    head = 1
    while enter[slot, head] != best:
        head += 1
    return head, best


@inner
def _merge(row, names, other, other_names, value):
    """Lets `row` take the arcs of `other` that are better once `value` is paid back."""
    for head in range(row.shape[0]):
        x = other[head] - value
        better = x > row[head]
        row[head] = x if better else row[head]
        names[head] = other_names[head] if better else names[head]


@inner
def _contract(enter, into, slot, node, value, path, parent, n, length, target, count):
    """Makes node `count` of the cycle path[…:length] that starts at `target`, in the slot of `target`.

    Returns the length of the path that is left, which ends in the new node.
    """
    row, names = enter[target, : n + 1], into[target, : n + 1]
    for head in range(n + 1):
        row[head] -= value[target]
    if node[target] <= n:
        for head in range(n + 1):
            names[head] = target
    parent[node[target]] = count
    while path[length - 1] != target:
        length -= 1
        member = path[length]
        other, other_names = enter[member, : n + 1], into[member, : n + 1]
        if node[member] <= n:
            for head in range(n + 1):
                other_names[head] = member
        _merge(row, names, other, other_names, value[member])
        parent[node[member]] = count
        for word in range(1, n + 1):
            if slot[word] == member:
                slot[word] = target
    for word in range(1, n + 1):
        if slot[word] == target:
            row[word] = -np.inf
    node[target] = count
    return length


@inner
def _open(chosen, parent, opened, count, heads):
    """Reads the tree off the contraction: whoever enters a node decides for all the nodes down to the word entered."""
    for node in range(count):
        opened[node] = False
    for node in range(count - 1, 0, -1):
        if not opened[node]:
            modifier = chosen[node, 1]
            heads[modifier] = chosen[node, 0]
            inside = modifier
            while inside != node:
                opened[inside] = True
                inside = parent[inside]


@inner
def _root_arcs(heads, n):
    count = 0
    for word in range(1, n + 1):
        count += heads[word] == 0
    return count


@inner
def arborescence(work, n, single_root, heads):
    """Writes the best tree for the arcs in `work.enter`, which it uses up; False if there is none."""
    enter, into, slot, node, value, state, path, chosen, parent, opened = work  # functions get arrays: compiles faster
    for word in range(n + 1):
        slot[word] = node[word] = word
        state[word] = _NEW
    state[0] = _FINISHED
    count = n + 1
    for start in range(1, n + 1):
        if slot[start] != start or state[start] != _NEW:
            continue
        path[0], length = start, np.int64(1)  # not a literal, for which `_contract` would be compiled again
        state[start] = _ON_PATH
        while True:
            last = path[length - 1]
            head, best = _best_head(enter, last, n, single_root)
            if best == -np.inf:
                return False
            value[last] = best
            chosen[node[last], 0] = head
            chosen[node[last], 1] = into[last, head] if node[last] > n else last
            target = slot[head]
            if state[target] == _FINISHED:
                break
            if state[target] == _NEW:
                state[target] = _ON_PATH
                path[length] = target
                length += 1
            else:
                length = _contract(enter, into, slot, node, value, path, parent, n, length, target, count)
                count += 1
        for i in range(length):
            state[path[i]] = _FINISHED
    _open(chosen, parent, opened, count, heads)
    return not single_root or _root_arcs(heads, n) == 1


@kernel
def argmax(scores, lengths, single_root, heads, lo, hi):
    """The best tree of each instance, as the head of every word.  O(n²) each.

    scores (batch, N, N) by [head, modifier], node 0 the root; column 0 and the diagonal are never read.
    lengths (batch,): the number of words, at most N − 1.  heads (batch, N), int64: heads[m] for m = 1…n, else 0.
    Returns the first instance without a tree or with a score of NaN or +∞, or -1.
    """
    work = workspace(scores.shape[1])
    for b in range(lo, hi):
        n = lengths[b]
        for word in range(heads.shape[1]):
            heads[b, word] = 0
        if not transpose(scores[b], n, work.enter):
            return b
        if n > 0 and not arborescence(work, n, single_root, heads[b]):
            return b
    return -1


@inner
def _score(enter, n, heads):
    total = 0.0
    for modifier in range(1, n + 1):
        total += enter[modifier, heads[modifier]]
    return total


@inner
def _branch(work, columns, n, single_root, heads, first, banned, tree):
    """The best tree that agrees with `heads` on the words before `first` and gives `first` no banned head.

    Returns its score, −∞ if there is none.
    """
    for modifier in range(1, n + 1):
        row, source = work.enter[modifier, : n + 1], columns[modifier, : n + 1]
        if modifier < first:
            row[:] = -np.inf
            row[heads[modifier]] = source[heads[modifier]]
        else:
            row[:] = source
    for head in range(n + 1):
        if banned[head]:
            work.enter[first, head] = -np.inf
    if not arborescence(work, n, single_root, tree):
        return -np.inf
    return _score(columns, n, tree)


@inner
def _insert(values, heads, count, value, tree):
    """Puts a tree where it belongs in the list of the `count` best so far, which is in decreasing order."""
    i = count
    while i > 0 and values[i - 1] < value:
        values[i] = values[i - 1]
        heads[i] = heads[i - 1]
        i -= 1
    values[i] = value
    heads[i] = tree


@inner
def _k_best(work, columns, n, single_root, k, pool, heads, values):
    """Writes the k best trees of one instance and returns how many there are.

    The trees not yet listed are kept as disjoint sets, each standing for its best tree: those that agree with that tree
    before the word `first` and avoid the heads `banned` there.  To list a tree is to split its set by the first
    word where the others differ from it; the k − count best sets are enough to remember.
    """
    pool_value, pool_tree, pool_first, pool_banned = pool
    tree, parent, banned = np.zeros_like(pool_tree[0]), np.zeros_like(pool_tree[0]), np.zeros_like(pool_banned[0])
    pool_tree[0], pool_first[0], pool_banned[0] = 0, 1, False
    pool_value[0] = _branch(work, columns, n, single_root, parent, 1, banned, pool_tree[0])
    size = 1 if pool_value[0] > -np.inf else 0
    count = 0
    while size > 0:
        best = np.argmax(pool_value[:size])
        first, parent[:], banned[:] = pool_first[best], pool_tree[best], pool_banned[best]
        _insert(values, heads, count, pool_value[best], parent)
        count += 1
        if count == k:
            break
        size -= 1
        pool_value[best], pool_first[best] = pool_value[size], pool_first[size]
        pool_tree[best], pool_banned[best] = pool_tree[size], pool_banned[size]
        for word in range(first, n + 1):
            banned[parent[word]] = True
            value = _branch(work, columns, n, single_root, parent, word, banned, tree)
            place = size if size < k - count else np.argmin(pool_value[:size])
            if value > -np.inf and (place == size or value > pool_value[place]):
                pool_value[place], pool_first[place] = value, word
                pool_tree[place], pool_banned[place] = tree, banned
                size = max(size, place + 1)
            banned[:] = False
    return count


@kernel
def topk(scores, lengths, single_root, k, heads, values, counts, lo, hi):
    """The k best trees of each instance, all different, with their scores in decreasing order.  O(k n³) each.

    heads (batch, k, N), int64; values (batch, k); counts (batch,): how many trees were found, fewer than k only if
    there are no more.  Beyond them heads are 0 and values −∞.  Otherwise as `argmax`.
    """
    size = scores.shape[1]
    work = workspace(size)
    columns = np.empty((size, size))
    best_values = np.empty(k)
    pool = (
        np.empty(k),
        np.empty((k, size), np.int64),
        np.empty(k, np.int64),
        np.empty((k, size), np.bool_),
    )
    for b in range(lo, hi):
        n = lengths[b]
        heads[b] = 0
        best_values[:] = -np.inf
        if not transpose(scores[b], n, columns):
            return b
        if n == 0:
            counts[b], best_values[0] = 1, 0.0
        else:
            counts[b] = _k_best(work, columns, n, single_root, k, pool, heads[b], best_values)
            if counts[b] == 0:
                return b
        for i in range(k):
            values[b, i] = best_values[i]
    return -1
