"""Which fault begins when, against what, and for how long: all of it from one seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FIRST_S = 3.0  # of load before the first fault
GAP_S = 4.0  # between the beginnings of two faults, on average
REST_S = 2.0  # of a target between two faults of its own
WAYS = ("both", "in", "out")


@dataclass(frozen=True, slots=True)
class Kind:
    """`lengths` are those of the fault, seconds: (least, most); `long`: now and then so long, which is more
    than a host may be silent. `ways`: it is drawn in which direction."""

    name: str
    weight: float
    lengths: tuple[float, float] = (0.0, 0.0)
    long: tuple[float, float] | None = None
    ways: bool = False

    @property
    def target(self) -> str:
        return self.name.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class Fault:
    """`at_s` and `length_s` count from the beginning of the run."""

    at_s: float
    kind: str
    target: str
    length_s: float
    way: str = ""

    @property
    def ends_s(self) -> float:
        return self.at_s + self.length_s

    def __str__(self) -> str:
        way = {"": "", "both": "", "in": ", inwards", "out": ", outwards"}[self.way]
        length = f" for {self.length_s:.1f} s" if self.length_s else ""
        return f"{self.at_s:7.1f} s  {self.target}: {self.kind}{way}{length}"


KINDS = (
    Kind("daemon killed", 6),
    Kind("daemon killed as it starts", 3, (2.2, 4.5)),
    Kind("daemon told to end", 1),
    Kind("daemon stopped", 4, (1, 12)),
    Kind("daemon cut from the hosts", 3, (2, 15), ways=True),
    Kind("daemon cut from the database", 3, (2, 15), ways=True),
    Kind("daemon with its clock moved", 2, (4, 15)),
    Kind("daemon with a full disk", 2, (3, 10)),
    Kind("daemon with a read-only disk", 1, (3, 10)),
    Kind("host crashed", 4, (2, 8), (24, 30)),
    Kind("host frozen", 3, (1, 12), (24, 32)),
    Kind("host cut", 3, (1, 12), (24, 35), ways=True),
    Kind("host with sshd killed", 2, (0.5, 8)),
    Kind("host with sshd stopped", 2, (2, 12)),
    Kind("host with its agent killed", 3),
    Kind("host with its agent stopped", 3, (3, 20)),
    Kind("host with a supervisor killed", 3),
    Kind("host with a supervisor stopped", 2, (2, 10)),
    Kind("host with a full disk", 2, (3, 10)),
    Kind("host with a read-only spool", 1, (3, 10)),
    Kind("database restarted", 2),
    Kind("database crashed", 3, (0.5, 8)),
    Kind("database paused", 2, (3, 12), (30, 30)),
    Kind("database with its sessions ended", 3),
    Kind("database locked by another process", 3, (2, 9)),
)
ONLY_POSTGRESQL = {
    "daemon cut from the database", "database restarted", "database crashed", "database paused",
    "database with its sessions ended",
}  # fmt: skip
ONLY_SQLITE = {"database locked by another process"}
LONG_SHARE = 0.15


def kinds(database: str) -> list[Kind]:
    left_out = ONLY_SQLITE if database == "postgresql" else ONLY_POSTGRESQL
    return [kind for kind in KINDS if kind.name not in left_out]


def faults(
    seed: int, seconds: float, database: str, hosts: Sequence[str], daemons: Sequence[str]
) -> list[Fault]:
    """In the order of their beginnings; none ends later than `seconds`. Of the hosts at most half suffer at
    a time, of the daemons one, and nothing suffers two faults at a time."""
    return list(_faults(random.Random(seed), seconds, kinds(database), hosts, daemons))


def _faults(
    draw: random.Random, seconds: float, some: Sequence[Kind], hosts: Sequence[str], daemons: Sequence[str]
) -> Iterator[Fault]:
    targets = {"daemon": daemons, "host": hosts, "database": ("database",)}
    limits = {"daemon": 1, "host": max(1, len(hosts) // 2), "database": 1}
    busy: dict[str, float] = {}  # target → until when
    at_s = FIRST_S
    while at_s < seconds:
        kind = draw.choices(some, [kind.weight for kind in some])[0]
        length_s = round(draw.uniform(*kind.lengths), 1)
        if kind.long and draw.random() < LONG_SHARE:
            length_s = round(draw.uniform(*kind.long), 1)
        target = draw.choice(targets[kind.target])
        way = draw.choice(WAYS) if kind.ways else ""
        suffering = sum(busy.get(name, 0.0) > at_s for name in targets[kind.target])
        free = busy.get(target, 0.0) <= at_s and suffering < limits[kind.target]
        if free and at_s + length_s < seconds:
            busy[target] = at_s + length_s + REST_S
            yield Fault(round(at_s, 1), kind.name, target, length_s, way)
        at_s += draw.expovariate(1 / GAP_S) if free else 0.1
