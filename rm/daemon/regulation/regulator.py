"""Keeps running jobs interleaved: time-shifts, pauses and shaping as desired state on the hosts.

The alignment is the plan; this compares it with what was last sent to each host and sends the
difference. Nothing here is durable: after a restart the same plan is computed again, and until
it is, the hosts go on with the schedules they have.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.alignment import Alignment, Schedule, ShapingRule
from rm.core.model.traffic import TrafficProfile
from rm.core.ports import Clock
from rm.daemon.agents import Agents
from rm.daemon.regulation.inspection import Inspection
from rm.daemon.regulation.iterations import IterationBook
from rm.daemon.regulation.progress import Awaited, ProgressWatch, awaited_of
from rm.daemon.regulation.running import Place, Running, View, place_on, running_of
from rm.policies.regulate.controller import (
    Command,
    Controller,
    ControllerOptions,
    Inspect,
    Member,
    Pause,
    Recalculate,
    Report,
    Retime,
    member_of,
)
from rm.protocol import attempts as wire
from rm.protocol.attempts import Grid
from rm.protocol.codes import Code, code_of
from rm.protocol.line import shown
from rm.protocol.network import Regulate, Regulated, Shape, Shaped, Unshape
from rm.protocol.notifications import Iterations
from rm.protocol.request import Answer, Ordered, name_of

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 10.0
TURN_US = 250_000
# A job that reports no iteration for so long after its start does not call the iteration client.
SILENT_US = 3_000_000
PAUSES_PER_EPOCH = 1_000_000
REGULATE_US = 3_600_000_000
# A job without a clear profile is looked at again after so long.
PROFILE_AGAIN_US = 10_000_000


class ShapingSettings(Protocol):
    @property
    def enabled(self) -> bool: ...
    @property
    def queue_packets(self) -> int: ...


@dataclass(slots=True)
class Told:
    """The schedule that a job's hosts last got, on the daemon's clock."""

    attempt: int
    grid: Grid


class Regulator:
    """One thread; everything reaches it through its queue."""

    def __init__(
        self,
        *,
        agents: Agents,
        post: Callable[[ev.Event], None],
        clock: Clock,
        options: ControllerOptions,
        shaping: ShapingSettings,
        epoch: int,
    ) -> None:
        self._agents = agents
        self._post = post
        self._clock = clock
        self._controller = Controller(options)
        self._shaping = shaping
        self._epoch = epoch
        self._book = IterationBook()
        self._progress = ProgressWatch(post, clock)
        self._awaited: Mapping[int, Awaited] = {}  # as last seen by the leader's thread
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._inspection = Inspection(agents, self._queue.put, self._profile)
        self._thread = threading.Thread(target=self._run, name="regulator", daemon=True)
        self._view = View()
        self._told: dict[int, Told] = {}
        self._installed: dict[int, tuple[Schedule, ...]] = {}
        self._shaped: dict[tuple[int, str], tuple[Running, Place, ShapingRule]] = {}
        self._watched: dict[tuple[int, str], tuple[int, int]] = {}  # -> attempt, since_us of the host
        self._profile_due_us: dict[tuple[int, int], int | None] = {}  # None: it is under way, or known
        self._inspected: set[int] = set()  # components to install anew when all their jobs were looked at
        self._standings: Mapping[int, str | None] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(5)

    def recent(self, job: int) -> list[tuple[int, int]]:
        """The job's newest iterations, (begin, duration), oldest first; from any thread."""
        stats = self._book.find(job)
        return [(start_us, took_us) for start_us, took_us, _, _ in stats.items.copy()] if stats else []

    def standings(self) -> Mapping[int, str | None]:
        """`Controller.standings` as it was a moment ago; from any thread."""
        return self._standings

    def of(self, job: int) -> Mapping[str, Any]:
        """Iteration statistics for the API, and when the job's iterations are to begin."""
        return {**self._book.summary(job), "slot": self._slot(job)}

    def _slot(self, job: int) -> Mapping[str, int] | None:
        """The job's iterations begin at epoch + shift + n*period, as its reference ran when last heard."""
        schedule = next((s for s in self._view.alignment.schedules if s.job == job), None)
        if schedule is None or schedule.component not in self._installed:
            return None
        epoch_us = self._controller.epoch(schedule.component)
        if epoch_us is None:
            return None
        return {"epoch_us": epoch_us, "shift_us": schedule.shift_us, "period_us": schedule.period_us}

    # -- what others call ----------------------------------------------------------------------

    def aligned(self, alignment: Alignment, state: ClusterState) -> None:
        """The leader's news, in its thread: take a copy of what matters and let it go on."""
        view = View(alignment, running_of(state))
        if view.running or self._view.running:
            self._queue.put(lambda: self._see(view))
        awaited = awaited_of(state)
        if awaited != self._awaited:
            self._awaited = awaited
            self._queue.put(lambda: self._progress.expect(awaited))

    def iterations(self, host: str, message: Iterations) -> None:
        """Iteration reports of a host, in the fleet's thread."""
        self._queue.put(lambda: self._report(host, message))

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        due_us = 0
        while True:
            try:
                work = self._queue.get(timeout=TURN_US / 1e6)
            except queue.Empty:
                work = self._idle
            if work is None:
                return
            try:
                work()
                if self._clock.now_us() >= due_us:  # also while reports keep coming
                    due_us = self._clock.now_us() + TURN_US
                    self._look_after()
            except Exception:  # regulation must never take the daemon down with it
                log.exception("regulation met a defect of rm")

    def _idle(self) -> None:
        """Nothing came: only look after the jobs."""

    def _see(self, view: View) -> None:
        self._view = view
        self._reshape()
        self._reschedule()

    # -- shaping -------------------------------------------------------------------------------

    def _reshape(self) -> None:
        """Bring every host's traffic classes in line with the plan."""
        wanted: dict[tuple[int, str], tuple[Running, Place, ShapingRule]] = {}
        if self._shaping.enabled:
            for rule in self._view.alignment.shaping:
                running = self._view.running.get(rule.job)
                place = place_on(running, rule.host)
                if running is not None and place is not None and place.interface:
                    wanted[(rule.job, rule.host)] = (running, place, rule)
        for key in self._shaped.keys() - wanted.keys():
            running, place, _ = self._shaped.pop(key)
            self._call(
                place,
                running,
                Unshape(
                    job=running.job, attempt=running.attempt, epoch=self._epoch, interface=place.interface
                ),
            )
        for key, (running, place, rule) in wanted.items():
            old = self._shaped.get(key)
            if old is None or (old[0].attempt, *old[1:]) != (running.attempt, place, rule):
                self._shaped[key] = (running, place, rule)
                shape = Shape(
                    job=running.job,
                    attempt=running.attempt,
                    epoch=self._epoch,
                    interface=place.interface,
                    priority=rule.priority,
                    rate_bps=place.nic_bps,
                    class_rate_bps=rule.rate_bps,
                    ceil_bps=rule.ceil_bps,
                    queue_packets=self._shaping.queue_packets,
                )
                self._call(place, running, shape, on_answer=partial(_warn_unless_verified, running, place))

    def _call(
        self,
        place: Place,
        running: Running,
        request: Ordered[Answer],
        timeout_s: float = CALL_TIMEOUT_S,
        on_answer: Callable[[Answer], None] = lambda answer: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Ask a host; `on_answer` and `on_end` (in any case) are called in the fleet's thread."""

        def answered(f: Future[Answer]) -> None:
            error = f.exception()
            if error is None:
                on_answer(f.result())
            elif code_of(error) is not Code.NO_SUCH_ATTEMPT:
                op = name_of(type(request))
                log.warning("%s of job %d on %s: %s", op, running.job, place.host, error)
            on_end()

        self._agents.call(place.host, request, timeout_s).add_done_callback(answered)

    # -- schedules -----------------------------------------------------------------------------

    def _reschedule(self) -> None:
        """Install the components whose plan, or whose jobs' attempts, have changed."""
        running = self._view.running
        components: dict[int, list[Schedule]] = {}
        for schedule in self._view.alignment.schedules:
            if schedule.job in running:
                components.setdefault(schedule.component, []).append(schedule)
        scheduled = {s.job for group in components.values() for s in group}
        for job in self._told.keys() - scheduled:
            told = self._told.pop(job)
            if (gone := running.get(job)) is not None and gone.attempt == told.attempt:
                self._send_schedule(gone, None)
        for component in self._installed.keys() - components.keys():
            del self._installed[component]
            self._controller.remove(component)
        for component, group in components.items():
            plan = tuple(group)
            fresh = any(
                s.job in self._told and self._told[s.job].attempt != running[s.job].attempt for s in group
            )
            if fresh or self._installed.get(component) != plan:
                self._installed[component] = plan
                self._install(component, plan)

    def _install(self, component: int, plan: tuple[Schedule, ...]) -> None:
        jobs = {s.job for s in plan}
        links = [link.jobs for link in self._view.alignment.links if jobs & set(link.jobs)]
        for schedule in plan:
            stats = self._book.entry(schedule.job, self._view.running[schedule.job].attempt)
            stats.baseline_us = schedule.period_us
            self._drop_grid(schedule)
        commands = self._controller.install(
            component, [self._member(s) for s in plan], links, self._next_starts(jobs)
        )
        self._obey(commands)

    def _drop_grid(self, schedule: Schedule) -> None:
        """A job that had to wait for slots, and no longer has to, must not keep to the old ones."""
        told = self._told.get(schedule.job)
        if told is None or schedule.gate or schedule.inject_us or schedule.adjust:
            return  # nothing was sent, or its replacement follows
        if told.grid.gate or told.grid.inject_us or told.grid.adjust_us:
            self._tell(schedule.job, gate=False, inject_us=0, adjust_us=0)

    def _member(self, schedule: Schedule) -> Member:
        traffic = self._view.running[schedule.job].traffic
        compute_us = traffic.period_us - traffic.comm_us if traffic else None
        return member_of(schedule, (0 if schedule.high else 1, schedule.job), compute_us)

    def _next_starts(self, jobs: set[int]) -> dict[int, int]:
        """When each job's next iteration should begin, from its last report."""
        starts: dict[int, int] = {}
        for job in jobs:
            stats = self._book.find(job)
            running = self._view.running[job]
            if stats is not None and stats.attempt == running.attempt and stats.items:
                start_us, duration_us, _, _ = stats.items[-1]
                starts[job] = start_us + duration_us
        return starts

    def _report(self, host: str, message: Iterations) -> None:
        job, attempt = message.job, message.attempt
        known = self._book.find(job)
        if known is not None and known.attempt > attempt:
            return  # the last words of an attempt that is over
        stats = self._book.entry(job, attempt)
        offset_us = self._agents.clock_offset_us(host) or 0
        for rank, number, start_us, duration_us, paused_us, comm_us in message.items:
            if rank != 0:
                continue  # the ranks of a gang move together: one speaks for all
            self._progress.heard(job, attempt, number, duration_us)
            start_us -= offset_us + self._lead_us(job)
            stats.add(start_us, duration_us, paused_us, comm_us)
            self._inspection.heard(job, attempt, duration_us - paused_us, comm_us)
            self._obey(self._controller.report(Report(job, start_us, duration_us, paused_us, comm_us)))

    def _obey(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Retime():
                    self._tell(
                        command.job,
                        epoch_us=command.epoch,
                        shift_us=command.shift,
                        period_us=command.period,
                        inject_us=command.inject,
                        tolerance_us=command.tolerance,
                        gate=command.gate,
                        adjust_us=command.adjust,
                    )
                case Pause():
                    self._pause(command)
                case Inspect():
                    self._inspect(command)
                case Recalculate():
                    pass  # follows from the profiles that the inspection brings

    def _pause(self, command: Pause) -> None:
        running = self._view.running.get(command.job)
        if running is None:
            return
        told = self._told.get(command.job)
        last = told.grid.pause_seq if told and told.attempt == running.attempt else 0
        # above every number that an earlier leader gave: a host obeys only what it has not seen
        pauses = max(last, self._epoch * PAUSES_PER_EPOCH) + 1
        self._book.entry(command.job, running.attempt).pauses += 1
        self._tell(
            command.job,
            epoch_us=command.epoch,
            shift_us=command.shift,
            period_us=command.period,
            pause_length_us=command.length,
            pause_seq=pauses,
        )

    def _tell(self, job: int, **changes: Any) -> None:
        """Change a job's schedule on all of its hosts."""
        running = self._view.running.get(job)
        if running is None:
            return
        told = self._told.get(job)
        if told is None or told.attempt != running.attempt:
            told = self._told[job] = Told(running.attempt, Grid())
        told.grid = msgspec.structs.replace(told.grid, **changes)
        self._send_schedule(running, told.grid)

    def _send_schedule(self, running: Running, grid: Grid | None) -> None:
        for place in running.places:
            if grid is not None:
                offset_us = self._agents.clock_offset_us(place.host) or 0
                epoch_us = grid.epoch_us + offset_us + self._lead_us(running.job)
            local = msgspec.structs.replace(grid, epoch_us=epoch_us) if grid is not None else None
            request = wire.Schedule(
                job=running.job, attempt=running.attempt, epoch=self._epoch, schedule=local
            )
            self._call(place, running, request)

    # -- profiles and jobs that do not cooperate -----------------------------------------------

    def _look_after(self) -> None:
        """Jobs without a profile get one measured; silent jobs are regulated from outside."""
        self._progress.tell()
        self._standings = self._controller.standings()
        now_us = self._clock.now_us()
        scheduled = {s.job for s in self._view.alignment.schedules}
        for running in self._view.running.values():
            if running.low_comm or now_us - running.started_us < SILENT_US:
                continue
            key = (running.job, running.attempt)
            due_us = self._profile_due_us.get(key, 0)
            if running.traffic is None and due_us is not None and due_us <= now_us:
                self._profile_due_us[key] = None
                self._inspect_job(running)
            if running.job in scheduled and (self._is_watched(running) or not self._reports(running)):
                self._regulate_from_outside(running)
        for gone in [k for k in self._watched if k[0] not in self._view.running]:
            del self._watched[gone]
        for past in [k for k in self._profile_due_us if k[0] not in self._view.running]:
            del self._profile_due_us[past]

    def _reports(self, running: Running) -> bool:
        stats = self._book.find(running.job)
        return stats is not None and stats.attempt == running.attempt and stats.count > 0

    def _regulate_from_outside(self, running: Running) -> None:
        """Transparent mode: the host's pause agent freezes the job at its iteration boundaries."""
        for place in running.places:
            here = (running.attempt, place.since_us)
            if self._watched.get((running.job, place.host)) == here:
                continue
            self._watched[(running.job, place.host)] = here
            phases = len(running.traffic.phases) if running.traffic else 1
            request = Regulate(
                job=running.job,
                attempt=running.attempt,
                epoch=self._epoch,
                interface=place.interface,
                duration_us=REGULATE_US,
                rank=place.rank,
                phases=max(1, phases),
            )
            began_us = self._clock.now_us()
            self._call(
                place,
                running,
                request,
                REGULATE_US / 1e6 + 30,
                on_answer=partial(self._regulated, running),
                on_end=partial(self._watched_for, running, place, began_us),
            )

    def _regulated(self, running: Running, answer: Regulated) -> None:
        if answer.cooperative:
            self._queue.put(lambda: self._leave_to_itself(running))

    def _watched_for(self, running: Running, place: Place, began_us: int) -> None:
        if self._clock.now_us() - began_us >= REGULATE_US // 2:
            self._queue.put(lambda: self._watch_on(running, place))

    def _watch_on(self, running: Running, place: Place) -> None:
        """The agent has watched for as long as it was asked to: ask again."""
        if self._watched.pop((running.job, place.host), None) and self._is_running(running):
            self._regulate_from_outside(self._view.running[running.job])

    def _is_running(self, running: Running) -> bool:
        now = self._view.running.get(running.job)
        return now is not None and now.attempt == running.attempt

    def _leave_to_itself(self, running: Running) -> None:
        """A job that seemed silent had only been slow to start: from now on its own reports count."""
        mine = [k for k, v in self._watched.items() if (k[0], v[0]) == (running.job, running.attempt)]
        for key in mine:
            del self._watched[key]
        if mine and running.job in self._told:
            log.info("job %d reports its iterations by itself", running.job)
            self._tell(running.job)  # once more: what counts are its own instants

    def _lead_us(self, job: int) -> int:
        """From a job's iteration origin to what its reports time-stamp.

        Zero for a job that reports by itself; one that is watched from outside is seen when its
        first communication phase begins.
        """
        running = self._view.running.get(job)
        if running is None or running.traffic is None or not running.traffic.phases:
            return 0
        return min(p.offset_us for p in running.traffic.phases) if self._is_watched(running) else 0

    def _is_watched(self, running: Running) -> bool:
        return any(j == running.job and a == running.attempt for (j, _), (a, _) in self._watched.items())

    def _inspect(self, command: Inspect) -> None:
        log.info("component %d: inspecting %s (%s)", command.component, command.jobs, command.why)
        for job in command.jobs:
            if (running := self._view.running.get(job)) is not None:
                self._inspect_job(running)

    def _inspect_job(self, running: Running) -> None:
        hosts = {p.host for p in running.places}
        shared = any(
            not other.low_comm and hosts & {p.host for p in other.places}
            for other in self._view.running.values()
            if other.job != running.job
        )
        self._inspection.begin(running, self._reports(running), shared)

    def _profile(self, running: Running, profile: TrafficProfile | None) -> None:
        """An inspection's result: a changed profile is an event, and the plan that follows from it is
        installed even if it equals the old one; otherwise the old plan is, when all were looked at."""
        mine = {c for c, plan in self._installed.items() if any(s.job == running.job for s in plan)}
        if profile is not None and changed(running.traffic, profile):
            self._installed |= dict.fromkeys(mine, ())
            self._post(ev.ProfileMeasured(running.job, running.attempt, profile, self._reports(running)))
        else:
            if profile is None and running.traffic is None:
                again_us = self._clock.now_us() + PROFILE_AGAIN_US
                self._profile_due_us[(running.job, running.attempt)] = again_us
            self._inspected |= mine
        if self._inspection.busy:
            return
        again, self._inspected = self._inspected, set()
        for component in sorted(again):
            if plan := self._installed.get(component):
                self._install(component, plan)


def _warn_unless_verified(running: Running, place: Place, answer: Shaped) -> None:
    if not answer.verified:
        missing = shown(", ".join(answer.missing)) or "a working classifier"
        log.warning("shape of job %d on %s has no effect: no %s", running.job, place.host, missing)


def changed(old: TrafficProfile | None, new: TrafficProfile, share: float = 0.05) -> bool:
    """Did period, communication time or peak move by more than `share`?"""
    if old is None:
        return True
    pairs = (
        (old.period_us, new.period_us),
        (old.comm_us, new.comm_us),
        (old.peak_bps, new.peak_bps),
    )
    return any(abs(a - b) > share * a for a, b in pairs)
