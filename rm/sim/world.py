"""The simulated world under the daemon's own cycle: hosts that obey, jobs that iterate, a network.

Event-driven and deterministic: equal arguments give equal results. The cycle sees exactly the
events that live hosts would send; every decision (queue order, placement, rotation, pause,
admission) is made by the code that runs in the daemon.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rm import arrays
from rm.collector import uncollected
from rm.core.jobs import events as ev
from rm.core.jobs.actions import Action, Launch, Start, Stop
from rm.core.jobs.state import ClusterState
from rm.core.model.acceptance import accept
from rm.core.model.host import Host
from rm.core.model.network.fabric import Fabric
from rm.core.model.network.links import LinkStats
from rm.core.model.progress import Progress
from rm.core.scheduling.cycle import Cycle, Outcome
from rm.core.scheduling.engine import Policies, Tuning
from rm.errors import RmError
from rm.policies.regulate.controller import ControllerOptions, Inspect
from rm.policies.regulate.desired import Learn
from rm.policies.regulate.verifying import Judgement, Manage, Release
from rm.sim.attempt import Attempt, Story
from rm.sim.network.port import Network
from rm.sim.result import JobResult, Result
from rm.sim.training import Handler, Training
from rm.sim.workload import Chance, Noise, SimJob

# The cycle's clock at the simulation's time 0: no time of a job is 0, which elsewhere means "unknown".
START_US = 1_000_000
INSPECTED_ITERATIONS = 5  # clean iterations for a new profile of one job (Metronome Sec. III-D)


@dataclass(frozen=True, slots=True)
class Settings:
    """How the world behaves; all times in microseconds.

    `regulation` False: no controller and no slot gating, only the first rotation. `launch_us` is
    the time from a decision to the first instruction, `restart_us` what a moved job loses besides.
    `lease_us` > 0: running jobs go back to the queue that often, with their iterations kept
    (a scheduler that places anew in rounds). `until_us` ends the run even if jobs are left.
    `record` keeps each iteration's duration. `keep_running`: a job that has made its iterations goes on,
    no longer measured, until the last one has made its own; so contention does not fade out.
    """

    seed: int = 0
    noise: Noise = field(default_factory=Noise)
    regulation: bool = True
    controller: ControllerOptions = field(default_factory=ControllerOptions)
    launch_us: int = 0
    restart_us: int = 0
    lease_us: int = 0
    until_us: int | None = None
    record: bool = False
    keep_running: bool = False


class World:
    """One run. Build it, call `run` once, read the `Result`."""

    def __init__(
        self,
        hosts: Sequence[Host],
        jobs: Iterable[SimJob],
        policies: Policies,
        network: Network,
        *,
        tuning: Tuning | None = None,
        fabric: Fabric | None = None,
        measured: Iterable[tuple[str, str, LinkStats]] = (),
        zone_delays_us: Iterable[tuple[str, int]] = (),
        settings: Settings | None = None,
    ) -> None:
        self.settings = own = settings or Settings()
        self.network = network
        self.now_us = 0.0
        self.cycle = Cycle(ClusterState(fabric=fabric), policies, tuning=tuning or Tuning())
        self.training = Training(
            self,
            network,
            {host.name: float(host.nic_bps) for host in hosts},
            policies.comm,
            own.controller,
            own.regulation,
            own.record,
            self._ended,
        )
        self._stories: list[Story] = []
        self._submissions = [self._made(job) for job in jobs]
        self._by_id: dict[int, Story] = {}
        self._arrays: dict[int, dict[int | None, Story]] = {}  # by their own ids, and index
        self._newest = 0  # the id of a submission
        self._attempts: dict[int, Attempt] = {}  # launched, running or about to
        self._heap: list[tuple[float, int, Handler, Any, Any]] = []
        self._number = 0  # of the next heap entry: equal times keep their order
        self._left = len(self._stories)
        self._events, self._alignments, self._worst = 0, 0, 100.0
        self._inspections, self._moved, self._released = 0, 0, 0
        self._inbox: list[ev.Event] = [ev.HostAdded(host) for host in hosts]
        self._inbox += [ev.HostUp(h.name, "boot", "sim") for h in hosts]
        self._inbox += [ev.Measured(a, b, stats) for a, b, stats in measured]
        self._inbox += [ev.ZoneMeasured(zone, delay_us) for zone, delay_us in zone_delays_us]

    def _made(self, job: SimJob) -> list[Story]:
        """What is submitted at once: a job, or the elements of an array."""
        tasks: list[int | None] = [None]
        if job.spec.array:
            tasks = [*arrays.each(arrays.parse(job.spec.array).mask)]
        made = []
        for task in tasks:
            chance = Chance(self.settings.seed, len(self._stories), job.noise or self.settings.noise)
            made.append(Story(job, chance, element=task))
            self._stories.append(made[-1])
        return made

    def at(self, at_us: float, handler: Handler, a: Any = None, b: Any = None) -> None:
        """Call `handler(a, b)` at that instant; equal instants in the order of these calls."""
        self._number += 1
        heapq.heappush(self._heap, (at_us, self._number, handler, a, b))

    def tell(self, at_us: float, event: ev.Event) -> None:
        """Let the cycle hear at that instant of something outside: a measurement, a drained host."""
        self.at(at_us, self._hear, event)

    def change(self, at_us: float, index: int, to: SimJob) -> None:
        """Let the job that was given as number `index` train otherwise from its first iteration after that
        instant: with another batch size, say. The cycle learns of it by what is measured."""
        self.at(at_us, self._change, index, to)

    def run(self, progress: Callable[[int, int], None] | None = None) -> Result:
        """Simulate until every job has ended, or `until_us`. `progress` hears (ended, all) jobs.

        Raises:
            RmError: jobs are left that no policy places although nothing runs any more.
        """
        with uncollected():  # no cycles are made
            return self._run(progress)

    def _run(self, progress: Callable[[int, int], None] | None) -> Result:
        self._turn()
        for stories in sorted(self._submissions, key=lambda s: s[0].sim.arrival_us):
            self.at(stories[0].sim.arrival_us, self._arrive, stories)
        if self.settings.lease_us:
            self.at(self.settings.lease_us, self._renew)
        heap, network, until = self._heap, self.network, self.settings.until_us
        while self._left:
            network_us = network.next_us()
            at = heap[0][0] if heap else None
            from_network = network_us is not None and (at is None or network_us <= at)
            if from_network:
                at = network_us
            if at is None:
                self._stuck()
                break
            if until is not None and at > until:
                break
            if at > self.now_us:
                self.now_us = at
            self._events += 1
            if from_network:
                self.training.carried(network.advance(self.now_us))
            else:
                _, _, handler, a, b = heapq.heappop(heap)
                handler(a, b)
            if self._inbox and not (heap and heap[0][0] <= self.now_us):
                self._turn()  # all events of one instant are one batch
                if progress is not None:
                    progress(len(self._stories) - self._left, len(self._stories))
        if until is not None and self._left:
            self.now_us = float(until)
            network.advance(self.now_us)
        return self._result()

    # -- the daemon's side ---------------------------------------------------------------------

    def _turn(self) -> None:
        """Turns of the daemon's cycle until the hosts have nothing more to say at this instant."""
        state = self.cycle.state
        while self._inbox:
            events, self._inbox = self._inbox, []
            if state.pending or any(isinstance(e, ev.JobSubmitted) for e in events):
                running, progressed = self.training.running, self.training.progressed
                told = tuple(self._progress(running[j]) for j in sorted(progressed) if j in running)
                progressed.clear()
                if told:
                    events.insert(0, ev.JobsProgressed(told))
            outcome = self.cycle.step(events, START_US + int(self.now_us))
            for refusal in outcome.refused.values():
                raise RmError(f"The cycle refused an event of the simulated hosts: {refusal}", "")
            for intent in outcome.intents:
                self._obey(intent.action)
                self._inbox.append(ev.ActionSettled(intent.id))
            if outcome.recompute is not None:  # stage 3: live another thread needs a while for it
                self._inbox.append(outcome.recompute.run())
            self._heed(outcome)
            for job_id in outcome.changes.jobs:
                job = state.jobs.get(job_id)
                if job is not None and job.state.final:
                    state.forget(job)  # the daemon prunes them too, later
        due_us = self.cycle.next_due_us()
        if due_us is not None:
            self.at(max(self.now_us, due_us - START_US), self._tick)

    def _heed(self, outcome: Outcome) -> None:
        """Let a new alignment reach the jobs, and inspections happen."""
        training = self.training
        alignment = self.cycle.state.alignment
        if outcome.realigned:
            self._alignments += 1
            self._worst = min(self._worst, alignment.score)
        if alignment.schedules or alignment.together or outcome.realigned:
            training.aligned(alignment)

    def _hear(self, event: ev.Event, _: object) -> None:
        self._inbox.append(event)

    def _change(self, index: int, to: SimJob) -> None:
        self._stories[index].then = to

    def _tick(self, _a: object, _b: object) -> None:
        self._inbox.append(ev.Tick())

    def _arrive(self, stories: Sequence[Story], _: object) -> None:
        spec = stories[0].sim.spec
        self._newest = max(self._newest + 1, self.cycle.state.next_job)
        if spec.array:
            self._arrays[self._newest] = {story.element: story for story in stories}
        else:
            stories[0].job = self._newest
            self._by_id[self._newest] = stories[0]
        accept(spec, runs=False)
        self._inbox.append(ev.JobSubmitted(self._newest, spec))

    def _story_of(self, job_id: int) -> Story:
        """An element's is known by its id from its first launch on."""
        if job_id not in self._by_id:
            job = self.cycle.state.jobs[job_id]
            story = self._arrays[job.array_job][job.array_task]
            story.job = job_id
            self._by_id[job_id] = story
        return self._by_id[job_id]

    def _progress(self, attempt: Attempt) -> Progress:
        served_us = self.now_us - (attempt.story.start_us or 0.0)
        return Progress(attempt.job, attempt.number, int(served_us), int(attempt.remaining_us))

    def _renew(self, _a: object, _b: object) -> None:
        """The leases are over: every running job goes back to the queue, with its checkpoint."""
        for job in sorted(self.training.running):
            self._moved += 1
            self._inbox.append(ev.RequeueRequested(job, "the end of its lease"))
        self.at(self.now_us + self.settings.lease_us, self._renew)

    # -- the hosts' side -----------------------------------------------------------------------

    def _obey(self, action: Action) -> None:
        """What the agent of the action's host would do and answer."""
        if isinstance(action, Launch):
            attempt = self._attempt(action)
            if action.hold:
                self._inbox.append(ev.TasksPrepared(action.job, action.attempt, action.host))
            else:
                self._started(attempt, action.host)
        elif isinstance(action, Start):
            self._started(self._attempts[action.job], action.host)
        elif isinstance(action, Stop):
            stopped = self._attempts.pop(action.job, None)
            if stopped is not None:
                self.training.stop(stopped)
            self._exited(action.job, action.attempt, action.host, signal=15, why=action.why)

    def _attempt(self, action: Launch) -> Attempt:
        known = self._attempts.get(action.job)
        if known is not None and known.number == action.attempt:
            return known
        story = self._story_of(action.job)
        placement = self.cycle.state.placed[action.job].placement
        story.attempts, story.hosts = story.attempts + 1, placement.hosts
        attempt = Attempt(
            story,
            action.attempt,
            placement,
            placement.hosts,
            tuple(dict.fromkeys((t.host, g) for t in placement.tasks for g in t.gpus)),
            bool(story.sim.spec.gpu_mem_bytes),
            len(placement.hosts),
        )
        self._attempts[action.job] = attempt
        return attempt

    def _started(self, attempt: Attempt, host: str) -> None:
        ranks = tuple(t.rank for t in attempt.placement.on(host))
        at_us = START_US + int(self.now_us)
        self._inbox.append(ev.TasksStarted(attempt.job, attempt.number, host, at_us, ranks))
        attempt.waiting_for -= 1
        if not attempt.waiting_for:
            delay_us = self.settings.launch_us
            if attempt.story.attempts > 1:
                delay_us += self.settings.restart_us
            self.at(self.now_us + delay_us, self._begin, attempt)

    def _begin(self, attempt: Attempt, _: object) -> None:
        if attempt.alive:
            self.training.begin(attempt, self.cycle.state.alignment)

    def _ended(self, attempt: Attempt) -> None:
        """The last iteration is done: every task exits with code 0."""
        attempt.story.end_us = self.now_us
        self._left -= 1
        if self.settings.keep_running:
            return
        del self._attempts[attempt.job]
        self.training.stop(attempt)
        for host in attempt.hosts:
            self._exited(attempt.job, attempt.number, host)

    def _exited(self, job: int, attempt: int, host: str, signal: int = 0, why: str = "") -> None:
        placed = self.cycle.state.placed[job].placement
        at_us = START_US + int(self.now_us)
        for task in placed.on(host):
            self._inbox.append(ev.TaskExited(job, attempt, host, task.rank, 0, signal, None, at_us, why=why))

    # -- inspections ---------------------------------------------------------------------------

    def inspect(self, command: Inspect) -> None:
        """Profile the named jobs anew, one after the other, each over a few clean iterations."""
        self._inspections += 1
        at_us = self.now_us
        for job in command.jobs:
            attempt = self._attempts.get(job)
            if attempt is not None:
                at_us += INSPECTED_ITERATIONS * attempt.iteration_us
                self.at(at_us, self._profiled, attempt)

    def _profiled(self, attempt: Attempt, _: object) -> None:
        if attempt.alive:
            self.training.profiled(attempt, self.cycle.state.jobs[attempt.job].traffic)

    def learn(self, news: Learn) -> None:
        """A profile has changed: the cycle hears of it, as live of the regulator's event."""
        self._inbox.append(ev.ProfileMeasured(news.job, news.attempt, news.profile, cooperative=True))

    def judge(self, judgement: Judgement) -> None:
        """Jobs are to be left alone, or managed again: the cycle hears of it, as live."""
        match judgement:
            case Release(released):
                if released.until_us is not None:
                    released = replace(released, until_us=START_US + released.until_us)
                self._released += 1
                self._inbox.append(ev.JobsReleased(released))
            case Manage(jobs, why):
                self._inbox.append(ev.JobsManaged(jobs, why))

    # -- the outcome ---------------------------------------------------------------------------

    def _stuck(self) -> None:
        pending = [self.cycle.state.jobs[j] for j in self.cycle.state.pending]
        if pending:
            reason = self.cycle.reason_of(pending[0])
            raise RmError(
                f"{len(pending)} jobs wait although nothing runs; the first, {pending[0].spec.name}: "
                f"{reason.message if reason else 'no reason is known'}.",
                "Give the scenario hosts that can take its jobs.",
            )

    def _result(self) -> Result:
        jobs = []
        for index, story in enumerate(self._stories):
            program = story.sim.program
            alone_us = program.alone_us if len(story.hosts) != 1 else program.compute_us
            jobs.append(
                JobResult(
                    job=story.job or index + 1,
                    name=story.sim.spec.name,
                    arrival_us=float(story.sim.arrival_us),
                    start_us=story.start_us,
                    end_us=story.end_us,
                    iterations=story.done,
                    mean_us=story.spent_us / story.done if story.done else 0.0,
                    alone_us=alone_us,
                    paused_us=story.paused_us,
                    hosts=story.hosts,
                    attempts=story.attempts,
                    high=story.sim.spec.is_high,
                    durations_us=tuple(story.durations_us),
                    waits=story.waits,
                )
            )
        return Result(
            jobs=tuple(jobs),
            span_us=self.now_us,
            links=self.network.usage(),
            events=self._events + self.training.joined,
            gpu_busy_us=self.training.gpu_busy_us,
            alignments=self._alignments,
            worst_score=self._worst,
            pauses=self.training.regulation.pauses,
            inspections=self._inspections,
            moved=self._moved,
            released=self._released,
        )
