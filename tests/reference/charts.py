"""The vertices of a chart, one after the other."""

import itertools

import numpy as np


def enumerate_vertices(chart, parts):
    """Every choice of hyperedges from the goal down, as zeros and ones over the parts: (m, parts)."""
    first, left, right = (array.astype(int) for array in (chart.first, chart.left, chart.right))
    below = [[()]]  # for each item, the lists of parts that it may consist of
    for item in range(1, len(chart.part)):
        own = (int(chart.part[item]),) if chart.part[item] >= 0 else ()
        below.append(
            [
                own + one + other
                for edge in range(first[item], first[item + 1])
                for one, other in itertools.product(below[left[edge]], below[right[edge]])
            ]
        )
    vertices = np.zeros((len(below[-1]), parts))
    for vertex, chosen in zip(vertices, below[-1]):
        np.add.at(vertex, list(chosen), 1.0)
    return vertices


def best_through(chart, scores):
    """For each hyperedge the largest score of a vertex that it is in, by listing every vertex with its hyperedges."""
    first, left, right = (array.astype(int) for array in (chart.first, chart.left, chart.right))
    below = [[(0.0, ())]]
    for item in range(1, len(chart.part)):
        own = scores[chart.part[item]] if chart.part[item] >= 0 else 0.0
        below.append(
            [
                (own + one + other, (edge, *some, *more))
                for edge in range(first[item], first[item + 1])
                for (one, some), (other, more) in itertools.product(below[left[edge]], below[right[edge]])
            ]
        )
    best = np.full(len(left), -np.inf)
    for value, edges in below[-1]:
        best[list(edges)] = np.maximum(best[list(edges)], value)
    return best
