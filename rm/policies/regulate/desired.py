"""What the hosts are to know, so that running jobs keep to their slots: decided here, and nowhere else.

Plans, iteration reports and measured profiles go in; orders come out. The daemon's regulator sends them to
hosts and the simulator obeys them itself, so both worlds tell the hosts the same for the same reports.
Pure: times are arguments, in microseconds of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment, Schedule
from rm.policies.regulate.controller import (
    Command,
    Controller,
    ControllerOptions,
    Inspect,
    Pause,
    Recalculate,
    Report,
    Retime,
    member_of,
)
from rm.policies.regulate.iterating import Iterating
from rm.policies.regulate.planned import Changed, Plans
from rm.policies.regulate.verifying import Manage, Release, Verifier
from rm.protocol.attempts import Grid

CHANGED_SHARE = 0.05  # of a profile's numbers: less is noise of the measurement


@dataclass(frozen=True, slots=True)
class Tell:
    """Give the hosts of a job this grid, None = it has none any more. `pause`: it asks for a new pause."""

    job: int
    attempt: int
    grid: Grid | None
    pause: bool = False


@dataclass(frozen=True, slots=True)
class Learn:
    """The job's traffic is not what the plan was made for: a new plan is needed."""

    job: int
    attempt: int
    profile: TrafficProfile


Order = Tell | Inspect | Learn | Release | Manage


@dataclass(frozen=True, slots=True)
class Slot:
    """Iterations begin at epoch + shift + n*period, as the reference ran when last heard."""

    epoch_us: int
    shift_us: int
    period_us: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """A component's schedules, and the attempt of each of its jobs."""

    schedules: tuple[Schedule, ...] = ()
    attempts: tuple[int, ...] = ()


