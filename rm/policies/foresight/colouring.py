"""Edge colouring of bipartite multigraphs with as many colours as the greatest degree.

FORESIGHT Sec. III, "Assigning Flow Paths": leaves as senders on the left, as receivers on the
right, flows as edges, colours as spines. Koenig's theorem: a bipartite multigraph of maximum
degree D has a proper colouring with D colours. The proof is the algorithm: where no colour is
free at both ends, one free at the left end is freed at the right end by exchanging two colours
along the alternating path that begins there; being bipartite, the path never reaches the left end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence


def max_degree(edges: Sequence[tuple[Hashable, Hashable]]) -> int:
    """The most edges that meet in one node of either side."""
    left = Counter(a for a, _ in edges)
    right = Counter(b for _, b in edges)
    return max((*left.values(), *right.values()), default=0)


def edge_colouring(edges: Sequence[tuple[Hashable, Hashable]]) -> list[int]:
    """A colour in 0 .. max_degree - 1 for each edge (left node, right node), parallel edges allowed.

    No two edges that share a node have the same colour. O(edges * nodes) at worst; an edge's
    colour is close to those of the parallel edges before it.
    """
    book = Colouring(max_degree(edges))
    for number, (a, b) in enumerate(edges):
        book.insert(number, a, b)
    return [book.colour[number] for number in range(len(edges))]


class Colouring:
    """Edges with colours in 0 .. colours - 1, inserted one by one.

    `insert` succeeds as long as no node has more than `colours` edges.
    """

    def __init__(self, colours: int) -> None:
        self.colours = colours
        self.colour: dict[int, int] = {}
        self._ends: dict[int, tuple[Hashable, Hashable]] = {}
        self._at: tuple[dict[Hashable, dict[int, int]], dict[Hashable, dict[int, int]]] = ({}, {})
        self._free: tuple[dict[Hashable, int], dict[Hashable, int]] = ({}, {})
        self._all = (1 << colours) - 1

    def free(self, a: Hashable, b: Hashable) -> int:
        """Bit mask of the colours that are free at the left node `a` and the right node `b`."""
        return self._free[0].get(a, self._all) & self._free[1].get(b, self._all)

    def insert(self, edge: int, a: Hashable, b: Hashable, preferred: int = -1) -> None:
        """Colour a new edge, with one of the `preferred` (bit mask) if one of them is free at both ends."""
        both = self.free(a, b)
        chosen = _lowest(both & preferred if both & preferred else both)
        if chosen is None:
            chosen = _lowest(self._free[0].get(a, self._all))
            other = _lowest(self._free[1].get(b, self._all))
            assert chosen is not None, f"node {a} has more than {self.colours} edges"
            assert other is not None, f"node {b} has more than {self.colours} edges"
            self._exchange(b, chosen, other)
        self._ends[edge] = a, b
        self._give(edge, chosen)

    def _exchange(self, right: Hashable, taken: int, free: int) -> None:
        """Make `taken` free at a right node by exchanging it with `free` along its path."""
        path = []
        side, node, colour = 1, right, taken
        while (edge := self._at[side].get(node, {}).get(colour)) is not None:
            path.append(edge)
            side = 1 - side
            node, colour = self._ends[edge][side], taken + free - colour
        for edge in path:
            self._take(edge)
        for number, edge in enumerate(path):
            self._give(edge, taken if number % 2 else free)

    def _give(self, edge: int, colour: int) -> None:
        self.colour[edge] = colour
        for side, node in enumerate(self._ends[edge]):
            self._at[side].setdefault(node, {})[colour] = edge
            self._free[side][node] = self._free[side].get(node, self._all) & ~(1 << colour)

    def _take(self, edge: int) -> None:
        colour = self.colour.pop(edge)
        for side, node in enumerate(self._ends[edge]):
            del self._at[side][node][colour]
            self._free[side][node] |= 1 << colour


def _lowest(mask: int) -> int | None:
    return (mask & -mask).bit_length() - 1 if mask else None
