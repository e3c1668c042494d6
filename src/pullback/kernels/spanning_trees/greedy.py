"""The best spanning tree, or forest of a given number of trees: greedy choices in the order of Prim.

Spanning forests with n − k edges are the bases of a matroid, so the greedy algorithm finds the best: it takes the n − k
largest edges of a maximum spanning tree.  Prim's algorithm finds that tree in O(n²), without sorting all edges.
"""

import numpy as np

from pullback.kernels.tools import inner, kernel


@inner
def load(scores, n, score):
    """Copies the scores above the diagonal to both halves, −∞ on the diagonal; False if one is NaN or +∞."""
    valid = True
    for i in range(n):
        score[i, i] = -np.inf
        for j in range(i + 1, n):
            x = np.float64(scores[i, j])
            valid &= x < np.inf
            score[i, j] = score[j, i] = x
    return valid


@inner
def spanning_forest(score, n, left, parent, value):
    """Writes a maximum spanning forest and returns its number of edges, n less the number of components.

    parent[v] is a neighbor of v and value[v] the score of that edge; where a component begins they are v and −∞.
    """
    for v in range(n):
        left[v] = parent[v] = v
        value[v] = -np.inf
    edges = 0
    node = n - 1
    for count in range(n - 1, 0, -1):  # left[:count] are the nodes that no tree has reached
        row = score[node]
        place = 0
        for c in range(count):
            v = left[c]
            if row[v] > value[v]:
                value[v], parent[v] = row[v], node
            if value[v] > value[left[place]]:
                place = c
        node = left[place]
        left[place] = left[count - 1]
        edges += value[node] > -np.inf
    return edges


@inner
def keep_best(n, edges, left, parent, value):
    """Lists in `left` the nodes whose edges to their parents are the largest, as many as `edges`."""
    count = 0
    for v in range(n):
        if parent[v] != v:
            place = count
            while place > 0 and value[left[place - 1]] < value[v]:
                if place < edges:
                    left[place] = left[place - 1]
                place -= 1
            if place < edges:
                left[place] = v
                count = min(count + 1, edges)
    return count


@kernel
def argmax(scores, lengths, components, vertex, lo, hi):
    """The best spanning forest of each instance with the given number of components, 1 for trees.  O(n²) each.

    scores (batch, N, N): only those above the diagonal are read, −∞ where there is no edge.  lengths (batch,): the
    number of nodes, at most N.  vertex (batch, N, N): 1 in both halves where an edge is chosen, else 0.
    Returns the first instance without such a forest or with a score of NaN or +∞, or −1.
    """
    size = scores.shape[1]
    score, value = np.empty((size, size)), np.empty(size)
    left, parent = np.empty(size, np.int64), np.empty(size, np.int64)
    for b in range(lo, hi):
        n = lengths[b]
        vertex[b] = 0.0
        edges = max(n, 1) - components
        if not load(scores[b], n, score) or not 0 <= edges <= spanning_forest(score, n, left, parent, value):
            return b
        for place in range(keep_best(n, edges, left, parent, value)):
            v = left[place]
            vertex[b, v, parent[v]] = vertex[b, parent[v], v] = 1.0
    return -1
