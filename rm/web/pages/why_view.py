"""Why a job waits, or runs where it runs: the answer of `rmx why`, and the job's story."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rm.api.jobs import Job
from rm.api.reasons import (
    Compared,
    Link,
    Plan,
    QueuePosition,
    Reason,
    Schedule,
    Start,
    Verdict,
    distinct,
)  # fmt: skip
from rm.api.reasons import Why as Told
from rm.core.model.job import JobState
from rm.units import fold_hosts, format_count, format_elapsed
from rm.web.pages.queue_view import Row, row
from rm.web.pages.text import Look, duration, look, moment, shown

VERDICTS_MOST = 50
HISTORY_MOST = 30
UNRECORDED = (
    "There is no record of how it was placed: it never was, an earlier version of rm placed it, or it is a "
    "job array, of which each element is placed by itself."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thoughts:
    """`columns` are the scores' names, `verdicts` (host, scores) of hosts that would do, `refusals`
    (hosts, how many, why not) of those that would not. `start`: when it is expected to; `behind`: the
    job whose reservation it must not delay, or None."""

    start: str
    behind: int | None
    reasons: tuple[tuple[str, str], ...]  # code, sentence
    columns: tuple[str, ...]
    verdicts: tuple[tuple[str, tuple[str, ...]], ...]
    refusals: tuple[tuple[str, int, str], ...]
    left_out: int
    score: str
    schedules: tuple[str, ...]
    unmatched: tuple[int, ...]
    decided: tuple[str, ...] = ()  # sentences: when it was placed, and what verdicts there are beside these
    decided_at: str = ""  # "" = the verdicts are those of now
    compared: tuple[tuple[str, str, str, str, str], ...] = ()  # hosts, two scores, taken or not, note
    position: int = 0  # in the queue; 0 = it is not tried now
    ahead: tuple[tuple[int, str], ...] = ()  # the first jobs before it, with their users
    more_ahead: int = 0  # jobs before it that are not among these
    chain: tuple[tuple[int, str, int, str, str], ...] = ()  # job, condition, of job, its state, standing
    more_chain: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Why(Thoughts):
    """Of a job that is there, with its story."""

    job: Row
    history: tuple[tuple[str, str], ...]


def why(job: Job, answer: Told, now_us: int, look: Look = look) -> Why:
    return Why(
        job=row(job, now_us, look),
        history=tuple((moment(at), shown(what, 300)) for at, what in job.history[-HISTORY_MOST:]),
        **_thoughts(answer, now_us),
        **_decided(answer),
        **_position(answer.queue_position),
        chain=tuple(
            (one.job, _condition(one), one.awaited, one.state or "not known", one.standing)
            for one in answer.chain
        ),
        more_chain=answer.chain_left_out,
    )


def _condition(link: Link) -> str:
    return f"{link.kind}, elements {shown(link.tasks, 40)}" if link.tasks else link.kind


def thoughts(answer: Plan, now_us: int) -> Thoughts:
    """Of a dry run's answer."""
    return Thoughts(**_thoughts(answer, now_us))


def _thoughts(answer: Told | Plan, now_us: int) -> dict[str, Any]:
    reasons, verdicts, alignment = answer.reasons, answer.verdicts, answer.alignment
    accepted = [verdict for verdict in verdicts if not verdict.refused]
    names = list(dict.fromkeys(name for verdict in accepted for name, _ in verdict.scores))
    refused: dict[str, list[str]] = {}
    for verdict in verdicts:
        if told := verdict.refused:
            refused.setdefault(f"({told.code}) {told.message}", []).append(verdict.host)
    refusals = sorted(refused.items(), key=lambda one: len(one[1]))
    numbers = {name: value for r in reasons for name, value in r.numbers.items()}
    return {
        "start": _start(answer.start, answer.no_start, now_us),
        "behind": _number(numbers, "reserved_job"),
        "reasons": tuple(_reasons(reasons)),
        "columns": tuple(shown(name).replace("_", " ") for name in names),
        "verdicts": tuple(_verdict(verdict, names) for verdict in accepted[:VERDICTS_MOST]),
        "refusals": tuple(
            (shown(fold_hosts(hosts), 300), len(hosts), shown(why_not, 500))
            for why_not, hosts in refusals[:VERDICTS_MOST]
        ),
        "left_out": max(0, len(accepted) - VERDICTS_MOST)
        + sum(len(hosts) for _, hosts in refusals[VERDICTS_MOST:]),
        "score": f"{alignment.score:.6g}" if alignment is not None else "",
        "schedules": tuple(_schedule(s) for s in (alignment.schedules if alignment is not None else ())),
        "unmatched": tuple(alignment.unmatched) if alignment is not None else (),
    }