class Desired:
    """Compares the plan with what the hosts know. Each method returns the orders that follow.

    Args:
        pauses_from: the numbers of pauses are above this one and only rise: a host obeys a pause
            whose number it has not seen.
    """

    def __init__(self, options: ControllerOptions, pauses_from: int = 0) -> None:
        self._controller = Controller(options)
        self._verifier = Verifier(options)
        self._plans = Plans()
        self._pauses_from = pauses_from
        self._alignment: Alignment = NOTHING_TO_ALIGN
        self._links_of: dict[int, list[int]] | None = None  # of each job, by number; None: nobody asked yet
        self._running: dict[int, Iterating] = {}
        self._starts: dict[int, int] = {}  # of each job's next iteration
        self._told: dict[int, Tell] = {}  # the newest of each running job that has or had a grid
        self._installed: dict[int, _Plan] = {}  # by component
        self._inspected: dict[int, set[int]] = {}  # component -> jobs whose inspection is not over

    def told(self, job: int) -> Tell | None:
        """The schedule that the job's hosts got last."""
        return self._told.get(job)

    def spines(self, job: int) -> Mapping[str, tuple[int, ...]]:
        """See `Plans.spines`."""
        return self._plans.spines(job)

    def slot(self, job: int) -> Slot | None:
        """The job's slot once its reference was heard."""
        schedule = next((s for s in self._alignment.schedules if s.job == job), None)
        epoch_us = None if schedule is None else self._controller.epoch(schedule.component)
        if schedule is None or epoch_us is None:
            return None
        return Slot(epoch_us, schedule.shift_us, schedule.period_us)

    def standings(self) -> Mapping[int, str | None]:
        """See `Controller.standings` and `Plans.standings`."""
        return self._plans.standings() | self._controller.standings()

    def aligned(self, alignment: Alignment, running: Mapping[int, Iterating]) -> list[Order]:
        """A new plan, or other jobs or attempts under the old one: install the components that differ."""
        self._alignment, self._running, self._links_of = alignment, dict(running), None
        self._starts = {j: r.next_start_us for j, r in running.items() if r.next_start_us is not None}
        components: dict[int, list[Schedule]] = {}
        for schedule in alignment.schedules:
            if schedule.job in running:
                components.setdefault(schedule.component, []).append(schedule)
        scheduled = {s.job for group in components.values() for s in group}
        plans = [plan for plan in alignment.plans if scheduled.isdisjoint(plan.iterations)]
        planned = self._plans.aligned(plans, running, self._starts)
        orders = self._withdraw(scheduled | self._plans.jobs)
        orders += self._follow(planned)
        for component in self._installed.keys() - components.keys():
            del self._installed[component]
            self._inspected.pop(component, None)
            self._controller.remove(component)
        for component, group in components.items():
            plan = _Plan(tuple(group), tuple(running[s.job].attempt for s in group))
            if self._installed.get(component) != plan:
                orders += self._install(component, plan)
        return [*orders, *self._verifier.aligned(alignment, running)]

    def passed(self, now_us: int) -> list[Order]:
        """It is so late now."""
        return [*self._verifier.passed(now_us)]

    def follows(self, job: int) -> bool:
        """Is it one of the running jobs of the last alignment?"""
        return job in self._running

    def report(self, attempt: int, report: Report, now_us: int | None = None) -> list[Order]:
        """One finished iteration of a running job; of other attempts nothing follows. `now_us` is by a clock
        that no host sets; without it the report's own end counts."""
        mine = self._running.get(report.job)
        if mine is None or mine.attempt != attempt:
            return []
        end_us = self._starts[report.job] = report.start + report.duration
        judged = self._verifier.report(report.job, report.duration, end_us if now_us is None else now_us)
        planned = self._follow(self._plans.report(report.job, end_us, report.duration - report.paused))
        return [*self._obey(self._controller.report(report), {}), *planned, *judged]

    def profiled(
        self, job: int, attempt: int, old: TrafficProfile | None, new: TrafficProfile | None
    ) -> list[Order]:
        """A job was measured anew; None = no profile was clear.

        A changed profile is to be learnt, and the plan that follows is installed even if it equals
        the old one. Otherwise the old plan is, when the component's other inspections are over.
        """
        mine = self._running.get(job)
        if mine is None or mine.attempt != attempt:
            return []
        component = next(
            (c for c, p in self._installed.items() if any(s.job == job for s in p.schedules)), None
        )
        if new is not None and changed(old, new):
            if component is not None:
                self._installed[component] = _Plan()
            return [Learn(job, attempt, new)]
        if component is None or component not in self._inspected:
            return []
        self._inspected[component].discard(job)
        if self._inspected[component]:
            return []
        return self._install(component, self._installed[component])

    # -- how -----------------------------------------------------------------------------------

    def _follow(self, changed: Changed) -> list[Order]:
        """What hosts are told of plans of single iterations. Numbers of pauses only rise."""
        orders: list[Order] = []
        for job, grid in changed.grids.items():
            seq = self._grid(job).pause_seq
            orders.append(self._tell(job, _planned(grid or Grid(), seq)))
        return [*orders, *(Inspect(job, (job,), "late") for job in changed.unruly)]

    def _withdraw(self, scheduled: set[int]) -> list[Order]:
        """Jobs that have left the plan lose their grids; those of ended attempts are gone with them.

        That a job has none any more stays known: a host that was away learns it when it says hello.
        """
        orders: list[Order] = []
        for job in sorted(self._told.keys() - scheduled):
            told, now = self._told.pop(job), self._running.get(job)
            if now is not None and now.attempt == told.attempt:
                none = self._told[job] = Tell(job, told.attempt, None)
                if told.grid is not None:
                    orders.append(none)
        return orders

    def _install(self, component: int, plan: _Plan) -> list[Order]:
        self._installed[component] = plan
        self._inspected.pop(component, None)
        jobs = {s.job for s in plan.schedules}
        links = self._shared_by(jobs)
        members = [
            member_of(s, (0 if s.high else 1, s.job), self._running[s.job].compute_us) for s in plan.schedules
        ]
        starts = {job: self._starts[job] for job in jobs if job in self._starts}
        free = {job: Grid(pause_seq=self._grid(job).pause_seq) for job in jobs}
        orders = self._obey(self._controller.install(component, members, links, starts), free)
        told = {order.job for order in orders if isinstance(order, Tell)}
        for schedule in plan.schedules:
            if schedule.job not in told and _misleads(self._grid(schedule.job), schedule):
                orders.append(self._tell(schedule.job, free[schedule.job]))
        return orders

    def _shared_by(self, jobs: Iterable[int]) -> list[tuple[int, ...]]:
        """The jobs of each link that some of these are on, in the alignment's order."""
        links = self._alignment.links
        if self._links_of is None:
            self._links_of = {}
            for number, link in enumerate(links):
                for job in link.jobs:
                    self._links_of.setdefault(job, []).append(number)
        return [links[n].jobs for n in sorted({n for job in jobs for n in self._links_of.get(job, ())})]

    def _obey(self, commands: Iterable[Command], grids: Mapping[int, Grid]) -> list[Order]:
        """The orders for these commands, one for a job at most; `grids` replace what jobs got before."""
        tells: dict[int, Order] = {}
        others: list[Order] = []
        grid_of = dict(grids)
        for command in commands:
            if isinstance(command, Inspect):
                self._inspected[command.component] = set(command.jobs)
                others.append(command)
                continue
            if isinstance(command, Recalculate):
                continue  # the plan follows from the profiles that the inspection brings
            old = grid_of.get(command.job) or self._grid(command.job)
            pause = isinstance(command, Pause)
            if isinstance(command, Pause):
                grid = _paused(old, command, max(old.pause_seq, self._pauses_from) + 1)
            else:
                grid = _retimed(old, command)
            grid_of[command.job] = grid
            tells[command.job] = self._tell(command.job, grid, pause)
        return [*tells.values(), *others]

    def _grid(self, job: int) -> Grid:
        """The schedule that the hosts of the job's present attempt got last."""
        told = self._told.get(job)
        if told is None or told.grid is None or told.attempt != self._running[job].attempt:
            return Grid()
        return told.grid

    def _tell(self, job: int, grid: Grid, pause: bool = False) -> Tell:
        told = self._told[job] = Tell(job, self._running[job].attempt, grid, pause)
        return told


