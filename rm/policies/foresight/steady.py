"""Plans that repeat: one time-shift per job, one spine per host is all that they need while the jobs run.

A plan delays every iteration as it must; only where no job is ever delayed or throttled again
after its first iteration, and all goes on like that for ever, does it come down to CASSINI's
time-shifts, which hosts keep by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm

from rm.core.model.network.paths import JobPath
from rm.core.model.network.routes import CommPlan
from rm.policies.foresight.demand import JobDemand, Links
from rm.policies.foresight.occupancy import Occupancy
from rm.policies.foresight.patterns import capacity, shapes_of
from rm.policies.foresight.timing import loads_of

ITERATIONS_MAX = 2_000  # of all jobs in one common period; longer ones are not looked at


def steady_paths(plan: CommPlan) -> tuple[JobPath, ...]:
    """What a job sends from a host over one spine, to wherever and in all iterations, sorted."""
    over: dict[tuple[int, str], set[int]] = {}
    for job, iterations in plan.iterations.items():
        for route in (r for i in iterations for part in i.ranges for r in part.routes):
            over.setdefault((job, route.source), set()).update(spine for spine, _ in route.spines)
    return tuple(JobPath(*key, *spines) for key, spines in sorted(over.items()) if len(spines) == 1)


def steady_shifts(jobs: Sequence[JobDemand], links: Links, plan: CommPlan) -> Mapping[int, int] | None:
    """Each job's time-shift in microseconds, below its period; None where the plan does not repeat.

    With these shifts no logical link is ever overloaded.
    """
    for job in jobs:
        first, *later = plan.iterations[job.job]
        if first.throttle != 1 or any(i.delay_us or i.throttle != 1 for i in later):
            return None
    whole = lcm(*(job.period_us for job in jobs))
    if sum(whole // job.period_us for job in jobs) > ITERATIONS_MAX:
        return None
    shifts = {job.job: plan.iterations[job.job][0].delay_us % job.period_us for job in jobs}
    occupancy = Occupancy(lambda link: capacity(link, links))
    used = set()
    for job in jobs:
        loads = loads_of(shapes_of(job, links)[0])
        used |= {link for link, *_ in loads}
        for k in range(2 * whole // job.period_us):  # the second round shows what the first leaves over
            occupancy.reserve(loads, shifts[job.job] + k * job.period_us)
    calm = all(occupancy.peak(link, whole, 2 * whole) <= capacity(link, links) for link in used)
    return shifts if calm else None
