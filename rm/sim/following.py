"""Simulated jobs that keep to a plan: delays, throttles and routes of single iterations.

FORESIGHT Sec. V has agents on the servers that delay iterations, throttle flows and choose paths; here
the simulated hosts do so. A plan begins when the last of its jobs comes to the end of the iteration
that it was in (all of its jobs start together); the others wait for that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from rm.core.model.network.routes import CommPlan, PlannedIteration
from rm.sim.attempt import Attempt
from rm.sim.network.port import Flow


@dataclass(slots=True, eq=False)
class _Round:
    """A plan in force. `waiting` are those who wait for its beginning, `made` counts iterations begun."""

    plan: CommPlan
    begun_us: float | None = None
    waiting: dict[int, Attempt] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)


class Following:
    """Which job follows which plan, and how far in it they are."""

    def __init__(self) -> None:
        self._rounds: dict[int, _Round] = {}

    def install(self, plans: Iterable[CommPlan]) -> list[Attempt]:
        """Take the plans that are now in force; one that was in force before goes on.

        Returns those who waited for the beginning of a plan that nobody will follow any more.
        """
        before = list(dict.fromkeys(self._rounds.values()))
        self._rounds = {}
        kept = set()
        for plan in plans:
            known = next((r for r in before if r.plan == plan), None)
            if known is not None:
                kept.add(known)
            self._rounds.update(dict.fromkeys(plan.iterations, known or _Round(plan)))
        return [a for r in before if r not in kept for a in r.waiting.values()]

    def arrive(self, attempt: Attempt, now_us: float) -> list[Attempt] | None:
        """The attempt is between two iterations: who may now go on to their next one.

        None: it follows no plan. Nobody: it waits until the last job of its plan has arrived.
        """
        own = self._rounds.get(attempt.job)
        if own is None:
            return None
        if own.begun_us is not None:
            return [attempt]
        own.waiting[attempt.job] = attempt
        if own.waiting.keys() < own.plan.iterations.keys():
            return []
        own.begun_us = now_us
        freed, own.waiting = list(own.waiting.values()), {}
        return freed

    def begin(self, job: int, now_us: float) -> tuple[float, PlannedIteration]:
        """How long the job waits before its next iteration, and what is planned for that.

        It waits as long as planned after its previous iteration, and longer if that ended early.
        """
        own = self._rounds[job]
        assert own.begun_us is not None, "the plan has begun"
        number = own.made.get(job, 0)
        own.made[job] = number + 1
        planned = own.plan.at(job, number)
        assert planned is not None, "a job of the plan has planned iterations"
        return max(float(planned.delay_us), own.begun_us + planned.start_us - now_us), planned


def as_planned(
    flows: Iterable[Flow], planned: PlannedIteration, op: int, host_bps: Mapping[str, float]
) -> tuple[Flow, ...]:
    """The flows of operation `op` of an iteration, throttled and pinned.

    A flow without a planned route keeps the one that ECMP gives it. One that has a route never
    exceeds what the plan has reserved for it.
    """
    routes = planned.range_of(op)
    made = []
    for flow in flows:
        cap_bps = flow.cap_bps
        if planned.throttle < 1:
            cap_bps = planned.throttle * min(cap_bps, host_bps[flow.source])
        route = routes.route(flow.source, flow.destination) if routes is not None else None
        if route is not None:
            flow = replace(flow, cap_bps=min(cap_bps, float(route.cap_bps)), route=route.shares)
        elif cap_bps < flow.cap_bps:
            flow = replace(flow, cap_bps=cap_bps)
        made.append(flow)
    return tuple(made)
