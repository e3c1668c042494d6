"""Where the nodes of a directed acyclic graph stand: in columns, edges going from left to right.

Nodes stand in even columns.  An edge goes through a place of its own in every column between those of its ends, so at
least through one: edges do not run through nodes, and two edges between the same nodes are apart.
"""

import itertools

Edge = tuple[int, int, int]  # its number, tail and head
Place = tuple[str, int, int]  # of a node, or of an edge: its number, and the column


class Layout:
    """The places of nodes and edges, in columns.  Reference: Sugiyama, Tagawa and Toda (1981)."""

    def __init__(self, edges: list[Edge], nodes: set[int]) -> None:
        self.columns_of = _columns_of(edges, nodes)
        self._columns: list[list[Place]] = [[] for _ in range(max(self.columns_of.values()) + 1)]
        self._neighbors: dict[Place, list[Place]] = {}
        for node in sorted(nodes):
            place = self.node(node)
            self._columns[place[2]].append(place)
            self._neighbors[place] = []
        for edge in edges:
            way = self.way(edge)
            for place in way[1:-1]:
                self._columns[place[2]].append(place)
            for one, other in itertools.pairwise(way):
                self._neighbors.setdefault(one, []).append(other)
                self._neighbors.setdefault(other, []).append(one)
        self._order()
        self.heights = self._level()

    def node(self, node: int) -> Place:
        """The place of a node."""
        return "node", node, self.columns_of[node]

    def way(self, edge: Edge) -> list[Place]:
        """The places an edge goes through."""
        number, tail, head = edge
        between = [("edge", number, column) for column in range(self.columns_of[tail] + 1, self.columns_of[head])]
        return [self.node(tail), *between, self.node(head)]

    def _order(self) -> None:
        """Sorts each column by the middle of the neighbors, which leaves few crossings."""
        rank = {place: i - (len(column) - 1) / 2 for column in self._columns for i, place in enumerate(column)}
        for sweep in range(8):
            for column in self._columns if sweep % 2 == 0 else reversed(self._columns):
                column.sort(key=lambda place: self._mean(rank, place))
                rank.update({place: i - (len(column) - 1) / 2 for i, place in enumerate(column)})

    def _level(self) -> dict[Place, float]:
        """How far down each place is: level with its neighbors if its column has room, and at least 1 from the next."""
        found = {place: i - (len(column) - 1) / 2 for column in self._columns for i, place in enumerate(column)}
        for sweep in range(20):
            for column in self._columns if sweep % 2 == 0 else reversed(self._columns):
                downwards = [self._mean(found, place) for place in column]
                upwards = list(downwards)
                for i in range(1, len(column)):
                    downwards[i] = max(downwards[i], downwards[i - 1] + 1)
                    upwards[-1 - i] = min(upwards[-1 - i], upwards[-i] - 1)
                found.update({place: (a + b) / 2 for place, a, b in zip(column, downwards, upwards)})
        return found

    def _mean(self, numbers: dict[Place, float], place: Place) -> float:
        """The mean over the neighbors of a place."""
        near = [numbers[other] for other in self._neighbors[place]] or [numbers[place]]
        return sum(near) / len(near)


def _columns_of(edges: list[Edge], nodes: set[int]) -> dict[int, int]:
    """The column of each node: two for each edge of the longest path to it."""
    found = dict.fromkeys(nodes, 0)
    for _ in nodes:  # a path has fewer edges than there are nodes
        for _, tail, head in edges:
            found[head] = max(found[head], found[tail] + 2)
    return found
