"""Model hosts for a journal under other policies: each job takes there what it really took.

A job's attempt starts after the job's own time from placement to start, and each of its tasks
ends as in the attempt of the journal that ended by itself. A host that is silent goes on, and what
happened meanwhile is found by `rm.core.jobs.reconcile` when it answers again; one that booted has
lost what it ran. A host that refused to launch a job refuses it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Action, Collect, Discard, Launch, Start, Stop
from rm.core.jobs.handlers.transitions import JOB_FAULTS
from rm.core.jobs.reconcile import Reported, ReportedTask, reconcile, worth_repeating
from rm.core.jobs.state import ClusterState
from rm.core.journal.journal import Start as JournalStart
from rm.core.model.host import HostState
from rm.core.model.job import Job, JobState
from rm.sim.recording import Exit, Recording, Run, Story
from rm.sim.renamed import Renamed

Attempt = tuple[int, int]  # (job, attempt)
Handler = Callable[[int], list[ev.Event]]
STOPPED = 143  # the code of a task that SIGTERM ended


@dataclass(slots=True)
class Part:
    """The tasks of one attempt on one host. `state` is coming, prepared or running."""

    ranks: tuple[int, ...]
    state: str = "coming"
    began_us: int = 0
    ended: dict[int, tuple[int, Exit]] = field(default_factory=dict)  # rank -> (at_us, how)


@dataclass(slots=True)
class ReplayedHost:
    name: str
    reachable: bool = False
    boot_id: str = ""
    parts: dict[Attempt, Part] = field(default_factory=dict)
    waiting: list[Action] = field(default_factory=list)  # until it answers


class ReplayedHosts:
    """`at(time, handler)` calls the handler then; what that returns goes to the cycle."""

    def __init__(self, recording: Recording, renamed: Renamed, at: Callable[[int, Handler], None]) -> None:
        self._story = renamed.story
        self._until_us = recording.until_us
        self._usual_length_us = recording.usual_length_us
        self._usual_latency_us = recording.usual_latency_us
        self._at = at
        self._hosts: dict[str, ReplayedHost] = {}
        self._greeted: list[ReplayedHost] = []
        self._plans: dict[Attempt, dict[int, Exit]] = {}
        self._echoed: set[Attempt] = set()
        self._failures = {j: list(s.failures) for j, s in recording.jobs.items() if s.failures}
        self.assumed: set[int] = set()  # jobs whose run time the journal does not have

    # -- hosts come and go ---------------------------------------------------------------------

    def adopt(self, start: JournalStart) -> None:
        """The hosts and what runs there when the journal begins."""
        for host in start.state.hosts.values():
            up = start.resumed and host.state is HostState.UP
            self._hosts[host.name] = ReplayedHost(host.name, up, host.boot_id)
        for job in start.state.jobs.values():
            if job.occupies and job.placement is not None:
                for name in job.placement.hosts:
                    self._adopt_part(job, self._host(name), start.at_us)

    def _adopt_part(self, job: Job, host: ReplayedHost, now_us: int) -> None:
        key, mine = (job.id, job.attempt), [t for t in job.tasks if t.host == host.name]
        assert job.placement is not None
        if not any(t.prepared or t.started_us or t.ended_us for t in mine):
            tasks, hold = job.placement.on(host.name), len(job.placement.hosts) > 1
            self.obey(Launch(job.id, job.attempt, host.name, tasks, hold), now_us)
            return
        part = host.parts[key] = Part(tuple(t.rank for t in mine), "prepared")
        for task in mine:
            if task.ended_us is not None:
                how = Exit(0, task.exit_code or 0, task.exit_signal or 0)
                part.ended[task.rank] = (task.ended_us, how)
        if any(t.started_us for t in mine):
            since_us = job.started_us or now_us
            part.state, part.began_us = "running", since_us
            self._schedule(host, key, part, since_us, now_us)
        elif job.go:
            self.obey(Start(job.id, job.attempt, host.name), now_us)
        if job.state is JobState.COMPLETING:
            self.obey(Stop(job.id, job.attempt, host.name, 0, "abort"), now_us)

    def silence(self, name: str) -> None:
        self._host(name).reachable = False

    def hello(self, state: ClusterState, up: ev.HostUp, now_us: int) -> list[ev.Event]:
        """The host answers (again): as the leader does with a host's report."""
        host = self._host(up.host)
        if host.boot_id and host.boot_id != up.boot_id:
            host.parts.clear()
        host.boot_id, host.reachable = up.boot_id, True
        reported = Reported(task for key, part in host.parts.items() for task in _reported(key, part))
        launches = {key for key, part in host.parts.items() if part.state == "coming"}
        ends: set[Attempt] = set()
        waiting, host.waiting = host.waiting, []
        for action in waiting:
            key = (action.job, action.attempt)
            if isinstance(action, Collect | Discard):
                ends.add(key)
            if isinstance(action, Launch | Start):
                if not worth_repeating(state, up, reported, action):
                    continue
                if isinstance(action, Launch):
                    launches.add(key)
            host.waiting.append(action)
        self._greeted.append(host)
        found = reconcile(state, host.name, reported, launches, ends, now_us)
        kept_back = {(e.job, e.attempt) for e in found if isinstance(e, ev.LaunchWithheld)}
        host.waiting = [
            a for a in host.waiting if not (isinstance(a, Launch) and (a.job, a.attempt) in kept_back)
        ]
        return [up, *found]

    def repeat(self, now_us: int) -> None:
        """After the step with the hellos: what waited for those hosts is carried out."""
        greeted, self._greeted = self._greeted, []
        for host in greeted:
            waiting, host.waiting = host.waiting, []
            for action in waiting:
                self.obey(action, now_us)

    def _host(self, name: str) -> ReplayedHost:
        if name not in self._hosts:
            self._hosts[name] = ReplayedHost(name)
        return self._hosts[name]

    # -- actions -------------------------------------------------------------------------------

    def obey(self, action: Action, now_us: int) -> None:
        host, key = self._host(action.host), (action.job, action.attempt)
        if not host.reachable:
            host.waiting.append(action)
            return
        part = host.parts.get(key)
        match action:
            case Launch():
                if part is None:
                    host.parts[key] = Part(tuple(t.rank for t in action.tasks))
                    launched = partial(self._launched, host, key, action.hold)
                    self._at(now_us + self._latency_us(self._story(action.job)), launched)
            case Start():
                if part is not None and part.state == "prepared":
                    self._at(now_us, partial(self._begin, host, key))
            case Stop():
                if part is not None:
                    self._at(now_us, partial(self._stopped, host, key, action.why))
            case Collect() | Discard():
                if part is not None:
                    del host.parts[key]
                    self._at(now_us, partial(_gone, host.name, key, part.ranks))

    def _launched(self, host: ReplayedHost, key: Attempt, hold: bool, now_us: int) -> list[ev.Event]:
        part = host.parts.get(key)
        if part is None:
            return []
        if (failure := self._failure(key[0], host.name)) is not None:
            del host.parts[key]
            failed = replace(failure, job=key[0], attempt=key[1], host=host.name)
            return [failed] if host.reachable else []
        part.state = "prepared"
        if not hold:
            return self._begin(host, key, now_us)
        return [ev.TasksPrepared(*key, host.name)] if host.reachable else []

    def _begin(self, host: ReplayedHost, key: Attempt, now_us: int) -> list[ev.Event]:
        part = host.parts.get(key)
        if part is None or part.state != "prepared" or len(part.ended) == len(part.ranks):
            return []
        part.state, part.began_us = "running", now_us
        self._schedule(host, key, part, now_us, now_us)
        if key not in self._echoed:
            self._echoed.add(key)
            run = self._run_of(self._story(key[0]), key)
            for offset_us, event in run.echoes if run is not None else ():
                self._at(now_us + offset_us, partial(_echo, event, key))
        return [ev.TasksStarted(*key, host.name, now_us, part.ranks)] if host.reachable else []

    def _stopped(self, host: ReplayedHost, key: Attempt, why: str, now_us: int) -> list[ev.Event]:
        """Its tasks end now; but those that were stopped for the same cause in the journal took
        their time, and do again."""
        part = host.parts.get(key)
        events: list[ev.Event] = []
        if part is not None:
            running = part.state == "running"
            for rank in part.ranks:
                if not (running and self._plan(key)[rank].why == why):
                    events += self._exit(host, key, rank, Exit(0, STOPPED, 0, False, why), now_us)
        return events

    def _exit(self, host: ReplayedHost, key: Attempt, rank: int, how: Exit, now_us: int) -> list[ev.Event]:
        part = host.parts.get(key)
        if part is None or rank in part.ended:
            return []
        part.ended[rank] = (now_us, how)
        if not host.reachable:
            return []
        began_us = part.began_us or None
        return [
            ev.TaskExited(
                *key, host.name, rank, how.code, how.signal, began_us, now_us, how.out_of_memory, how.why
            ),
            ev.StrayEnded(*key, host.name, rank),  # of an attempt that was given up what it held is free now
        ]

    # -- what the journal knows of the job -------------------------------------------------------

    def _schedule(self, host: ReplayedHost, key: Attempt, part: Part, since_us: int, now_us: int) -> None:
        plan = self._plan(key)
        for rank in part.ranks:
            how = plan[rank]
            self._at(max(now_us, since_us + how.offset_us), partial(self._exit, host, key, rank, how))

    def _plan(self, key: Attempt) -> dict[int, Exit]:
        """How each task of the attempt will end, if nothing ends it before."""
        if key not in self._plans:
            story = self._story(key[0])
            run = self._run_of(story, key)
            if run is not None and run.complete:
                self._plans[key] = run.exits
            else:
                self.assumed.add(key[0])
                how = Exit(self._assumed_us(story))
                self._plans[key] = dict.fromkeys(range(story.spec.ntasks), how)
        return self._plans[key]

    def _run_of(self, story: Story, key: Attempt) -> Run | None:
        """The attempt of the journal that this one is like: the same one where it ended by itself,
        otherwise the next that did, and the last one when there is none."""
        own = [r for r in story.runs if r.complete]
        later = [r for r in own if r.number >= key[1]]
        return next(iter(later), own[-1] if own else story.runs[-1] if story.runs else None)

    def _assumed_us(self, story: Story) -> int:
        """The declared run time, or the usual one; at least what was seen of it."""
        seen = [(r.ended_us or self._until_us) - r.began_us for r in story.runs if r.began_us is not None]
        declared = story.spec.expected_us or story.spec.time_limit_us
        return max(*seen, declared or self._usual_length_us, 0)

    def _latency_us(self, story: Story) -> int:
        found = [
            r.began_us - r.placed_us
            for r in story.runs
            if r.began_us is not None and r.placed_us is not None and not r.in_slice
        ]
        return found[0] if found else self._usual_latency_us

    def _failure(self, job: int, host: str) -> ev.LaunchFailed | None:
        """The next launch of the job that failed there, or anywhere by the job's own fault."""
        failures = self._failures.get(self._story(job).id, [])
        found = next((f for f in failures if f.host == host or f.code in JOB_FAULTS), None)
        if found is not None:
            failures.remove(found)
        return found


def _reported(key: Attempt, part: Part) -> list[ReportedTask]:
    """What the host's agent says of these tasks; it knows nothing yet of those that are coming."""
    if part.state == "coming":
        return []
    began_us, found = part.began_us or None, []
    for rank in part.ranks:
        if rank in part.ended:
            at_us, how = part.ended[rank]
            found.append(
                ReportedTask(
                    *key, rank, "exited", began_us, at_us, how.code, how.signal, how.out_of_memory, how.why
                )
            )
        else:
            found.append(ReportedTask(*key, rank, part.state, began_us))
    return found


def _gone(host: str, key: Attempt, ranks: tuple[int, ...], now_us: int) -> list[ev.Event]:
    """Nothing of it is left there, also if it was given up before."""
    return [ev.StrayEnded(*key, host, rank) for rank in ranks]


def _echo(event: ev.ProfileMeasured | ev.JobsProgressed, of: Attempt, now_us: int) -> list[ev.Event]:
    job, attempt = of
    if isinstance(event, ev.ProfileMeasured):
        return [replace(event, job=job, attempt=attempt)]
    return [ev.JobsProgressed(tuple(replace(p, job=job, attempt=attempt) for p in event.progress))]
