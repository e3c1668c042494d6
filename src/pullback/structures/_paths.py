"""What structures share whose vertices are paths through a graph."""

import torch
from torch import Tensor

from pullback.structures._limits import check_list


def list_paths(name: str, graph: Tensor, sink: int, parts: int) -> Tensor:
    """Every path from node 0 to `sink`, as zeros and ones: (paths, parts).  The rows of `graph`: see its kernels."""
    first, head, part = graph.tolist()
    counts = [0] * sink + [1]
    for u in reversed(range(sink)):
        counts[u] = sum(counts[head[e]] for e in range(first[u], first[u + 1]) if head[e] <= sink)
    check_list(name, counts[0], parts)
    reached = {0}
    for u in range(sink):
        if u in reached:
            reached.update(head[first[u] : first[u + 1]])
    every = {sink: graph.new_zeros((1, parts), dtype=torch.bool)}
    for u in reversed(range(sink)):
        if u in reached and counts[u] > 0:
            every[u] = graph.new_zeros((counts[u], parts), dtype=torch.bool)
            row = 0
            for e in range(first[u], first[u + 1]):
                if head[e] <= sink and counts[head[e]] > 0:
                    longer = every[u][row : row + counts[head[e]]]
                    longer[:] = every[head[e]]
                    longer[:, part[e] : part[e] + 1 if part[e] >= 0 else part[e]] = True
                    row += len(longer)
    return every.get(0, graph.new_zeros((0, parts), dtype=torch.bool))
