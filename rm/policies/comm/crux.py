"""crux: jobs that compute much for what they send get the freer path and the higher traffic class.

Source: J. Cao et al.: Crux: GPU-Efficient Communication Scheduling for Deep Learning Training, SIGCOMM 2024.
A job's GPU intensity is I = W / t (eq. 2): its computation in an iteration over the time that its traffic
takes on its slowest link, t = max over links of M / B. Jobs choose paths in the order of falling intensity,
each the least loaded one (Sec. 4.1); their traffic has strict priority in the same order (Sec. 4.2), of which
there are only `levels`, shared so that the least intensity is lost (Sec. 4.3). Settled here:

* W is the time that an iteration computes, times the job's GPUs, which are taken to be alike.
* The correction factor k of eq. 3 is 1: the paper gives it by examples of two jobs.
* Compression cuts the order of the jobs that links connect into runs. Two jobs that share a link and a level
  lose what the higher one's intensity is worth; the cut loses least. The paper tries several orders that
  suit the priorities; here the order by intensity is the only one.
* Classes are kept on hosts; jobs of high priority come before all others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rm.core.model.network.alignment import PERFECT, Alignment, ShapingRule
from rm.core.model.network.paths import JobPath
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.core.scheduling.paths import job_paths
from rm.errors import ConfigError
from rm.policies.comm.steps.bursts import least_bps
from rm.policies.interleave.affinity import components
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.loads import link_loads

MOST_LEVELS = 8  # of HTB, and of switches


@dataclass(frozen=True, slots=True)
class CruxOptions:
    """`levels` of priority; `paths`: let jobs keep to spines, where the fabric has code points."""

    levels: int = MOST_LEVELS
    paths: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= MOST_LEVELS:
            raise ConfigError(
                f"The option levels of comm policy crux is {self.levels}.", f"Use 1 to {MOST_LEVELS}."
            )


class Crux:
    name = "crux"

    def __init__(self, options: CruxOptions | None = None) -> None:
        self.options = options or CruxOptions()

    def align(self, placed: Sequence[PlacedJob], snapshot: Snapshot, offline: bool = False) -> Alignment:
        """Classes for the jobs that share links, and paths; independent of the order of `placed`."""
        jobs = {job.job: job for job in placed if job.communicates}
        _, links = link_loads(jobs.values(), snapshot)
        worth = {number: intensity(job, links) for number, job in jobs.items()}
        order = sorted(jobs, key=lambda number: (not jobs[number].high, -worth[number], number))
        shared = {name: load.phases for name, load in links.items() if len(load.phases) > 1}
        rules: list[ShapingRule] = []
        for _, group in components(shared):
            among = [number for number in order if number in group]
            meets = {n: {m for on in shared.values() if n in on for m in on} for n in among}
            for number, level in levels(among, worth, meets, self.options.levels).items():
                for host in sorted(set(jobs[number].placement.hosts) & snapshot.hosts.keys()):
                    if capacity := snapshot.hosts[host].nic_bps:  # no class without a rate
                        rules.append(ShapingRule(number, host, level, least_bps(capacity), capacity))
        paths: tuple[JobPath, ...] = ()
        if self.options.paths:
            in_turn = [replace(jobs[number], sequence=turn) for turn, number in enumerate(order)]
            paths = job_paths(in_turn, snapshot.fabric, snapshot.hosts)
        return Alignment(PERFECT, shaping=tuple(sorted(rules, key=_place)), paths=paths)


def intensity(job: PlacedJob, links: Mapping[str, LinkLoad]) -> float:
    """GPU-microseconds of computation for each microsecond of transmission on the slowest link (eq. 2)."""
    assert job.traffic is not None
    gpus = sum(len(job.placement.gpus_on(host)) for host in job.placement.hosts)
    computes_us = max(0, job.traffic.period_us - job.traffic.comm_us)
    sends_us = max((transmission_us(load, job.job) for load in links.values()), default=0.0)
    return computes_us * (gpus or len(job.placement.tasks)) / sends_us if sends_us else 0.0


def transmission_us(load: LinkLoad, job: int) -> float:
    """M / B of one link."""
    return sum(length * rate for _, length, rate in load.phases.get(job, ())) / load.capacity


def levels(
    order: Sequence[int], worth: Mapping[int, float], meets: Mapping[int, Collection[int]], most: int
) -> dict[int, int]:
    """The level of each job, 0 the highest: runs of `order`, of which at most `most` are made, so that the
    worth of jobs that share a level with one of lower rank that they meet is least in sum."""
    count = len(order)
    if count <= most:
        return {job: level for level, job in enumerate(order)}
    together = [[0.0] * (count + 1) for _ in range(count)]  # what the run from i to before j loses
    for first in range(count):
        for last in range(first, count):
            met = sum(worth[job] for job in order[first:last] if order[last] in meets[job])
            together[first][last + 1] = together[first][last] + met
    least = [0.0, *together[0][1:]]  # of what comes before j, in the runs made so far
    cuts: list[list[int]] = []
    for _ in range(most - 1):
        costs = [[least[at] + _run(together, at, end) for at in range(end + 1)] for end in range(count + 1)]
        cuts.append([row.index(min(row)) for row in costs])
        least = [min(row) for row in costs]
    ends = [count]
    for chosen in reversed(cuts):
        ends.append(chosen[ends[-1]])
    runs = sorted(set(ends) - {0})
    return {job: sum(end <= place for end in runs) for place, job in enumerate(order)}


def _run(together: Sequence[Sequence[float]], first: int, end: int) -> float:
    return together[first][end] if first < end else 0.0


def _place(rule: ShapingRule) -> tuple[str, int]:
    return rule.host, rule.job


OPTIONS = CruxOptions
POLICY = Crux
