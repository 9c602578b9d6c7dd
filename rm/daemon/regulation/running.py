"""The running jobs whose traffic crosses the network, as the regulator sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import compress
from operator import is_not

from rm.core.jobs.state import ClusterState
from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.host import Host
from rm.core.model.job import Job, JobState
from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment
from rm.core.model.network.fabric import Fabric
from rm.core.model.quickly_made import quickly_made
from rm.core.model.snapshot import PlacedJob


@quickly_made
@dataclass(frozen=True, slots=True)
class Place:
    """One host of a running job, as far as traffic is concerned. `rank` is its lowest there;
    `since_us` changes when the host's agent says hello again: what was sent may be gone."""

    host: str
    rank: int
    interface: str
    nic_bps: int
    since_us: int


@quickly_made
@dataclass(frozen=True, slots=True)
class Running:
    """A job whose traffic crosses the network."""

    job: int
    attempt: int
    started_us: int
    places: tuple[Place, ...]
    traffic: TrafficProfile | None
    low_comm: bool
    cooperative: bool
    high: bool = False
    placed: PlacedJob | None = None  # as the policies see it


@dataclass(frozen=True, slots=True)
class View:
    """What the leader shows after a step: the plan, the jobs it is about, and what is above their hosts."""

    alignment: Alignment = NOTHING_TO_ALIGN
    running: Mapping[int, Running] = field(default_factory=dict)
    fabric: Fabric | None = None


def place_on(running: Running | None, host: str) -> Place | None:
    if running is None:
        return None
    return next((p for p in running.places if p.host == host), None)


class RunningJobs:
    """The running jobs with tasks on several hosts; of jobs that have not changed it is known."""

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}
        self._jobs: dict[int, Job] = {}  # that were looked at last
        self._known: dict[int, Running] = {}  # of these those that run on several hosts

    def of(self, state: ClusterState) -> dict[int, Running]:
        placed = state.placed
        if self._hosts != state.hosts:
            self._hosts, self._known, self._jobs = dict(state.hosts), {}, {}
        seen, jobs = self._jobs, [*map(state.jobs.__getitem__, placed)]
        for number in [*compress(placed, map(is_not, jobs, map(seen.get, placed)))]:
            job, hosts = state.jobs[number], placed[number].placement.hosts
            if job.state is JobState.RUNNING and len(hosts) > 1:
                self._known[number] = _running(job, hosts, state)
            else:
                self._known.pop(number, None)
        for gone in seen.keys() - placed.keys():
            self._known.pop(gone, None)
        self._jobs, known = dict(zip(placed, jobs, strict=True)), self._known
        return {number: known[number] for number in placed if number in known}


def _running(job: Job, hosts: tuple[str, ...], state: ClusterState) -> Running:
    lowest: dict[str, int] = {}
    for task in job.tasks:
        lowest.setdefault(task.host, task.rank)  # tasks stand in the order of their ranks
    known = [state.hosts[name] for name in hosts if name in state.hosts]
    places = tuple([Place(h.name, lowest[h.name], h.interface, h.nic_bps, h.since_us) for h in known])
    return Running(
        job.id,
        job.attempt,
        job.started_us or job.submitted_us,
        places,
        job.traffic,
        job.spec.low_comm,
        job.cooperative,
        job.spec.is_high,
        state.placed.get(job.id),
    )
