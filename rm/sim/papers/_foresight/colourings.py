"""Every edge colouring that routing asks for, done again and checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rm.core.model.job import Placement, TaskPlacement
from rm.core.model.snapshot import PlacedJob
from rm.policies.foresight import Links, edge_colouring, max_degree
from rm.policies.foresight.merging import merge_ranges, placed_patterns
from rm.policies.foresight.patterns import shapes_of
from rm.policies.foresight.ring import RATES, ring_demand
from rm.policies.foresight.timing import solve_timing
from rm.sim.papers._foresight.workload import Scene

Edges = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Counted:
    """`colourings` done; of them those with more colours than the maximum degree, or with two edges of
    one colour at a node."""

    colourings: int
    beyond: int
    improper: int


def count(scene: Scene, spines: int, units: int, iterations: int) -> Counted:
    """The merged ranges of a timing of this many iterations, with whole flows and with subflows."""
    found = beyond = improper = 0
    for edges in _problems(scene, spines, units, iterations):
        colours = edge_colouring(edges)
        found += 1
        beyond += len(set(colours)) > max_degree(edges)
        ends = {(side, edge[side], c) for edge, c in zip(edges, colours, strict=True) for side in (0, 1)}
        improper += len(ends) < 2 * len(edges)
    return Counted(found, beyond, improper)


def _problems(scene: Scene, spines: int, units: int, iterations: int) -> Iterator[Edges]:
    fabric = scene.fabric(spines)
    links = Links(fabric, units)
    host_bps = {host.name: host.nic_bps for host in scene.hosts}
    jobs = []
    for number, (model, ring) in enumerate(zip(scene.models, scene.rings, strict=True), 1):
        placement = Placement(tuple(TaskPlacement(rank, host) for rank, host in enumerate(ring)))
        traffic = model.traffic(scene.link_bps)
        job = PlacedJob(number, f"job{number}", False, 0, number, placement, traffic, False)
        jobs.append(ring_demand(job, fabric, host_bps, RATES, iterations))
    slots = solve_timing(jobs, {job.job: shapes_of(job, links) for job in jobs}, links)
    for merged in merge_ranges(placed_patterns(slots)):
        flows = list(merged.flows.values())
        yield [(f.source, f.destination) for f in flows]
        yield [(f.source, f.destination) for f in flows for _ in range(f.units)]
