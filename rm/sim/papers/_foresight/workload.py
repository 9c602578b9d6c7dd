"""FORESIGHT's cluster and jobs (Sec. IV, "Simulation Environment"), and where the jobs are placed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.core.model.host import Host
from rm.core.model.job import JobSpec, Placement, TaskPlacement
from rm.core.model.network.fabric import Fabric
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.snapshot import Snapshot
from rm.core.ports import Candidate, Proposal
from rm.sim.papers.frame.parameters import parameters
from rm.sim.program import Communicate, Compute, Program
from rm.sim.workload import SimJob, hosts

MS = 1_000  # microseconds


@dataclass(frozen=True, slots=True)
class Model:
    """One job, all times in microseconds: a forward and a backward pass of `pass_us` each, then a ring
    all-reduce of a message that a host sends in `message_us` at full rate."""

    machines: int
    pass_us: int
    message_us: int

    @property
    def stages(self) -> int:
        return 2 * (self.machines - 1)

    @property
    def comm_us(self) -> int:
        """The all-reduce when all flows have their hosts' full rate: a chunk is 1/n of the message."""
        return self.stages * self.message_us // self.machines

    @property
    def period_us(self) -> int:
        return 2 * self.pass_us + self.comm_us

    @property
    def intensity(self) -> float:
        """Communication over computation as the authors' simulator counts them: two messages to a pass."""
        return 2 * self.message_us / self.pass_us

    def program(self, iterations: int, link_bps: int, staged: bool) -> Program:
        """`staged`: the all-reduce goes stage by stage, with a barrier after each."""
        bits = self.comm_us * link_bps / 1e6
        stages = (
            Compute((float(self.pass_us), float(self.pass_us))),
            Communicate(bits, float(link_bps), bits / 8, self.stages if staged else 1),
        )
        return Program(iterations, stages, float(self.period_us))

    def traffic(self, link_bps: int) -> TrafficProfile:
        """What one iteration puts on a host's link: the profile that users of rm declare."""
        phase = Phase(2 * self.pass_us, self.comm_us, link_bps)
        return TrafficProfile(self.period_us, (phase,))


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster with all of its jobs placed: `rings[i]` are the hosts of `models[i]` in ring order."""

    hosts: tuple[Host, ...]
    leaf_of: Mapping[str, str]
    models: tuple[Model, ...]
    rings: tuple[tuple[str, ...], ...]

    @property
    def link_bps(self) -> int:
        return self.hosts[0].nic_bps

    def fabric(self, spines: int) -> Fabric:
        """Each link from a leaf to a spine is as fast as a host's link."""
        return Fabric(self.leaf_of, spines, self.link_bps)

    @property
    def fragmentation(self) -> float:
        """Sec. II: inter-rack flows over all flows."""
        crossing = sum(sum(self.fabric(1).crossings(ring).values()) for ring in self.rings)
        return crossing / sum(len(ring) for ring in self.rings)

    def jobs(self, iterations: Sequence[int], staged: bool) -> list[SimJob]:
        """All jobs, submitted at time 0."""
        made = []
        for number, (model, count) in enumerate(zip(self.models, iterations, strict=True)):
            spec = JobSpec(
                f"job{number + 1}",
                "sim",
                "",
                ntasks=model.machines,
                tasks_per_host=1,
                gpus_per_task=1,
                traffic=model.traffic(self.link_bps),
            )
            made.append(SimJob(0, spec, model.program(count, self.link_bps, staged)))
        return made

    @property
    def placement(self) -> Given:
        return Given({f"job{n + 1}": ring for n, ring in enumerate(self.rings)})


class Given:
    """A placement policy for placements that are given: by job name, the hosts in the order of ranks.

    Sec. III: how machines are allocated to jobs lies outside the scope of the paper.
    """

    name = "given"

    def __init__(self, rings: Mapping[str, tuple[str, ...]]) -> None:
        self._rings = rings

    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        ring = self._rings[snapshot.jobs[request.job].spec.name]
        tasks = tuple(TaskPlacement(rank, host, (0,)) for rank, host in enumerate(ring))
        return Proposal(iter([Candidate(Placement(tasks))]))


def scene(
    chance: random.Random,
    spines: int,
    fragmentation: float | None = None,
    *,
    intensity: tuple[float, float] | None = None,
    sizes: tuple[int, int] | None = None,
    rack: int | None = None,
    confined: bool = True,
) -> Scene:
    """Random jobs on all machines, placed with this fragmentation; what is not given is the paper's.

    `intensity` bounds the mean of the jobs' intensities. `confined`: no job by itself sends more
    flows out of a rack than there are spines.
    """
    known = parameters("foresight")
    rack = rack or known["rack"]
    wished = known["fragmentation"] if fragmentation is None else fragmentation
    models = _models(chance, intensity or tuple(known["intensity"]), sizes or tuple(known["job_machines"]))
    return placed(chance, models, wished, rack, spines if confined else rack)


def _models(
    chance: random.Random, intensity: tuple[float, float], sizes: tuple[int, int]
) -> tuple[Model, ...]:
    """Jobs that fill the machines, the last one with what is left; drawn again and again until their
    mean intensity is within the bounds, and failing that those that come closest."""
    low, high = intensity
    best: tuple[float, tuple[Model, ...]] | None = None
    for _ in range(parameters("foresight")["draws"]):
        models = tuple(_drawn(chance, sizes))
        mean = fmean(m.intensity for m in models)
        off = max(low - mean, mean - high, 0.0)
        if best is None or off < best[0]:
            best = off, models
        if not off:
            break
    assert best is not None
    return best[1]


def _drawn(chance: random.Random, sizes: tuple[int, int]) -> Iterator[Model]:
    known = parameters("foresight")
    left = known["machines"]
    while left >= 2:
        machines = min(left, chance.randint(*sizes))
        pass_ms = chance.choice(known["pass_ms"])
        message_ms = chance.choice(known["message_units"]) / known["link_units_a_ms"]
        yield Model(machines, pass_ms * MS, round(message_ms * MS))
        left -= machines


def placed(
    chance: random.Random, models: tuple[Model, ...], fragmentation: float, rack: int, outflows: int
) -> Scene:
    """Jobs side by side; then ranks of any two jobs exchange their machines until the fragmentation
    is reached. An exchange after which a job has more than `outflows` flows out of one rack is undone.
    """
    known = parameters("foresight")
    own = hosts(known["machines"], gpus=1, nic_bps=known["link_bps"])
    leaf_of = {host.name: f"rack{n // rack + 1}" for n, host in enumerate(own)}
    names = iter([host.name for host in own])
    rings = [[next(names) for _ in range(model.machines)] for model in models]
    fabric = Fabric(leaf_of, 1, own[0].nic_bps)
    leaving = [fabric.crossings(ring) for ring in rings]
    wished = fragmentation * sum(map(len, rings))
    for _ in range(known["exchanges"]):
        if sum(sum(one.values()) for one in leaving) >= wished:
            break
        a, b = chance.randrange(len(rings)), chance.randrange(len(rings))
        i, j = chance.randrange(len(rings[a])), chance.randrange(len(rings[b]))
        rings[a][i], rings[b][j] = rings[b][j], rings[a][i]
        then = {n: fabric.crossings(rings[n]) for n in (a, b)}
        if max((n for n in itertools.chain(*(c.values() for c in then.values()))), default=0) > outflows:
            rings[a][i], rings[b][j] = rings[b][j], rings[a][i]
            continue
        for n, crossings in then.items():
            leaving[n] = crossings
    return Scene(own, leaf_of, models, tuple(map(tuple, rings)))
