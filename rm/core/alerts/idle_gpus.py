"""Jobs whose GPUs do nothing, by what the drivers of their hosts say again and again. Pure.

A reading is a host's answer: in which share of the last moment each GPU computed. A job is watched from the
first reading in which none of its GPUs did, on all its hosts. One in which some GPU did ends that, as does
one that does not say it of all. All instants are microseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rm.core.alerts.alert import Finding
from rm.core.alerts.findings import HostFacts
from rm.core.jobs.state import ClusterState
from rm.core.model.job import JobState
from rm.units import format_elapsed

CONDITION = "gpus-idle"
READINGS = 60  # are asked for within the time after which a job is idle
# After a longer gap in the readings of a host nothing is known: a tenth of the time, and at least this
LEAST_GAP_US = 60_000_000


@dataclass(frozen=True, slots=True)
class GpuJob:
    """A running job: `gpus` are (index, uuid, "" = not known) by host."""

    job: int
    attempt: int
    name: str
    since_us: int
    gpus: Mapping[str, tuple[tuple[int, str], ...]]


@dataclass(frozen=True, slots=True)
class Watch:
    """`seen`: of each host of the job the instants of the first and the last reading while it did nothing."""

    seen: Mapping[str, tuple[int, int]]

    def span_us(self, job: GpuJob) -> tuple[int, int]:
        """From when to when all hosts of the job say so."""
        if self.seen.keys() != job.gpus.keys():
            return 0, 0
        return max(first for first, _ in self.seen.values()), min(last for _, last in self.seen.values())


Watches = Mapping[tuple[int, int], Watch]  # by job and attempt


def gpu_jobs(state: ClusterState) -> tuple[GpuJob, ...]:
    """Those that run and have GPUs."""
    found = []
    for number in state.placed:
        job = state.jobs[number]
        if job.state is not JobState.RUNNING or job.placement is None or job.started_us is None:
            continue
        gpus: dict[str, tuple[tuple[int, str], ...]] = {}
        for name in job.placement.hosts:
            if (mine := job.placement.gpus_on(name)) and (host := state.hosts.get(name)) is not None:
                uuids = {gpu.index: gpu.uuid for gpu in host.gpus}
                gpus[name] = tuple((index, uuids.get(index, "")) for index in mine)
        if gpus:
            found.append(GpuJob(number, job.attempt, job.ref, job.started_us, gpus))
    return tuple(found)


def watched(
    watches: Watches, jobs: Iterable[GpuJob], facts: Mapping[str, HostFacts], idle_us: int
) -> dict[tuple[int, int], Watch]:
    """The watches after the newest readings; what has ended is not among them."""
    after: dict[tuple[int, int], Watch] = {}
    gap_us = max(LEAST_GAP_US, idle_us // 10)
    for job in jobs:
        old = watches.get((job.job, job.attempt))
        seen = dict(old.seen) if old is not None else {}
        for host, gpus in job.gpus.items():
            told = facts.get(host)
            first_us, last_us = seen.get(host, (0, 0))
            if told is None or told.at_us == last_us or told.at_us < job.since_us:
                continue
            if any(told.busy_pct(index, uuid) != 0 for index, uuid in gpus):
                seen = {}
                break
            known = last_us and 0 < told.at_us - last_us <= gap_us
            seen[host] = (first_us if known else told.at_us, told.at_us)
        after[job.job, job.attempt] = Watch(seen)
    return after


def idle_findings(jobs: Iterable[GpuJob], watches: Watches, idle_us: int) -> Iterator[Finding]:
    """The jobs whose GPUs have done nothing for `idle_us` or longer."""
    for job in jobs:
        from_us, to_us = watches[job.job, job.attempt].span_us(job)
        for_us = to_us - from_us
        if for_us >= idle_us:
            count = sum(map(len, job.gpus.values()))
            gpus = f"{count} GPUs" if count > 1 else "GPU"
            said = f"the {gpus} of job {job.name} did nothing for {format_elapsed(for_us)}"
            yield Finding(CONDITION, f"job {job.name}", said, tuple(job.gpus))
