"""A journal taken again through a fresh cycle: do the same events make the same decisions?

The times are the recorded ones, so the clock is virtual; nothing is carried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rm.core.jobs import events as ev
from rm.core.journal.digest import Digests
from rm.core.journal.journal import Setup, Start, Step, parse, taken
from rm.core.journal.starting_point import dump_state
from rm.core.registry import KINDS, load
from rm.core.scheduling.cycle import Cycle, Outcome
from rm.core.scheduling.engine import Policies
from rm.core.store import Entry
from rm.errors import StoreError

# Ids are given to jobs before the step that submits them, so a start may know of them too early.
AHEAD = frozenset({"next_job"})


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing that came out otherwise. `rm` is the version that decided then."""

    seq: int
    at_us: int
    what: str
    rm: str


@dataclass(slots=True)
class Verdict:
    """What was replayed, and the first difference if there is one."""

    starts: int = 0
    steps: int = 0
    events: int = 0
    placed: int = 0
    from_us: int | None = None
    until_us: int | None = None
    setups: list[Setup] = field(default_factory=list)
    difference: Difference | None = None


def records(entries: Iterable[tuple[int, Entry]]) -> Iterator[tuple[int, Start | Step]]:
    """The starts and steps, from the first start on.

    Raises:
        StoreError: an entry is damaged, steps are missing, or there is no start.
    """
    number: int | None = None
    for seq, entry in entries:
        record = parse(entry)
        if isinstance(record, Start):
            number = 0
        elif record is None or number is None:
            continue
        elif record.number != number + 1:
            raise StoreError(
                f"Entries of the journal are missing before entry {seq}: step {record.number} follows "
                f"step {number}.",
                "Export it again, or replay from a later start (--since).",
            )
        else:
            number = record.number
        yield seq, record
    if number is None:
        raise StoreError(
            "The journal has no start to replay from.",
            "A daemon writes one when it begins and then once a day.",
        )


def policies_of(setup: Setup) -> Policies:
    """The policies that were in force.

    Raises:
        ConfigError: this rm has no such policy, or it has no such option.
    """
    made = (load(kind, setup.policies[kind].name, setup.policies[kind].options) for kind in KINDS)
    return Policies(*made)


def cycle_of(start: Start, policies: Policies | None = None) -> Cycle:
    cycle = Cycle(start.state, policies or policies_of(start.setup), start.setup.rules, start.setup.tuning)
    cycle.start_over(aligned=start.resumed)
    return cycle


def verify(entries: Iterable[tuple[int, Entry]]) -> Verdict:
    """Replay until the end or the first difference.

    Raises:
        StoreError, ConfigError: see `records` and `policies_of`.
    """
    verdict = Verdict()
    cycle: Cycle | None = None
    for seq, record in records(entries):
        if verdict.from_us is None:
            verdict.from_us = record.at_us
        verdict.until_us = record.at_us
        if isinstance(record, Start):
            what = _state_difference(cycle, record) if record.resumed and cycle is not None else ""
            cycle = cycle_of(record)
            verdict.starts += 1
            if record.setup not in verdict.setups:
                verdict.setups.append(record.setup)
        else:
            assert cycle is not None  # `records` begins with a start
            outcome = cycle.step(record.events, record.at_us)
            what = step_difference(cycle, outcome, record)
            cycle.state.forget_finished()
            verdict.steps += 1
            verdict.events += len(record.events)
            verdict.placed += sum(isinstance(e, ev.JobPlaced) for e in record.decided)
        if what:
            verdict.difference = Difference(seq, record.at_us, what, verdict.setups[-1].rm)
            break
    return verdict


def step_difference(cycle: Cycle, outcome: Outcome, step: Step) -> str:
    """How the outcome differs from the journal's, as a sentence; "" when it does not."""
    for index, refusal in outcome.refused.items():
        return f"{type(step.events[index]).__name__} took effect then and is refused now: {refusal}"
    decided = taken(step.events, outcome)[1]
    then, now = _by_subject(step.decided), _by_subject(decided)
    for subject in [*then, *(s for s in now if s not in then)]:
        if then.get(subject) != now.get(subject):
            kind, name = subject
            told = [_told(cycle, kind, name, side.get(subject)) for side in (then, now)]
            return f"{kind} {name} {told[0][0]} then, and {told[1][1]} now"
    if list(then) != list(now):
        return "the same jobs were placed then and now, but in another order"
    if Digests().of(outcome, cycle.state.alignment) != step.plan:
        return "the placements are the same, but the actions or the alignment of the jobs are not"
    return ""


Subject = tuple[str, int | str]


def _by_subject(decided: Iterable[ev.Event]) -> dict[Subject, tuple[object, ...]]:
    """What was decided about which job; a placement's note is not part of it."""
    found: dict[Subject, tuple[object, ...]] = {}
    for event in decided:
        if isinstance(event, ev.JobPlaced):
            found["job", event.job] = event.placement.tasks
        elif isinstance(event, ev.JobMoved):
            found["move of job", event.job] = ("moved",)
        elif isinstance(event, ev.JobPreempted):
            found["preemption of job", event.job] = ("preempted", event.by)
        elif isinstance(event, ev.HostDown):
            found["host", event.host] = ("down",)
        elif isinstance(event, ev.DeadlineMissed):
            found["deadline of job", event.job] = ("missed",)
        elif isinstance(event, ev.SharePassed):
            found["time of job", event.job] = ("passed", event.share)
        elif isinstance(event, ev.LeaseOver):
            found["lease", f"of job {event.job} on host {event.host}"] = ("over",)
        else:
            raise StoreError(f"The journal tells {type(event).__name__} as a decision, which it never is.")
    return found


def _told(cycle: Cycle, kind: str, name: int | str, what: tuple[object, ...] | None) -> tuple[str, str]:
    """(of then, of now)."""
    if kind in ("move of job", "preemption of job"):
        return ("was decided", "is decided") if what else ("was not decided", "is not decided")
    if kind == "deadline of job":
        return ("was missed", "is missed") if what else ("was not missed", "is not missed")
    if kind == "time of job":
        return ("passed", "passes") if what else ("did not pass", "does not pass")
    if kind == "lease":
        return ("was over", "is over") if what else ("was not over", "is not over")
    if kind == "host":
        return ("was given up", "is given up") if what else ("was not given up", "is not given up")
    if what is not None:
        where = ", ".join(
            f"{t.host}{f' (GPUs {list(t.gpus)})' if t.gpus else ''}"  # type: ignore[attr-defined]
            for t in what
        )
        return f"was placed on {where}", f"is placed on {where}"
    job = cycle.state.jobs.get(int(name))
    reason = cycle.reason_of(job) if job is not None else None
    return "was not placed", f"waits{f' ({reason.message})' if reason else ''}"


def _state_difference(cycle: Cycle, start: Start) -> str:
    """A leader that went on wrote its state: the replayed one must be the same by now."""
    then, now = (dump_state(state, start.at_us) for state in (start.state, cycle.state))
    for part, value in then.items():
        if part not in AHEAD and value != now[part]:
            return f"the state's {part} differ: {_first_difference(value, now[part])}"
    return ""


def _first_difference(then: object, now: object) -> str:
    if isinstance(then, list) and isinstance(now, list):
        for a, b in zip(then, now, strict=False):
            if a != b:
                return f"{a!r:.200} then, {b!r:.200} now"
        return f"{len(then)} entries then, {len(now)} now"
    return f"{then!r:.200} then, {now!r:.200} now"
