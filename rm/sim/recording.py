"""What a journal records of each job: when it came, where and when it ran, how long, and how it ended.

The journal is followed without asking the policies: the recorded decisions are taken as they are,
and only the communication policy is asked, for the scores of the links.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median_low

from rm.core.jobs import events as ev
from rm.core.journal.journal import Setup, Start, Step
from rm.core.model.job import Job, JobSpec, JobState
from rm.core.model.network.alignment import Alignment
from rm.core.model.snapshot import Snapshot
from rm.core.ports import CommPolicy
from rm.core.scheduling.cycle import Cycle, Outcome
from rm.core.scheduling.engine import Policies
from rm.core.store import Entry
from rm.errors import StoreError
from rm.sim.replay import cycle_of, policies_of, records

Element = tuple[int, int]  # (array, index)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a task ended, `offset_us` after the first task of its attempt had started."""

    offset_us: int
    code: int = 0
    signal: int = 0
    out_of_memory: bool = False
    why: str = ""


@dataclass(slots=True)
class Run:
    """One attempt. Times are those at which the daemon heard; `placed_us` is None when the attempt
    is older than the journal. `echoes` were reported of it while it ran: (offset, event)."""

    number: int
    tasks: int
    hosts: tuple[str, ...]
    placed_us: int | None
    began_us: int | None = None
    ended_us: int | None = None
    score: float | None = None
    exits: dict[int, Exit] = field(default_factory=dict)
    interrupted: bool = False
    in_slice: bool = False  # it stood in line on its host behind others of its array
    echoes: list[tuple[int, ev.ProfileMeasured | ev.JobsProgressed]] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Did it end by itself, so that its length is the job's own?"""
        return not self.interrupted and self.ended_us is not None and len(self.exits) == self.tasks

    @property
    def length_us(self) -> int:
        return max((e.offset_us for e in self.exits.values()), default=0)


@dataclass(slots=True)
class Story:
    """One job of the journal."""

    id: int
    spec: JobSpec
    submitted_us: int
    runs: list[Run] = field(default_factory=list)
    failures: list[ev.LaunchFailed] = field(default_factory=list)
    state: JobState = JobState.PENDING
    ended_us: int | None = None
    element: Element | None = None

    @property
    def runs_itself(self) -> bool:
        """Not an array's record, whose elements run."""
        return not self.spec.array or self.element is not None

    @property
    def began(self) -> Run | None:
        """The first attempt that started."""
        return next((r for r in self.runs if r.began_us is not None), None)


@dataclass(slots=True)
class Recording:
    """All of a journal, from its first start on. `usual_*` are medians over what was seen."""

    jobs: dict[int, Story] = field(default_factory=dict)
    elements: dict[Element, int] = field(default_factory=dict)  # of arrays: the ids that they got
    setups: list[Setup] = field(default_factory=list)
    from_us: int = 0
    until_us: int = 0
    last_seq: int = 0
    steps: int = 0

    @property
    def usual_length_us(self) -> int:
        lengths = [r.length_us for s in self.jobs.values() for r in s.runs if r.complete]
        return median_low(lengths) if lengths else 0

    @property
    def usual_latency_us(self) -> int:
        """From the placement to the start."""
        found = [
            r.began_us - r.placed_us
            for s in self.jobs.values()
            for r in s.runs
            if r.began_us is not None and r.placed_us is not None and not r.in_slice
        ]
        return median_low(found) if found else 0

    def tell(self, job: Job) -> Story:
        """Begin the story of a job."""
        element = None if job.array_task is None else (job.array_job, job.array_task)
        if element is not None:
            self.elements[element] = job.id
        return self.jobs.setdefault(job.id, Story(job.id, job.spec, job.submitted_us, element=element))


class NoOrder:
    """A queue policy that tries no job: the decisions come with the steps."""

    name = "as recorded"

    def order(self, pending: Sequence[Job], snapshot: Snapshot) -> Iterator[Job]:
        return iter(())


class NoMoves:
    """A communication policy that moves no running job: those decisions come with the steps, too."""

    def __init__(self, comm: CommPolicy) -> None:
        self.name = comm.name
        self.align = comm.align


