"""The graphs of segmentations and alignments, in the form that `graph` describes."""

from functools import lru_cache

import numpy as np


@lru_cache(64)
def segmentations(n, w, t):
    """Node i stands before position i; the part (i, k, label) leads from i to i + k + 1.

    A segmentation of the first `length` positions is a path to the node of that number.
    """
    tail, width, label = np.indices((n, w, t)).reshape(3, -1)
    part = (tail * w + width) * t + label
    inside = tail + width < n
    return _graph(tail[inside], (tail + width + 1)[inside], part[inside])


@lru_cache(64)
def joined_segmentations(n, w, t):
    """Segmentations whose transitions are parts, too, behind the segments: (i, a, b) where b follows a at position i.

    Before position i > 0 stand 2 t + 1 nodes: one for each label that ends there, one where a sequence of i positions
    ends, one for each label that begins there; `joined_end` gives the number of the second.
    """
    ends, begins = joined_end(np.arange(n + 1), t) - t, joined_end(np.arange(n + 1), t) + 1
    i, k, b = np.indices((n, w, t)).reshape(3, -1)
    inside = i + k < n
    i, k, b = i[inside], k[inside], b[inside]
    edges = [(np.where(i > 0, begins[i] + b, 0), ends[i + k + 1] + b, (i * w + k) * t + b)]
    i, a = np.indices((n + 1, t))[:, 1:].reshape(2, -1)
    edges.append((ends[i] + a, ends[i] + t, np.full(len(i), -1)))
    i, a, b = np.indices((n, t, t))[:, 1:].reshape(3, -1)
    edges.append((ends[i] + a, begins[i] + b, n * w * t + (i * t + a) * t + b))
    return _graph(*map(np.concatenate, zip(*edges)))


def joined_end(i, t):
    """The node at which sequences of i positions end in `joined_segmentations`."""
    return np.where(i > 0, i * (2 * t + 1) - t, 0)


MATCH, DOWN, RIGHT = 0, 1, 2
GLOBAL, LOCAL, MONOTONIC = 0, 1, 2


@lru_cache(64)
def alignments(n, m, kind, cells, by_columns=False):
    """Cell (i, j) is node i · m + j + 1, which a path enters by a move; node 0 stands before the first cell.

    By columns, cell (i, j) is node j · n + i + 1: the fewer rows there are, the less far edges reach.
    The parts are the cells, or (i, j, move).  A path begins with a match in the first cell, a local one in any.  It
    ends in the last cell, a local one in any: from there an edge without a part leads to one more node.
    """
    i, j = np.indices((n, m)).reshape(2, -1)
    down, right = (1, n) if by_columns else (m, 1)
    node = i * down + j * right + 1
    edges = [(0 * node, node, MATCH, (kind == LOCAL) | (node == 1))]  # tail, head, move, which of them exist
    edges.append((node - down - right, node, MATCH, (i > 0) & (j > 0)))
    edges.append((node - down, node, DOWN, (i > 0) & (kind != MONOTONIC)))
    edges.append((node - right, node, RIGHT, j > 0))
    tail = np.concatenate([tails[exists] for tails, _, _, exists in edges])
    head = np.concatenate([heads[exists] for _, heads, _, exists in edges])
    cell = i * m + j
    part = np.concatenate([cell[exists] * (1 if cells else 3) + (0 if cells else move) for *_, move, exists in edges])
    if kind == LOCAL:
        tail, head = np.append(tail, node), np.append(head, np.full(n * m, n * m + 1))
        part = np.append(part, np.full(n * m, -1))
    return _graph(tail, head, part)


def _graph(tail, head, part):
    """The graph with these edges: (1, 3, edges + 2)."""
    order = np.lexsort((head, tail))
    edges, last = len(order), int(head.max())
    graph = np.full((1, 3, edges + 2), -1)
    graph[0, 0] = np.searchsorted(tail[order], np.arange(edges + 2))
    graph[0, 1, :edges], graph[0, 2, :edges] = head[order], part[order]
    graph[0, 1, -1] = last
    return graph
