"""Keeps simulated jobs interleaved: the daemon's controller over the simulator's iteration reports.

The part that on live hosts is played by the regulator thread and the agents; decisions are the
controller's (rm/policies/regulate), waiting is the hosts' own rule (slots.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rm.core.model.alignment import NOTHING_TO_ALIGN, Alignment, Schedule
from rm.policies.regulate.controller import (
    Command,
    Controller,
    ControllerOptions,
    Inspect,
    Pause,
    Report,
    Retime,
    member_of,
)


@dataclass(slots=True)
class Told:
    """What a job's hosts know: the schedule document and the pauses they have been given."""

    attempt: int
    document: dict[str, Any] = field(default_factory=lambda: {"gate": False, "inject_us": 0, "pause_seq": 0})


@dataclass(slots=True)
class Seen:
    """What regulation needs to know of a running job."""

    attempt: int
    compute_us: int
    next_start_us: int | None = None


class Regulation:
    """Time-shifts, pauses and injected idle time of all running jobs.

    `enabled` False takes the controller away and leaves the initial rotation: each job is put
    into its slot once, when its plan is installed.
    """

    def __init__(
        self, inspect: Callable[[Inspect], None], options: ControllerOptions, enabled: bool = True
    ) -> None:
        self.enabled = enabled
        self.pauses = 0
        self._inspect = inspect
        self._controller = Controller(options)
        self._alignment: Alignment = NOTHING_TO_ALIGN
        self._installed: dict[int, tuple[Schedule, ...]] = {}
        self._told: dict[int, Told] = {}
        self._priorities: dict[tuple[int, str], int] = {}

    def schedule(self, job: int) -> Mapping[str, Any] | None:
        """The document that the job's iteration client reads; None = no schedule."""
        told = self._told.get(job)
        return told.document if told is not None else None

    def priority(self, job: int, host: str) -> int:
        """The job's traffic class on that host, 0 = first; jobs without a rule are not shaped."""
        return self._priorities.get((job, host), 0)

    def aligned(self, alignment: Alignment, running: Mapping[int, Seen]) -> bool:
        """Take a new plan, or new attempts under the old one; True when traffic classes changed."""
        self._alignment = alignment
        components: dict[int, list[Schedule]] = {}
        for schedule in alignment.schedules:
            if schedule.job in running:
                components.setdefault(schedule.component, []).append(schedule)
        scheduled = {s.job for group in components.values() for s in group}
        for job in self._told.keys() - scheduled:
            del self._told[job]
        for component in self._installed.keys() - components.keys():
            del self._installed[component]
            self._controller.remove(component)
        for component, group in components.items():
            plan = tuple(group)
            fresh = any(
                s.job in self._told and self._told[s.job].attempt != running[s.job].attempt for s in plan
            )
            if fresh or self._installed.get(component) != plan:
                self._install(component, plan, running)
        before, self._priorities = self._priorities, {(r.job, r.host): r.priority for r in alignment.shaping}
        return before != self._priorities

    def reinstall(self, component: int, running: Mapping[int, Seen]) -> None:
        """After an inspection: start afresh even if the plan is the same."""
        self._installed.pop(component, None)
        self.aligned(self._alignment, running)

    def report(self, report: Report, running: Mapping[int, Seen]) -> None:
        """One finished iteration."""
        if self.enabled and self._installed:
            self._obey(self._controller.report(report), running)

    def _install(self, component: int, plan: tuple[Schedule, ...], running: Mapping[int, Seen]) -> None:
        self._installed[component] = plan
        jobs = {s.job for s in plan}
        links = [link.jobs for link in self._alignment.links if jobs & set(link.jobs)]
        members = [member_of(s, (0 if s.high else 1, s.job), running[s.job].compute_us) for s in plan]
        starts = {j: at for j in jobs if (at := running[j].next_start_us) is not None}
        for schedule in plan:  # the grid of the plan before is nobody's any more
            told = self._told.get(schedule.job)
            if told is not None:
                kept = {"pause_seq": told.document["pause_seq"]}
                told.document = {"gate": False, "inject_us": 0, **kept}
        self._obey(self._controller.install(component, members, links, starts), running)

    def _obey(self, commands: list[Command], running: Mapping[int, Seen]) -> None:
        for command in commands:
            if isinstance(command, Retime):
                self._tell(
                    command.job,
                    running,
                    epoch_us=command.epoch,
                    shift_us=command.shift,
                    period_us=command.period,
                    inject_us=command.inject if self.enabled else 0,
                    tolerance_us=command.tolerance,
                    gate=command.gate and self.enabled,
                    adjust_us=command.adjust if self.enabled else 0,
                )
            elif isinstance(command, Pause):
                self.pauses += 1
                self._tell(
                    command.job,
                    running,
                    epoch_us=command.epoch,
                    shift_us=command.shift,
                    period_us=command.period,
                    pause_length_us=command.length,
                    pause_seq=self.pauses,
                )
            elif isinstance(command, Inspect):
                self._inspect(command)

    def _tell(self, job: int, running: Mapping[int, Seen], **changes: Any) -> None:
        seen = running.get(job)
        if seen is None:
            return
        told = self._told.get(job)
        if told is None or told.attempt != seen.attempt:
            told = self._told[job] = Told(seen.attempt)
        told.document = told.document | changes
