"""What jobs put on the links that are aligned: from these the circles of a link are drawn."""

from __future__ import annotations

from typing import Any

from rm.core.ports import CommPolicy
from rm.core.scheduling.cycle import Cycle
from rm.policies.interleave.loads import link_loads


def demand_model(policy: CommPolicy) -> str:
    """How a job's rate spreads over the links of its hosts: an option of the policies that have it."""
    model: str = getattr(getattr(policy, "options", None), "demand", "ring")
    return model


def link_demands(cycle: Cycle, now_us: int) -> dict[str, list[dict[str, Any]]]:
    """For each aligned link its jobs' demands during one of their iterations.

    `period_us` is the period in force: with the idle time that the alignment adds, if it does.
    """
    state = cycle.state
    aligned = {link.link for link in state.alignment.links}
    if not aligned:
        return {}
    periods = {s.job: s.period_us for s in state.alignment.schedules}
    model = demand_model(cycle.policies.comm)
    demands, loads = link_loads(state.placed.values(), state.snapshot(now_us), model)
    return {
        name: [
            {
                "job": job,
                "period_us": periods.get(job, demands[job].period),
                "phases": [
                    {"offset_us": offset, "duration_us": duration, "rate_bps": rate}
                    for offset, duration, rate in phases
                ],
            }
            for job, phases in sorted(load.phases.items())
        ]
        for name, load in loads.items()
        if name in aligned
    }
