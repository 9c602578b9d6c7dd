"""Which hosts measure each other in which round: all pairs of a group, each host in one pair at a time.

The circle method of round-robin tournaments: n hosts make n - 1 rounds (n if n is odd) of disjoint
pairs that together are every pair once. A round of a mesh is that round of all its zones side by
side; the pairs between zones come after, as rounds of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

from rm.core.model.host import Host
from rm.core.monitoring.mesh import Mesh

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


def tournament_round(size: int, a: int, b: int) -> int:
    """The round in which the members a and b of `size` meet."""
    seats = size + size % 2
    if seats - 1 in (a, b):  # the fixed seat
        return min(a, b)
    return (a + b) * (seats // 2) % (seats - 1)  # in a round the numbers of a pair sum up to twice its own


def spread(size: int, peers: int) -> Sequence[int]:
    """The rounds of `size` members that give each no more than `peers` partners (0 = all)."""
    total = tournament_rounds(size)
    return range(total) if not peers or size - 1 <= peers else [k * total // peers for k in range(peers)]


class Pairing:
    """The rounds of a mesh over these hosts, of which those in `up` (None = all) take part now. Nothing
    is listed before it is asked for: a thousand hosts of one zone make half a million pairs.

    The pairs inside a zone do not depend on which hosts are up; a zone is represented by the
    first that is.
    """

    def __init__(self, mesh: Mesh, hosts: Iterable[Host], up: Collection[str] | None = None) -> None:
        self._mesh = mesh
        self._up = up
        known = [h for h in hosts if mesh.selects(h)]
        self._alone = known if mesh.is_of_services else []
        self._sides = mesh.sides(known) if mesh.towards else None
        self._zones: dict[str, list[Host]] = {}
        for host in known if self._sides is None and not self._alone else ():
            self._zones.setdefault(host.zone, []).append(host)
        self._spread = {zone: spread(len(of), mesh.peers) for zone, of in self._zones.items()}
        self._inside = max(map(len, self._spread.values()), default=0)
        there = [[h for h in members if self._is_up(h)] for members in self._zones.values()]
        self._first = [members[0] for members in there if members]

    def _is_up(self, host: Host) -> bool:
        return self._up is None or host.name in self._up

    @cached_property
    def _across(self) -> list[list[Pair]]:
        """The rounds of pairs that are not inside a zone; of services, each host with itself."""
        if self._mesh.is_of_services:
            return [[(host, host) for host in self._alone]] if self._alone else []
        if self._sides is not None:
            return _between(*self._sides)
        if self._mesh.between == "representatives":
            return [tournament(self._first, n) for n in spread(len(self._first), self._mesh.peers)]
        rounds: list[list[Pair]] = []
        if self._mesh.between == "all":
            zones = list(self._zones.values())
            for n in range(tournament_rounds(len(zones))):
                rounds += _crossed(tournament(zones, n))
        return rounds

    def __len__(self) -> int:
        return self._inside + len(self._across)

    def round(self, number: int) -> list[Pair]:
        """The pairs of this round; no host is in two of them."""
        if number >= self._inside:
            pairs = self._across[number - self._inside]
        else:
            pairs = [
                pair
                for zone, members in self._zones.items()
                if number < len(self._spread[zone])
                for pair in tournament(members, self._spread[zone][number])
            ]
        without = self._mesh.without
        return [
            (a, b)
            for a, b in pairs
            if self._is_up(a) and self._is_up(b) and frozenset((a.name, b.name)) not in without
        ]

    def rounds_of(self, names: Collection[str], most: int) -> Iterator[list[Pair]]:
        """Round by round the pairs with these hosts; of `most` rounds (0 = all) that have any."""
        found = 0
        for number in range(len(self)) if names else ():
            pairs = [(a, b) for a, b in self.round(number) if a.name in names or b.name in names]
            if pairs:
                yield pairs
                found += 1
                if found == most:
                    return

    def means(self, a: Host, b: Host) -> bool:
        """Are the two measured with each other, as soon as both are up?"""
        if self._mesh.is_of_services:
            return a.name == b.name and self._mesh.selects(a)
        if frozenset((a.name, b.name)) in self._mesh.without:
            return False
        if self._sides is not None:
            one, other = self._side_names
            return (a.name in one and b.name in other) or (b.name in one and a.name in other)
        if not (self._mesh.selects(a) and self._mesh.selects(b)):
            return False
        if a.zone == b.zone:
            where = self._seats[a.zone]
            met = tournament_round(len(where), where[a.name], where[b.name])
            return met in self._spread[a.zone]
        if self._mesh.between == "representatives":
            # by name: of many zones each is represented towards some of the others only
            return frozenset((a.name, b.name)) in self._across_names
        return self._mesh.between == "all"

    @cached_property
    def _side_names(self) -> tuple[set[str], set[str]]:
        assert self._sides is not None
        one, other = self._sides
        return {h.name for h in one}, {h.name for h in other}

    @cached_property
    def _seats(self) -> dict[str, dict[str, int]]:
        return {zone: {h.name: i for i, h in enumerate(of)} for zone, of in self._zones.items()}

    @cached_property
    def _across_names(self) -> set[frozenset[str]]:
        return {frozenset((a.name, b.name)) for pairs in self._across for a, b in pairs}

    def turn(self, first: int, most: int) -> list[int]:
        """The numbers of the rounds of one run that begins with `first`: `most` (0 = all), in a ring."""
        count = len(self) if not most else min(most, len(self))
        return [(first + i) % len(self) for i in range(count)]


def rounds_from(pairs: Iterable[Pair], most: int, width: int) -> list[list[Pair]]:
    """`most` rounds of these pairs or fewer, the first pairs first; no host is in two pairs of a round, and a
    round has no more than `width`. What finds no room is left out."""
    rounds: list[list[Pair]] = []
    taken: list[set[str]] = []
    for a, b in pairs:
        ends = (a.name, b.name)
        free = (n for n, names in enumerate(taken) if len(rounds[n]) < width and names.isdisjoint(ends))
        number = next(free, len(rounds))
        if number == most:
            continue
        if number == len(rounds):
            rounds.append([])
            taken.append(set())
        rounds[number].append((a, b))
        taken[number].update(ends)
    return rounds


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
