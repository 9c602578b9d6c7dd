"""Tiny builders of core values, shared by all tests: short in the test, complete underneath.

Units are the test's convenience (Mbit/s, milliseconds, GiB); the built values are in the core's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from rm.core.jobs.free import all_of
from rm.core.model.acceptance import accept
from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.core.model.host import Gpu, Host, HostState, Zone
from rm.core.model.job import Job, JobSpec, JobState, Placement, Task, TaskPlacement
from rm.core.model.network.links import Link, LinkStats, NetworkView
from rm.core.model.placement_request import PlacementRequest, request_of
from rm.core.model.snapshot import Free, PlacedJob, Snapshot

GIB = 1 << 30
MBPS = 1_000_000
MS = 1_000


def host(
    name: str,
    zone: str = "z1",
    *,
    cpus: int = 8,
    mem_gib: float = 32,
    gpus: int = 0,
    gpu_model: str = "A100",
    nic_mbps: int = 1_000,
    state: HostState = HostState.UP,
    **more: Any,
) -> Host:
    """A schedulable host; `more` are further fields of Host."""
    return Host(
        name=name,
        zone=zone,
        address=more.pop("address", f"{name}.test"),
        cpus=cpus,
        mem_bytes=int(mem_gib * GIB),
        gpus=tuple(Gpu(i, f"GPU-{name}-{i}", gpu_model, 16 * GIB) for i in range(gpus)),
        nic_bps=nic_mbps * MBPS,
        state=state,
        **more,
    )


def spec(name: str = "job", *, mem_gib: float = 0, **fields: Any) -> JobSpec:
    """A job specification that a daemon takes; `fields` are fields of JobSpec."""
    fields.setdefault("user", "alice")
    fields.setdefault("script", "#!/bin/sh\ntrue\n")
    fields.setdefault("mem_bytes_per_task", int(mem_gib * GIB))
    made = JobSpec(name=name, **fields)
    accept(made)
    return made


def job(
    id: int = 1, *, submitted_us: int | None = None, state: JobState = JobState.PENDING, **fields: Any
) -> Job:
    """A job with the given id; `fields` are fields of JobSpec (name defaults to job<id>)."""
    tasks: tuple[Task, ...] = fields.pop("tasks", ())
    fields.setdefault("name", f"job{id}")
    made = spec(**fields)
    return Job(
        id=id,
        spec=made,
        submitted_us=id if submitted_us is None else submitted_us,
        state=state,
        tasks=tasks,
        traffic=made.traffic,
    )


def asked(one: Job) -> PlacementRequest:
    """The job as a placement policy sees it, if nothing was heard of its progress."""
    return request_of(one, snapshot())


def profile(period_ms: float, *phases_ms: tuple[float, float, float]) -> TrafficProfile:
    """A traffic profile from (offset ms, duration ms, rate Mbit/s) phases."""
    return TrafficProfile(
        round(period_ms * MS),
        tuple(Phase(round(o * MS), round(d * MS), round(r * MBPS)) for o, d, r in phases_ms),
    )


def linkstats(
    loss_pct: float | None = 0.0, delay_ms: float | None = 0.2, mbps: float | None = 1_000, **more: Any
) -> LinkStats:
    """One measured direction; None = that metric was not measured."""
    return LinkStats(
        loss_pct=loss_pct,
        delay_us=None if delay_ms is None else round(delay_ms * MS),
        bandwidth_bps=None if mbps is None else round(mbps * MBPS),
        **more,
    )


def network(pairs: Mapping[tuple[str, str], LinkStats] | None = None) -> NetworkView:
    """A network view of exactly these ordered pairs."""
    return NetworkView(dict(pairs or {}))


def full_mesh(
    names: Iterable[str], stats: LinkStats | None = None, **bad: LinkStats
) -> dict[tuple[str, str], LinkStats]:
    """Every ordered pair with the same stats; pairs that touch a host in `bad` get that host's."""
    names, stats = list(names), stats or linkstats()
    return {
        (a, b): bad.get(a, bad.get(b, stats))  #
        for a in names
        for b in names
        if a != b
    }


def placement(*hosts: str, gpus: Iterable[tuple[int, ...]] | None = None) -> Placement:
    """Rank i on hosts[i]."""
    given = list(gpus) if gpus is not None else [()] * len(hosts)
    return Placement(tuple(TaskPlacement(i, h, given[i]) for i, h in enumerate(hosts)))


def placed(
    id: int,
    *hosts: str,
    traffic: TrafficProfile | None = None,
    priority: int = 0,
    low_comm: bool = False,
    sequence: int | None = None,
    name: str = "",
) -> PlacedJob:
    """A job that occupies hosts, as the policies see it."""
    return PlacedJob(
        job=id,
        name=name or f"job{id}",
        high=priority >= 100,
        priority=priority,
        sequence=id if sequence is None else sequence,
        placement=placement(*hosts),
        traffic=traffic,
        low_comm=low_comm,
    )


def whole(one: Host) -> Free:
    """All of a host is free."""
    return all_of(one)


def snapshot(
    *hosts: Host,
    zones: Mapping[str, int] | Iterable[Zone] | None = None,
    net: NetworkView | Mapping[tuple[str, str], LinkStats] | None = None,
    free: Mapping[str, Free] | None = None,
    placed: Iterable[PlacedJob] = (),
    now_us: int = 0,
    jobs: Iterable[Job] = (),
) -> Snapshot:
    """A cluster of `hosts`; `zones` as {name: user delay in ms}, default each host's zone at 0.

    `free` overrides the free resources of the hosts that it names.
    """
    if isinstance(zones, Mapping):
        zoned = {n: Zone(n, round(d * MS)) for n, d in zones.items()}
    elif zones is not None:
        zoned = {z.name: z for z in zones}
    else:
        zoned = {h.zone: Zone(h.zone) for h in hosts}
    return Snapshot(
        now_us=now_us,
        hosts={h.name: h for h in hosts},
        zones=zoned,
        links={h.name: Link(h.name, h.nic_bps) for h in hosts},
        network=net if isinstance(net, NetworkView) else network(net),
        free={h.name: whole(h) for h in hosts} | dict(free or {}),
        placed={p.job: p for p in placed},
        jobs={j.id: j for j in jobs},
    )


def filled(kind: Any, name: str = "", default: object = None) -> Any:
    """A value of the type, none of whose fields, at any depth, has its default."""
    members = get_args(kind)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{f.name: filled(hints[f.name], f.name, f.default) for f in fields(kind)})
    if get_origin(kind) is tuple:
        return tuple(filled(m, name) for m in members if m is not ...)
    if get_origin(kind) in (dict, Mapping):
        return {filled(members[0], name): filled(members[1], name)}
    if members:  # a union: the first that is not None
        return filled(next(m for m in members if m is not NoneType), name, default)
    if issubclass(kind, Enum):
        return next(m for m in reversed(kind) if m != default)
    if kind is bool:
        return not default
    if kind is object:  # what is written nowhere
        return default
    return {int: len(name) + (1 << 40), float: 0.1, str: f"{name} \"é漢\\r\n'\t\x7f"}[kind]
