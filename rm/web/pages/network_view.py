"""Hosts by zone, what is the matter with them, and the grids of their zones and between these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rm.api.hosts import Host
from rm.api.network import Pair
from rm.core.monitoring.cells import Status
from rm.units import format_bytes, format_share
from rm.web.pages.grid_view import (
    RANK,
    WORST_FIRST,
    Cells,
    Grid,
    GridCell,
    Statuses,
    alone,
    cell,
    grid,
    statuses,
    worst,
)
from rm.web.pages.text import moment, rate, shown

SHOWN_MOST = 24  # hosts of a zone that is shown whole without being asked for


@dataclass(frozen=True, slots=True)
class HostRow:
    """`since`: when it came into its state; `full`: the name as it is, for its address."""

    name: str
    full: str
    drained: bool
    state: str
    cpus: str
    memory: str
    gpus: str
    link: str
    jobs: tuple[int, ...]
    reason: str
    since: str


@dataclass(frozen=True, slots=True)
class ZoneView:
    """`full` is the whole name; `worst` counts the directions by status. Of a large zone that was not
    asked for `grid` is None, and `hosts` are those only that are not up."""

    name: str
    full: str
    key: str
    hosts: tuple[HostRow, ...]
    worst: tuple[tuple[Status, int], ...]
    grid: Grid | None
    count: int
    whole: bool


def zones(
    hosts: Sequence[Host], pairs: Iterable[Pair], cells: Cells, wanted: str = ""
) -> tuple[list[ZoneView], Grid | None]:
    """Each zone with its grid, and the grid between zones. `wanted`: show this zone's, however large."""
    zone_of = {host.name: host.zone for host in hosts}
    members: dict[str, list[Host]] = {}
    for host in hosts:
        members.setdefault(host.zone, []).append(host)
    known: dict[tuple[str, str], Pair] = {}
    between: dict[tuple[str, str], list[tuple[Statuses, Pair]]] = {}
    counts: dict[str, dict[Status, int]] = {zone: {} for zone in members}
    for pair in pairs:
        source, destination = pair.source, pair.destination
        here, there = zone_of.get(source), zone_of.get(destination)
        if here is None or there is None:
            continue  # measured when that host was still known
        known[source, destination] = pair
        found = statuses(pair, cells)
        if here == there:
            count, status = counts[here], worst(found)
            count[status] = count.get(status, 0) + 1
        else:
            between.setdefault((here, there), []).append((found, pair))

    def inside(a: str, b: str) -> GridCell | None:
        if a == b:
            return alone(a, cells)
        pair = known.get((a, b))
        return None if pair is None else cell(pair, cells)

    def across(a: str, b: str) -> GridCell | None:
        """Of many pairs the one whose checks are worst."""
        made = between.get((a, b)) if a != b else None
        if made is None:
            return None
        return cell(min(made, key=lambda one: sorted(RANK[s] for s in one[0]))[1], cells)

    views = []
    for number, (zone, these) in enumerate(members.items()):
        names = [host.name for host in these]
        whole = zone == wanted or len(names) <= SHOWN_MOST
        title = f"Inside zone {shown(zone)}"
        views.append(
            ZoneView(
                name=shown(zone),
                full=zone,
                key=f"zone-{number}",
                hosts=tuple(host_row(host) for host in these if whole or host.state != "UP"),
                worst=tuple((s, counts[zone][s]) for s in WORST_FIRST if s in counts[zone]),
                grid=grid(f"grid-{number}", title, names, inside) if whole and len(names) > 1 else None,
                count=len(names),
                whole=whole,
            )
        )
    over = grid("grid-zones", "Between zones, the worst pair of each", list(members), across)
    return views, over if between else None


def host_row(host: Host) -> HostRow:
    free = host.free
    gpus = len(host.gpus)
    parts = dict.fromkeys(filter(None, (host.reason, host.drained_by)))
    since_us = host.drained_us if host.state in ("DRAINING", "DRAINED") else host.since_us
    return HostRow(
        name=shown(host.name),
        full=host.name,
        drained=bool(host.drained_by),
        state=host.state,
        cpus=f"{free.cpus}/{host.cpus}" if free else str(host.cpus),
        memory=format_share(free.mem_bytes, host.mem_bytes) if free else format_bytes(host.mem_bytes),
        gpus="–" if not gpus else f"{len(free.gpus)}/{gpus}" if free else str(gpus),
        link=rate(host.nic_bps) if host.nic_bps else "–",
        jobs=tuple(host.jobs or ()),
        reason=shown("; ".join(parts), 300),
        since=moment(since_us or None),
    )