def read(entries: Iterable[tuple[int, Entry]]) -> Recording:
    """Follow the journal to its end.

    Raises:
        StoreError, ConfigError: see `rm.sim.replay`; or a step does not fit the state.
    """
    found = Recording()
    cycle: Cycle | None = None
    for seq, record in records(entries):
        found.from_us = found.from_us or record.at_us
        found.until_us, found.last_seq = record.at_us, seq
        if isinstance(record, Start):
            if record.setup not in found.setups:
                found.setups.append(record.setup)
            asked = policies_of(record.setup)
            cycle = cycle_of(record, Policies(NoOrder(), asked.placement, NoMoves(asked.comm)))
            _meet(found, record)
            continue
        assert cycle is not None  # `records` begins with a start
        found.steps += 1
        decided = tuple(e for e in record.decided if isinstance(e, ev.DECISIONS))
        outcome = cycle.step((*record.events, *decided), record.at_us)
        for refusal in outcome.refused.values():
            raise StoreError(
                f"Entry {seq} of the journal does not fit what precedes it: {refusal}",
                "Replay it with the rm that wrote it.",
            )
        _follow(found, cycle, outcome, record)
        cycle.state.forget_finished()
    return found


def _meet(found: Recording, start: Start) -> None:
    """Jobs that are there already."""
    for job in start.state.jobs.values():
        story = found.tell(job)
        story.state, story.ended_us = job.state, job.ended_us
        if job.occupies and not any(r.number == job.attempt for r in story.runs):
            assert job.placement is not None
            run = Run(job.attempt, len(job.tasks), job.placement.hosts, None, job.started_us)
            story.runs.append(run)


def _follow(found: Recording, cycle: Cycle, outcome: Outcome, step: Step) -> None:
    state, now_us = cycle.state, step.at_us
    for event in outcome.recorded:
        match event:
            case ev.JobSubmitted():
                found.tell(state.jobs[event.job])
            case ev.JobPlaced():
                hosts, tasks = event.placement.hosts, len(event.placement.tasks)
                run = Run(state.jobs[event.job].attempt, tasks, hosts, now_us)
                run.score = score_of(event.job, state.alignment)
                run.in_slice = event.slice_of not in (0, event.job)
                found.tell(state.jobs[event.job]).runs.append(run)
            case ev.HostDown():
                for story in found.jobs.values():
                    if story.runs and story.runs[-1].ended_us is None:
                        story.runs[-1].interrupted |= event.host in story.runs[-1].hosts
            case ev.JobsProgressed():
                for one in event.progress:
                    _echo(found, one.job, one.attempt, ev.JobsProgressed((one,)), now_us)
            case ev.ProfileMeasured():
                _echo(found, event.job, event.attempt, event, now_us)
            case _:
                _of_attempt(found, event, now_us)
    for job_id in outcome.changes.jobs:
        job = state.jobs[job_id]
        story = found.tell(job)  # of an element that was changed alone, this is the first that is heard
        story.state, story.ended_us = job.state, job.ended_us
        last = story.runs[-1] if story.runs else None
        if last is not None and last.ended_us is None:
            over = not job.occupies or job.attempt != last.number
            last.ended_us = now_us if over else None


def _of_attempt(found: Recording, event: ev.Event, now_us: int) -> None:
    """What the hosts and users say of one job's current attempt."""
    story = found.jobs.get(getattr(event, "job", 0))
    if story is None or not story.runs or story.runs[-1].ended_us is not None:
        return
    run = story.runs[-1]
    if getattr(event, "attempt", run.number) != run.number:
        return
    match event:
        case ev.TasksStarted():
            run.began_us = run.began_us or now_us
        case ev.TaskExited():
            run.began_us = run.began_us or event.started_us or now_us
            how = Exit(now_us - run.began_us, event.code, event.signal, event.out_of_memory, event.why)
            run.exits.setdefault(event.rank, how)
        case ev.LaunchFailed():
            story.failures.append(event)
            run.interrupted = True
        case ev.GpusIdle():
            run.interrupted = run.interrupted or event.stop
        case (
            ev.TasksLost() | ev.CancelRequested() | ev.RequeueRequested() | ev.JobMoved() | ev.JobPreempted()
        ):
            run.interrupted = True


def _echo(
    found: Recording, job: int, attempt: int, event: ev.ProfileMeasured | ev.JobsProgressed, now_us: int
) -> None:
    story = found.jobs.get(job)
    run = story.runs[-1] if story is not None and story.runs else None
    if run is not None and run.number == attempt and run.began_us is not None and run.ended_us is None:
        run.echoes.append((now_us - run.began_us, event))


def score_of(job: int, alignment: Alignment) -> float | None:
    """Of the worst link that the job shares; None when it shares none, or nobody scores links."""
    return min((link.score for link in alignment.links if job in link.jobs), default=None)
