"""Hosts of several kinds, for a job that counts them in --constraint: [rack1*2&rack2*4].

Source: sbatch(1) of Slurm 22.05, "Node Count" and "Multiple Counts". The placement policy knows one kind of
hosts; here sets of hosts are found of which enough are of each kind, and the policy is asked on each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from rm.core.jobs.room import capacity
from rm.core.model.asked.demand import Demand
from rm.core.model.host import Host
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.replacing import replace
from rm.core.model.snapshot import Snapshot
from rm.features import matches

SETS_ASKED = 24  # of hosts for which the placement policy is asked
SETS_OF_ORDER = 6  # that begin with another host each, in one order of the hosts
CLOSED = "is not among the hosts of each kind that the job counts in --constraint"
Kinds = tuple[tuple[str, int], ...]
Found = TypeVar("Found")


def of_kinds(
    request: PlacementRequest,
    snapshot: Snapshot,
    ask: Callable[[PlacementRequest], tuple[Found | None, list[Reason]]],
) -> tuple[Found | None, list[Reason]]:
    """What `ask` finds for the request on hosts of which as many are of each kind as `demand.kinds` says."""
    demand = request.demand
    if not demand.kinds:
        return ask(request)
    room = _room(demand, snapshot)
    reasons: list[Reason] = []
    for chosen in islice(_sets(demand, room, snapshot), SETS_ASKED):
        found, against = ask(replace(request, demand=_kept_to(demand, chosen, snapshot)))
        if found is not None:
            return found, []
        reasons = reasons or against
    return None, reasons or [_too_few(demand, room, snapshot)]


def _room(demand: Demand, snapshot: Snapshot) -> dict[str, int]:
    """The most tasks that each host takes now, of those that take one, in inventory order."""
    found = {}
    for name, host in snapshot.hosts.items():
        tasks = min(capacity(host, snapshot.free.get(name), demand.shape), demand.ntasks)
        if tasks > 0:
            found[name] = tasks
    return found


def _sets(demand: Demand, room: dict[str, int], snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    """Sets of hosts that hold the job: those in one zone first, and each time those that are filled before
    the roomiest, which then are left to others."""
    zones: dict[str, list[str]] = {}
    for name in room:
        zones.setdefault(snapshot.hosts[name].zone, []).append(name)
    share = -(-demand.ntasks // max(1, _hosts(demand)))
    seen: set[tuple[str, ...]] = set()
    for names in [*zones.values(), *([list(room)] if len(zones) > 1 else [])]:
        for most in (share, demand.ntasks):
            left = sorted(names, key=lambda name: -min(room[name], most))
            for _ in range(SETS_OF_ORDER):
                chosen = _set(demand, left, room, snapshot)
                if not chosen:
                    break
                if (key := tuple(sorted(chosen))) not in seen:
                    seen.add(key)
                    yield key
                left.remove(chosen[0])


def _set(demand: Demand, names: Sequence[str], room: dict[str, int], snapshot: Snapshot) -> list[str]:
    """The first of the hosts that make such a set; none if there is none."""
    chosen = matched(demand.kinds, [snapshot.hosts[name] for name in names])
    if len(chosen) < sum(count for _, count in demand.kinds):
        return []
    others = [name for name in names if name not in set(chosen)]
    missing = _hosts(demand) - len(chosen)
    chosen, others = chosen + others[: max(missing, 0)], others[max(missing, 0) :]
    tasks = sum(room[name] for name in chosen)
    most = demand.hosts_max or demand.ntasks
    for name in sorted(others, key=room.__getitem__, reverse=True):
        if tasks >= demand.ntasks or len(chosen) >= most:
            break
        chosen.append(name)
        tasks += room[name]
    return chosen if tasks >= demand.ntasks and _hosts(demand) <= len(chosen) <= most else []


def _hosts(demand: Demand) -> int:
    return max(demand.hosts_min, sum(count for _, count in demand.kinds))


def matched(kinds: Kinds, hosts: Sequence[Host]) -> list[str]:
    """Hosts of which each counts for one kind, as many as possible up to the counts, rather the first ones.

    Hosts that suit the same kinds are alike, so this is a flow from the kinds to the groups of such hosts,
    which grows by shortest augmenting paths: no deeper than there are kinds, however many hosts there are.
    """
    groups: dict[int, list[str]] = {}
    suited: dict[frozenset[str], int] = {}  # features -> the kinds that they suit, as bits
    order: list[tuple[str, int]] = []
    for host in hosts:
        features = host.all_features
        if (bits := suited.get(features)) is None:
            bits = suited[features] = sum(matches(text, features) << i for i, (text, _) in enumerate(kinds))
        if bits:
            order.append((host.name, bits))
            groups.setdefault(bits, []).append(host.name)
    free = {bits: len(names) for bits, names in groups.items()}
    given = [dict.fromkeys(groups, 0) for _ in kinds]  # of each group, how many count for the kind
    for kind, (_, count) in enumerate(kinds):
        missing = count
        begun = dict.fromkeys(groups, 0)  # how many hosts of the group were passed
        for _, bits in order:
            if not missing:
                break
            begun[bits] += 1
            if bits >> kind & 1 and free[bits] and begun[bits] > len(groups[bits]) - free[bits]:
                free[bits] -= 1
                given[kind][bits] += 1
                missing -= 1
        while missing and (moved := _augment(kind, missing, free, given)):
            missing -= moved
    taken = {name for bits, names in groups.items() for name in names[: len(names) - free[bits]]}
    return [name for name, _ in order if name in taken]


def _augment(kind: int, most: int, free: dict[int, int], given: list[dict[int, int]]) -> int:
    """Give the kind up to `most` hosts that count for another one, which gets others for them, and so on up
    to hosts that are free; how many it gets."""
    came: dict[int, tuple[int, int]] = {kind: (-1, 0)}  # kind -> (the one that takes from it, of which group)
    queue = [kind]
    for at in queue:
        for bits, left in free.items():
            if not bits >> at & 1:
                continue
            if left:
                return _move(at, bits, most, came, free, given)
            for other, theirs in enumerate(given):
                if other not in came and theirs[bits]:
                    came[other] = at, bits
                    queue.append(other)
    return 0


def _move(
    last: int, end: int, most: int, came: dict[int, tuple[int, int]], free: dict[int, int],
    given: list[dict[int, int]],
) -> int:  # fmt: skip
    """Along the path to the `last` kind, which gets free hosts of the group `end`."""
    path, at = list[tuple[int, int, int]](), last
    while came[at][0] >= 0:
        path.append((came[at][0], at, came[at][1]))
        at = came[at][0]
    count = min(most, free[end], *(given[loser][bits] for _, loser, bits in path))
    free[end] -= count
    given[last][end] += count
    for winner, loser, bits in path:
        given[loser][bits] -= count
        given[winner][bits] += count
    return count


def _kept_to(demand: Demand, chosen: Sequence[str], snapshot: Snapshot) -> Demand:
    """On exactly these hosts: all others are closed to the job."""
    those = set(chosen)
    others = tuple((name, CLOSED) for name in snapshot.hosts if name not in those)
    return demand.kept_from((*demand.shape.closed, *others))._replace(
        kinds=(), hosts_min=len(those), hosts_max=len(those)
    )


def _too_few(demand: Demand, room: dict[str, int], snapshot: Snapshot) -> Reason:
    """Which kinds of hosts are missing, or that they do not come together."""
    hosts = [snapshot.hosts[name] for name in room]
    said, numbers = [], []
    for text, count in demand.kinds:
        there = sum(matches(text, host.all_features) for host in hosts)
        said.append(f"{count} of {text} ({there} have room)")
        numbers += [(f"hosts_of {text}"[:80], count), (f"hosts_with_room_of {text}"[:80], there)]
    return Reason(
        ReasonCode.RESOURCES,
        f"needs {_hosts(demand)} hosts with room for {demand.ntasks} tasks together, {' and '.join(said)}",
        tuple(numbers),
    )
