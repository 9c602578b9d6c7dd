"""Hosts of few racks, for a job that asks for that with --switches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, combinations, islice
from typing import TypeVar

from rm.core.jobs.room import capacity
from rm.core.model.asked.demand import Demand
from rm.core.model.host import Host
from rm.core.model.network.fabric import leaf_of
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.replacing import replace
from rm.core.model.snapshot import Snapshot

SETS_LOOKED_AT = 4_000  # sets of racks of one size, the roomiest first
RACKS_ADDED = 100_000  # racks in all sets that are looked at
SETS_ASKED = 64  # of these for which the placement policy is asked: a job that none suits waits its time out
Found = TypeVar("Found")
Rack = tuple[bool, str]  # the leaf, or the name of a host on no known leaf


def below_few(
    request: PlacementRequest,
    snapshot: Snapshot,
    ask: Callable[[PlacementRequest], tuple[Found | None, list[Reason]]],
) -> tuple[Found | None, list[Reason]]:
    """What `ask` finds for the request in as few racks as possible, at most `demand.switches`; where it finds
    something in more only, that as the reason. Without racks in the inventory the wish says nothing."""
    demand = request.demand._replace(switches=0)
    anywhere = replace(request, demand=demand)
    racks = racks_of(snapshot)
    on_one_host = demand.ntasks == 1 or demand.hosts_max == 1
    if on_one_host or not any(known for known, _ in racks) or len(racks) <= request.demand.switches:
        return ask(anywhere)
    for chosen in islice(sets_of(racks, demand, request.demand.switches, snapshot), SETS_ASKED):
        found, _ = ask(replace(request, demand=_kept_to(demand, racks, chosen)))
        if found is not None:
            return found, []
    found, reasons = ask(anywhere)
    return None, reasons if found is None else [_scattered(request.demand.switches)]


def racks_of(snapshot: Snapshot) -> dict[Rack, list[Host]]:
    """The hosts of each rack, in inventory order."""
    racks: dict[Rack, list[Host]] = {}
    for host in snapshot.hosts.values():
        leaf = leaf_of(host)
        rack = (False, host.name) if leaf is None else (True, leaf)
        racks.setdefault(rack, []).append(host)
    return racks


def sets_of(
    racks: dict[Rack, list[Host]], demand: Demand, most: int, snapshot: Snapshot
) -> Iterator[tuple[Rack, ...]]:
    """Sets of at most `most` racks that may have room, the smallest sets first, and of equal ones those with
    the least to spare."""
    room = {rack: [_room(host, demand, snapshot) for host in hosts] for rack, hosts in racks.items()}
    room = {rack: tasks for rack, tasks in room.items() if any(tasks)}
    total = {rack: sum(tasks) for rack, tasks in room.items()}
    usable = {rack: sum(map(bool, tasks)) for rack, tasks in room.items()}
    roomiest = sorted(total, key=total.__getitem__, reverse=True)
    tasks = list(accumulate(total[rack] for rack in roomiest))  # the most that 1, 2, 3, … racks hold
    hosts_most = list(accumulate(sorted(usable.values(), reverse=True)))
    left = RACKS_ADDED
    for size in range(1, min(most, len(roomiest)) + 1):
        if tasks[size - 1] < demand.ntasks or hosts_most[size - 1] < demand.hosts_min:
            continue
        looked_at = min(SETS_LOOKED_AT, left // size)
        left -= looked_at * size
        enough = [
            chosen
            for chosen in islice(combinations(roomiest, size), looked_at)
            if sum(total[rack] for rack in chosen) >= demand.ntasks
            and sum(usable[rack] for rack in chosen) >= demand.hosts_min
        ]
        yield from sorted(enough, key=lambda chosen: sum(total[rack] for rack in chosen))


def _room(host: Host, demand: Demand, snapshot: Snapshot) -> int:
    """The most tasks that the host takes now. A policy that knows better says so when it is asked."""
    return min(capacity(host, snapshot.free.get(host.name), demand.shape), demand.ntasks)


def _kept_to(demand: Demand, racks: dict[Rack, list[Host]], chosen: tuple[Rack, ...]) -> Demand:
    """As if all hosts of other racks were closed to the job."""
    why = f"is not below {_said(len(chosen))} that the job would have by --switches"
    other = tuple((host.name, why) for rack, hosts in racks.items() if rack not in chosen for host in hosts)
    return demand.kept_from((*demand.shape.closed, *other))


def _said(racks: int) -> str:
    return "the one leaf" if racks == 1 else f"the {racks} leaves"


def _scattered(most: int) -> Reason:
    few = "one leaf" if most == 1 else f"{most} leaves"
    return Reason(
        ReasonCode.RESOURCES,
        f"fits, but not below {few} as --switches asks: once it has waited its time for that, any hosts do",
        (("switches", most),),
    )
