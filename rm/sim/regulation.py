"""Keeps simulated jobs interleaved: the daemon's decisions (rm/policies/regulate) over simulated reports.

The part that on live hosts is played by the regulator thread and the agents; waiting is the hosts'
own rule (slots.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.network.alignment import Alignment, ShapingRule
from rm.core.model.replacing import replace
from rm.policies.regulate.controller import ControllerOptions, Inspect, Report
from rm.policies.regulate.desired import Desired, Learn, Order
from rm.policies.regulate.iterating import Iterating
from rm.policies.regulate.verifying import Judgement, Manage, Release
from rm.sim.network.port import Flow

LATER = 1 << 48  # later than all bursts of high jobs: no simulation has that many


class Regulation:
    """Time-shifts, pauses and injected idle time of all running jobs.

    Args:
        inspect, learn, judge: what the world does about a job to be profiled, a new profile, and jobs that
            are to be left alone or managed again.
        enabled: False takes the controller away and leaves the initial rotation: each job is put
            into its slot once, when its plan is installed.
    """

    def __init__(
        self,
        inspect: Callable[[Inspect], None],
        learn: Callable[[Learn], None],
        options: ControllerOptions,
        enabled: bool = True,
        judge: Callable[[Judgement], None] = lambda judgement: None,
    ) -> None:
        self.pauses = 0
        self._enabled = enabled
        self._inspect = inspect
        self._learn = learn
        self._judge = judge
        self._desired = Desired(options)
        self._documents: dict[int, tuple[int, Mapping[str, Any]]] = {}  # job -> attempt, document
        self._rules: dict[tuple[int, str], ShapingRule] = {}
        self._ordered: set[int] = set()
        self._spines: dict[tuple[int, str], int] = {}

    def schedule(self, job: int, attempt: int) -> Mapping[str, Any] | None:
        """The document that the attempt's iteration client reads; None = no schedule."""
        number, document = self._documents.get(job, (attempt, None))
        return document if number == attempt else None

    def priority(self, job: int, host: str, burst: int) -> int:
        """What the job's `burst`, numbered as all of the world began, has on that host, the least first. Jobs
        without a rule are not shaped."""
        rule = self._rules.get((job, host))
        if rule is None:
            return 0
        if rule.bursts is None:
            return rule.priority
        return burst if rule.priority == 0 else LATER + burst

    def pinned(self, job: int, flows: tuple[Flow, ...]) -> tuple[Flow, ...]:
        """The job's flows over the spines that it keeps to; others where the network sends them."""
        if not self._spines:
            return flows
        return tuple(
            flow
            if flow.route or (spine := self._spines.get((job, flow.source))) is None
            else replace(flow, route=((spine, 1.0),))
            for flow in flows
        )

    def ordered(self, job: int) -> bool:
        """Does each burst of the job have a place of its own on some host?"""
        return job in self._ordered

    def aligned(self, alignment: Alignment, running: Mapping[int, Iterating]) -> bool:
        """Take a new plan, or new attempts under the old one; True when traffic classes or paths changed."""
        for gone in self._documents.keys() - running.keys():
            del self._documents[gone]
        if not self._enabled:
            alignment = _moved_once(alignment)
        self._obey(self._desired.aligned(alignment, running))
        before = self._rules, self._spines
        self._rules = {(r.job, r.host): r for r in alignment.shaping}
        self._spines = {(one.job, one.host): one.spine for one in alignment.paths}
        self._ordered = {r.job for r in alignment.shaping if r.bursts is not None}
        return before != (self._rules, self._spines)

    def follows(self, job: int) -> bool:
        """Does anything follow from what the job reports?"""
        return self._desired.follows(job)

    def report(self, attempt: int, report: Report) -> None:
        """One finished iteration."""
        self._obey(self._desired.report(attempt, report))

    def profiled(
        self, job: int, attempt: int, old: TrafficProfile | None, new: TrafficProfile | None
    ) -> None:
        """The job was inspected."""
        self._obey(self._desired.profiled(job, attempt, old, new))

    def _obey(self, orders: Iterable[Order]) -> None:
        for order in orders:
            if isinstance(order, Inspect):
                self._inspect(order)
            elif isinstance(order, Learn):
                self._learn(order)
            elif isinstance(order, (Release, Manage)):
                self._judge(order)
            elif order.grid is None:
                self._documents.pop(order.job, None)
            else:
                self.pauses += order.pause
                self._documents[order.job] = (order.attempt, msgspec.structs.asdict(order.grid))


def _moved_once(alignment: Alignment) -> Alignment:
    """The plan with nothing that keeps a job in its slot."""
    once = (replace(s, gate=False, inject_us=0, adjust=0.0, regulated=False) for s in alignment.schedules)
    return replace(alignment, schedules=tuple(once), together=())
