"""Who measures with whom in which round: all pairs of a group, each host in one pair at a time.

The circle method of round-robin tournaments: n hosts make n - 1 rounds (n if n is odd) of disjoint
pairs that together are every pair once. A round of a mesh is that round of all its zones side by
side; the pairs between zones come after, as rounds of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rm.core.host import Host
from rm.core.mesh import Mesh

T = TypeVar("T")
Pair = tuple[Host, Host]


def tournament(members: Sequence[T], number: int) -> list[tuple[T, T]]:
    """Round `number` (from 0) of all pairs of the members."""
    size = len(members) + len(members) % 2
    pairs = []
    for i in range(size // 2):
        # one seat is fixed, the others move on by one each round
        a = size - 1 if i == 0 else (number + i) % (size - 1)
        b = (number - i) % (size - 1) if size > 1 else 0
        if max(a, b) < len(members):
            pairs.append((members[min(a, b)], members[max(a, b)]))
    return pairs


def tournament_rounds(size: int) -> int:
    return 0 if size < 2 else size - 1 + size % 2


class Pairing:
    """The rounds of a mesh over these hosts. Nothing is listed before it is asked for: a thousand
    hosts of one zone make half a million pairs."""

    def __init__(self, mesh: Mesh, hosts: Iterable[Host]) -> None:
        zones: dict[str, list[Host]] = {}
        self._without = mesh.without
        self._across: list[list[Pair]] = []
        for host in hosts if not mesh.towards else ():
            if mesh.selects(host):
                zones.setdefault(host.zone, []).append(host)
        self._zones = list(zones.values())
        self._inside = max((tournament_rounds(len(z)) for z in self._zones), default=0)
        if mesh.towards:
            self._across = _between(*mesh.sides(hosts))
        elif mesh.between == "representatives":
            first = [members[0] for members in self._zones]
            self._across = [tournament(first, n) for n in range(tournament_rounds(len(first)))]
        elif mesh.between == "all":
            for n in range(tournament_rounds(len(self._zones))):
                self._across += _crossed(tournament(self._zones, n))

    def __len__(self) -> int:
        return self._inside + len(self._across)

    def round(self, number: int) -> list[Pair]:
        """The pairs of this round; no host is in two of them."""
        if number >= self._inside:
            pairs = self._across[number - self._inside]
        else:
            pairs = [
                pair
                for members in self._zones
                if number < tournament_rounds(len(members))
                for pair in tournament(members, number)
            ]
        if not self._without:
            return list(pairs)
        return [(a, b) for a, b in pairs if frozenset((a.name, b.name)) not in self._without]

    def turn(self, first: int, most: int) -> list[int]:
        """The numbers of the rounds of one run that begins with `first`: `most` (0 = all), in a ring."""
        count = len(self) if not most else min(most, len(self))
        return [(first + i) % len(self) for i in range(count)]


def _between(one: Sequence[Host], other: Sequence[Host]) -> list[list[Pair]]:
    """Each of the one with each of the other, as rounds; a host may be on both sides."""
    names, others = {h.name for h in one}, {h.name for h in other}
    if not names & others:
        return _crossed([(list(one), list(other))])
    everybody = list({h.name: h for h in (*one, *other)}.values())
    rounds = (tournament(everybody, n) for n in range(tournament_rounds(len(everybody))))
    wanted = [
        [
            (a, b)
            for a, b in pairs
            if (a.name in names and b.name in others) or (b.name in names and a.name in others)
        ]
        for pairs in rounds
    ]
    return [pairs for pairs in wanted if pairs]


def _crossed(zones: Iterable[tuple[list[Host], list[Host]]]) -> list[list[Pair]]:
    """Every pair between the two zones of each couple, as rounds."""
    rounds: list[list[Pair]] = []
    for a, b in zones:
        short, long = sorted((a, b), key=len)
        for shift in range(len(long)):
            if shift == len(rounds):
                rounds.append([])
            rounds[shift] += [(h, long[(i + shift) % len(long)]) for i, h in enumerate(short)]
    return rounds