def _number(numbers: Mapping[str, float | str], name: str) -> int | None:
    value = numbers.get(name)
    return None if value is None else int(value)


def _position(place: QueuePosition | None) -> dict[str, Any]:
    if place is None:
        return {}
    return {
        "position": place.position,
        "ahead": tuple((one.job, shown(one.user)) for one in place.ahead),
        "more_ahead": place.jobs_ahead - len(place.ahead),
    }


def _decided(answer: Told) -> dict[str, Any]:
    """Of a job that was placed: the decision as it was recorded then."""
    choice = answer.choice
    if answer.state == JobState.PENDING:
        return {}
    if choice is None:
        return {"decided": (UNRECORDED,)}
    where = format_count(choice.chosen_hosts, "host")
    told = [f"Placed on {where} at {moment(choice.at_us)} by the policy {shown(choice.placement_policy)}."]
    if choice.refused_hosts is not None:
        told.append(
            f"Hosts refused then: {choice.refused_hosts}. "
            f"Hosts that fitted but were not chosen: {choice.passed_over_hosts}."
        )
    if choice.compared:
        told.append(f"Candidates compared: {choice.compared_candidates}.")
    return {
        "decided": tuple(told),
        "decided_at": moment(choice.at_us),
        "compared": tuple(_compared(one) for one in choice.compared),
    }


def _compared(one: Compared) -> tuple[str, str, str, str, str]:
    more = one.host_count - len(one.hosts)
    where = shown(fold_hosts(list(one.hosts)), 300) + (f" and {more} more" if more else "")
    scores = ["–" if n is None else f"{n:.6g}" for n in (one.score, one.alignment_score)]
    rejected = one.rejected
    taken = "taken" if one.taken else "rejected" if rejected else "not taken"
    return where, scores[0], scores[1], taken, shown(rejected.message if rejected else one.note, 300)


def _start(start: Start | None, no_start: str, now_us: int) -> str:
    """As `rmx why` says it."""
    if start is None:
        return shown(no_start, 300)
    left = "now" if start.likely_us <= now_us else f"in {format_elapsed(start.likely_us - now_us)}"
    if start.soonest_us == start.at_us:
        return f"It is expected to start at {moment(start.at_us)}, {left}."
    soonest, latest = moment(start.soonest_us), moment(start.latest_us)
    return (
        f"It is likely to start at {moment(start.likely_us)}, {left}: at {soonest} at the earliest "
        f"and at {latest} at the latest, if jobs end as those before them did."
    )


def _reasons(told: Sequence[Reason]) -> list[tuple[str, str]]:
    return [(shown(one.code), shown(one.message, 500)) for one in distinct(told)]


def _verdict(verdict: Verdict, names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    scores = dict(verdict.scores)
    return shown(verdict.host), tuple(f"{scores[n]:.6g}" if n in scores else "–" for n in names)


def _schedule(schedule: Schedule) -> str:
    role = "is the reference" if schedule.reference else f"starts {duration(schedule.shift_us)} later"
    idle = f", with {duration(schedule.inject_us)} of idle time" if schedule.inject_us else ""
    return f"Job {schedule.job} {role}, an iteration every {duration(schedule.period_us)}{idle}."