def _misleads(grid: Grid, schedule: Schedule) -> bool:
    """Must a job not go on with the grid of the plan before, for which nothing new is known yet?

    A job that is to wait for slots again keeps its old ones meanwhile: others count on them. A slot
    of another period would slow the job down, and a pause that it has not made yet would move it
    to where nobody expects it.
    """
    holds = grid.gate or grid.inject_us or grid.adjust_us
    waits = schedule.gate or schedule.inject_us or schedule.adjust
    if holds and waits and grid.period_us == schedule.period_us:
        return False
    return bool(holds or grid.pause_length_us)


def _planned(grid: Grid, pause_seq: int) -> Grid:
    return Grid(
        epoch_us=grid.epoch_us,
        period_us=grid.period_us,
        tolerance_us=grid.tolerance_us,
        starts_us=grid.starts_us,
        length_us=grid.length_us,
        paces_bps=grid.paces_bps,
        pause_seq=pause_seq,
    )


def _retimed(old: Grid, command: Retime) -> Grid:
    return Grid(
        epoch_us=command.epoch,
        shift_us=command.shift,
        period_us=command.period,
        inject_us=command.inject,
        tolerance_us=command.tolerance,
        gate=command.gate,
        adjust_us=command.adjust,
        pause_length_us=old.pause_length_us,
        pause_seq=old.pause_seq,
    )


def _paused(old: Grid, command: Pause, number: int) -> Grid:
    return Grid(
        epoch_us=command.epoch,
        shift_us=command.shift,
        period_us=command.period,
        inject_us=old.inject_us,
        tolerance_us=old.tolerance_us,
        gate=old.gate,
        adjust_us=old.adjust_us,
        pause_length_us=command.length,
        pause_seq=number,
    )


def changed(old: TrafficProfile | None, new: TrafficProfile) -> bool:
    """Did period, communication time or peak move by more than `CHANGED_SHARE`?"""
    if old is None:
        return True
    pairs = ((old.period_us, new.period_us), (old.comm_us, new.comm_us), (old.peak_bps, new.peak_bps))
    return any(abs(a - b) > CHANGED_SHARE * a for a, b in pairs)
