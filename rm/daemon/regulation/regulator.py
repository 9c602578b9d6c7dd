"""Keeps running jobs interleaved: time-shifts, pauses and shaping as desired state on the hosts.

The alignment is the plan; this compares it with what was last sent to each host and sends the
difference. Nothing here is durable: after a restart the same plan is computed again, and until
it is, the hosts go on with the schedules they have.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import msgspec

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.network.alignment import Alignment, in_words
from rm.core.ports import Clock
from rm.daemon.agents import Agents
from rm.daemon.regulation.asking import HostCalls
from rm.daemon.regulation.inspection import Inspection, watch_us
from rm.daemon.regulation.iterations import IterationBook
from rm.daemon.regulation.paths import Paths
from rm.daemon.regulation.progress import Awaited, ProgressWatch, awaited_of
from rm.daemon.regulation.reporting import Reports
from rm.daemon.regulation.running import Place, Running, RunningJobs, View
from rm.daemon.regulation.shaping import Shaping, ShapingSettings
from rm.daemon.regulation.slowed import SlowedWatch
from rm.daemon.regulation.unmanaged import Unmanaged
from rm.daemon.regulation.watching import Watching
from rm.policies.regulate.controller import ControllerOptions, Inspect, Report
from rm.policies.regulate.desired import Desired, Learn, Order, Tell
from rm.policies.regulate.iterating import Iterating
from rm.policies.regulate.verifying import Manage, Release
from rm.protocol import attempts as wire
from rm.protocol.notifications import Iterations

log = logging.getLogger(__name__)

TURN_US = 250_000
# A job that reports no iteration for so long after its start does not call the iteration client.
SILENT_US = 3_000_000
PAUSES_PER_EPOCH = 1_000_000
# A job without a clear profile is looked at again after so long.
PROFILE_AGAIN_US = 10_000_000


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
        dscp: Sequence[int],
        epoch: int,
        demand: str = "ring",
    ) -> None:
        """`demand`: how a job's rate spreads over the links of its hosts, as the policy takes it."""
        self._agents = agents
        self._calls = HostCalls(agents)
        self._post = post
        self._clock = clock
        # above every number that an earlier leader gave: a host obeys only a pause that it has not seen
        self._desired = Desired(options, pauses_from=epoch * PAUSES_PER_EPOCH)
        self._shaping = Shaping(self._calls, shaping, epoch)
        self._paths = Paths(self._calls, dscp, epoch)
        self._dscp = dscp
        self._epoch = epoch
        self._book = IterationBook()
        self._progress = ProgressWatch(post, clock)
        self._unmanaged = Unmanaged(demand)
        self._slowed = SlowedWatch(post, clock, self._unmanaged.of)
        self._running = RunningJobs()  # used by the leader's thread
        self._awaited: Mapping[int, Awaited] = {}  # as last seen by the leader's thread
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._waiting = Reports(lambda job: self._queue.put(lambda: self._report(job)))
        self._inspection = Inspection(agents, self._queue.put, self._shared, self._profiled)
        self._watching = Watching(self._calls, clock, epoch, self._queue.put, self._tell_again)
        self._thread = threading.Thread(target=self._run, name="regulator", daemon=True)
        self._view = View()
        self._iterating: dict[int, tuple[Running, Iterating]] = {}
        self._profile_due_us: dict[tuple[int, int], int | None] = {}  # None: it is under way, or known
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
        slot = self._desired.slot(job)
        return None if slot is None else asdict(slot)

    # -- what others call ----------------------------------------------------------------------

    def aligned(self, alignment: Alignment, state: ClusterState) -> None:
        """The leader's news, in its thread: take a copy of what matters and let it go on."""
        view = View(alignment, self._running.of(state), state.fabric)
        if view.running or self._view.running:
            self._queue.put(lambda: self._see(view))
        awaited = awaited_of(state)
        if awaited != self._awaited:
            self._awaited = awaited
            self._queue.put(lambda: self._progress.expect(awaited))

    def iterations(self, host: str, message: Iterations) -> None:
        """Iteration reports of a host, in the fleet's thread."""
        self._waiting.add(host, message)

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
        before, self._view = self._view, view
        self._shaping.follow(view.alignment.shaping, view)
        self._watching.see(view.running)
        self._book.see(view.running)
        self._slowed.see(view.alignment.links)
        self._unmanaged.see(view)
        for schedule in view.alignment.schedules:
            if (running := view.running.get(schedule.job)) is not None:
                self._book.entry(running.job, running.attempt).baseline_us = schedule.period_us
        self._iterating = {job: self._known(running) for job, running in view.running.items()}
        iterating = {job: known[1] for job, known in self._iterating.items()}
        orders = self._desired.aligned(view.alignment, iterating)
        self._obey(orders)
        self._follow_paths()
        just_told = {order.job for order in orders if isinstance(order, Tell)}
        for running in view.running.values():
            if running.job not in just_told:
                self._catch_up(running, before.running.get(running.job))

    def _follow_paths(self) -> None:
        """Jobs that change their spines by themselves have no rule for it on those hosts."""
        view = self._view
        paths = view.alignment.paths
        spines = {job: self._desired.spines(job) for job in {one.job for one in paths} & view.running.keys()}
        self._paths.follow((one for one in paths if one.host not in spines.get(one.job, ())), view)

    def _catch_up(self, running: Running, before: Running | None) -> None:
        """Tell the job's hosts that have said hello again: what was sent before may not have reached them.

        Not the pause, which the others made at its time: it would move the job to where nobody expects it.
        """
        told = self._desired.told(running.job)
        if before is None or told is None or told.attempt != running.attempt:
            return
        since_us = {place.host: place.since_us for place in before.places}
        back = tuple(p for p in running.places if since_us.get(p.host, p.since_us) != p.since_us)
        if back:
            grid = told.grid and msgspec.structs.replace(told.grid, pause_length_us=0)
            self._tell(replace(told, grid=grid, pause=False), back)

    def _known(self, running: Running) -> tuple[Running, Iterating]:
        """What regulation knows of the job; the same as before when that has not changed."""
        stats = self._book.find(running.job)
        next_us = stats.next_start_us if stats is not None and stats.attempt == running.attempt else None
        before = self._iterating.get(running.job)
        if before is not None and before[0] is running and before[1].next_start_us == next_us:
            return before
        traffic = running.traffic
        return running, Iterating(
            running.attempt,
            traffic.period_us - traffic.comm_us if traffic else None,
            next_us,
            traffic.period_us if traffic else None,
            running.high,
            traffic.peak_bps if traffic else None,
        )

    # -- reports and orders --------------------------------------------------------------------

    def _report(self, number: int) -> None:
        reported = self._waiting.take(number)
        if reported is None:
            return
        host, job, attempt, items = reported
        known = self._book.find(job)
        if known is not None and known.attempt > attempt:
            return  # the last words of an attempt that is over
        stats = self._book.entry(job, attempt)
        offset_us = self._agents.clock_offset_us(host) or 0
        running = self._view.running.get(job)
        lead_us = offset_us + self._lead_us(running)
        alone_us = running.traffic.period_us if running is not None and running.traffic else None
        for _, number, start_us, duration_us, paused_us, comm_us in items:
            self._progress.heard(job, attempt, number, duration_us)
            self._slowed.heard(job, attempt, duration_us, paused_us, alone_us)
            start_us -= lead_us
            stats.add(start_us, duration_us, paused_us, comm_us)
            self._inspection.heard(job, attempt, duration_us - paused_us, comm_us)
            report = Report(job, start_us, duration_us, paused_us, comm_us)
            orders = self._desired.report(attempt, report, self._clock.now_us())
            self._obey(orders)
            if orders and self._view.alignment.plans:
                self._follow_paths()

    def _obey(self, orders: Iterable[Order]) -> None:
        for order in orders:
            match order:
                case Tell():
                    self._tell(order)
                case Inspect():
                    self._inspect(order)
                case Learn():
                    running = self._view.running[order.job]
                    self._post(
                        ev.ProfileMeasured(order.job, order.attempt, order.profile, self._reports(running))
                    )
                case Release():
                    log.info("jobs %s: %s", order.released.jobs, in_words(order.released))
                    self._post(ev.JobsReleased(order.released))
                case Manage():
                    log.info("jobs %s are managed again: %s", order.jobs, order.why)
                    self._post(ev.JobsManaged(order.jobs, order.why))

    def _tell(self, order: Tell, places: tuple[Place, ...] = ()) -> None:
        """Change a job's schedule on all of its hosts, or at these places, each on its own clock."""
        running = self._view.running[order.job]
        if order.pause:
            self._book.entry(order.job, order.attempt).pauses += 1
        for place in places or running.places:
            local = order.grid
            if local is not None:
                offset_us = self._agents.clock_offset_us(place.host) or 0
                epoch_us = local.epoch_us + offset_us + self._lead_us(running)
                spines = self._desired.spines(order.job).get(place.host, ()) if local.starts_us else ()
                dscps = [self._dscp[spine] for spine in spines if spine < len(self._dscp)]
                dscps = dscps if len(dscps) == len(local.starts_us) else []
                local = msgspec.structs.replace(local, epoch_us=epoch_us, dscps=dscps)
            request = wire.Schedule(job=order.job, attempt=order.attempt, epoch=self._epoch, schedule=local)
            self._calls.ask(running, place, request)

    def _tell_again(self, running: Running) -> None:
        """The job's own instants count from now on, no longer those of its first communication."""
        told = self._desired.told(running.job)
        if told is not None and told.attempt == running.attempt:
            self._tell(replace(told, pause=False))

    # -- profiles and jobs that do not cooperate -----------------------------------------------

    def _look_after(self) -> None:
        """Jobs without a profile get one measured; silent jobs are regulated from outside."""
        self._progress.tell()
        self._slowed.tell()
        self._unmanaged.turn()
        self._obey(self._desired.passed(self._clock.now_us()))
        self._standings = self._desired.standings()
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
            if running.job in scheduled and (self._watching.watches(running) or not self._reports(running)):
                self._watching.watch(running)
        for past in [k for k in self._profile_due_us if k[0] not in self._view.running]:
            del self._profile_due_us[past]

    def _reports(self, running: Running) -> bool:
        stats = self._book.find(running.job)
        return stats is not None and stats.attempt == running.attempt and stats.count > 0

    def _lead_us(self, running: Running | None) -> int:
        """From a job's iteration origin to what its reports time-stamp.

        Zero for a job that reports by itself; one that is watched from outside is seen when its
        first communication phase begins.
        """
        if running is None or running.traffic is None or not running.traffic.phases:
            return 0
        return min(p.offset_us for p in running.traffic.phases) if self._watching.watches(running) else 0

    def _inspect(self, command: Inspect) -> None:
        log.info("component %d: inspecting %s (%s)", command.component, command.jobs, command.why)
        for job in command.jobs:
            if (running := self._view.running.get(job)) is not None:
                self._inspect_job(running)

    def _inspect_job(self, running: Running) -> None:
        stats = self._book.find(running.job) if self._reports(running) else None
        iteration_us = stats.usual_us if stats is not None else None
        if iteration_us is None and running.traffic is not None:
            iteration_us = running.traffic.period_us
        ran_us = self._clock.now_us() - running.started_us
        self._inspection.begin(running, stats is not None, watch_us(iteration_us, ran_us))

    def _shared(self, running: Running) -> bool:
        """Do other jobs communicate on its hosts now?"""
        hosts = {p.host for p in running.places}
        return any(
            not other.low_comm and hosts & {p.host for p in other.places}
            for other in self._view.running.values()
            if other.job != running.job
        )

    def _profiled(self, running: Running, profile: TrafficProfile | None) -> None:
        if profile is None and running.traffic is None:
            again_us = self._clock.now_us() + PROFILE_AGAIN_US
            self._profile_due_us[(running.job, running.attempt)] = again_us
        self._obey(self._desired.profiled(running.job, running.attempt, running.traffic, profile))
