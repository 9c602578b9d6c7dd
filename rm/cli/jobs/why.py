"""`rmx why`: why a job waits, or why it runs where it runs; and the answer of a dry run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rm.api.reasons import distinct
from rm.arrays import JobId, each, lowest, mask, text_of
from rm.cli.array_elements import chosen_of
from rm.cli.output import printable
from rm.cli.session import Session, emit_answer, emit_json, job_operand, json_option, one_job, table
from rm.cli.shown import moment
from rm.errors import UsageError
from rm.units import fold_hosts, format_count, format_duration

if TYPE_CHECKING:
    from rm.api.jobs import Job
    from rm.api.reasons import Alignment, Choice, Plan, Priority, QueuePosition, Reason, Start, Verdict, Why

ELEMENTS_MAX = 100  # of an array, each of which is asked for by itself
NO_ROOM = 3  # as ImpossibleRequest: it cannot run now


def _reasons(reasons: Sequence[Reason]) -> None:
    for reason in distinct(reasons):
        numbers = ", ".join(f"{name}={value}" for name, value in reason.numbers.items())
        click.echo(f"  ({reason.code}) {printable(reason.message)}{f' [{numbers}]' if numbers else ''}")


def _verdicts(verdicts: Sequence[Verdict]) -> None:
    """One line a host: the filter that refused it, or its scores in the pipeline's order."""
    if not verdicts:
        return
    names = list(dict.fromkeys(name for verdict in verdicts for name, _ in verdict.scores))
    rows = []
    for verdict in verdicts:
        scores = dict(verdict.scores)
        refused = verdict.refused
        told = "" if refused is None else f"({refused.code}) {refused.message}"
        shown = [f"{scores[name]:.6g}" if name in scores else "-" for name in names]
        rows.append((verdict.host, *shown, told or "accepted"))
    click.echo()
    table(
        ("HOST", *(name.upper() for name in names), "VERDICT"), rows, right=[name.upper() for name in names]
    )


def _position(place: QueuePosition | None) -> None:
    """Where a job that waits stands in the queue, and behind which jobs."""
    if place is None:
        return
    told = ", ".join(f"{one.job} ({printable(one.user)})" for one in place.ahead)
    named, count = len(place.ahead), place.jobs_ahead
    if not named:
        ahead = format_count(count, "job")
    else:
        ahead = f"job{'s' if count > 1 else ''} {told}" + (
            f" and {count - named} more" if count > named else ""
        )
    click.echo(f"  Position {place.position} in the queue." + (f" Ahead of it: {ahead}." if count else ""))


def _start(start: Start | None, no_start: str) -> None:
    """When a job that waits is expected to start, as an interval where that is known; or why nobody knows."""
    if start is None:
        if no_start:
            click.echo(f"  {printable(no_start)}")
        return
    on = f" on {fold_hosts(list(start.hosts))}" if start.hosts else ""
    sooner = ""
    if start.soonest_us < start.at_us:
        sooner = f", likely at {moment(start.likely_us)}, at {moment(start.soonest_us)} at the earliest"
        sooner += f" and at {moment(start.latest_us)} at the latest, if jobs end as those before them did"
    click.echo(f"  Expected to start at {moment(start.at_us)}{on}{sooner}.")


def _priority(priority: Priority | None) -> None:
    """What the queue policy orders it by."""
    if priority is None:
        return
    parts = {"site": priority.site, "age": priority.age, "fair share": priority.fair_share,
             "size": priority.size, "QOS": priority.qos,
             "partition": priority.partition}  # fmt: skip
    told = " + ".join(f"{name} {part:g}" for name, part in parts.items())
    nice = f" - nice {priority.nice:g}" if priority.nice else ""
    click.echo(f"  Priority {priority.sum:.0f} = {told}{nice}.")


def _chain(answer: Why) -> None:
    """The jobs for which it waits, the nearest first: a line for each condition."""
    if not answer.chain:
        return
    click.echo("\nThe chain in front of it:")
    rows = [
        (
            one.job,
            one.kind,
            JobId(one.awaited, one.tasks),
            one.state or "not known",
            one.standing,
            printable(one.name or "-"),
        )
        for one in answer.chain
    ]
    table(("JOB", "WAITS FOR", "OF JOB", "STATE", "STANDING", "NAME"), rows, right=("JOB", "OF JOB"))
    if more := answer.chain_left_out:
        click.echo(f"  and {more} more")


def _choice(choice: Choice | None) -> None:
    """When it was decided, what was compared, and how many hosts the verdicts leave out."""
    if choice is None:
        click.echo(
            "  There is no record of how it was placed: it never was, an earlier version of rm placed it, or "
            "it is a job array, of which each element is placed by itself."
        )
        return
    where = format_count(choice.chosen_hosts, "host")
    click.echo(f"  Placed on {where} at {moment(choice.at_us)} by the policy {choice.placement_policy}.")
    if (refused := choice.refused_hosts) is not None:
        click.echo(
            f"  Hosts refused then: {refused}. "
            f"Hosts that fitted but were not chosen: {choice.passed_over_hosts}."
        )


def _compared(choice: Choice | None) -> None:
    """A line for each candidate that the engine aligned with the jobs of that time."""
    if choice is None or not choice.compared:
        return
    rows = []
    for one in choice.compared:
        more = one.host_count - len(one.hosts)
        where = fold_hosts(list(one.hosts)) + (f" and {more} more" if more else "")
        scores = [_score(one.score), _score(one.alignment_score)]
        told = "taken" if one.taken else "rejected" if one.rejected else "not taken"
        why_not = one.rejected.message if one.rejected else one.note
        rows.append((where, *scores, told, printable(why_not)))
    click.echo(f"\nCandidates compared: {choice.compared_candidates}")
    table(("HOSTS", "SCORE", "COMPATIBILITY", "TAKEN", "NOTE"), rows, right=["SCORE", "COMPATIBILITY"])


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _alignment(alignment: Alignment | None, when: str = "") -> None:
    if not alignment:
        return
    click.echo(f"\nCompatibility score{when}: {alignment.score:.6g} of 100")
    for schedule in alignment.schedules:
        role = (
            "is the reference"
            if schedule.reference
            else "starts " + format_duration(schedule.shift_us) + " later"
        )
        click.echo(f"  job {schedule.job} {role}, an iteration every {format_duration(schedule.period_us)}")
    spines: dict[tuple[int, int], list[str]] = {}
    for path in alignment.paths:
        spines.setdefault((path.job, path.spine), []).append(path.host)
    for (job, spine), hosts in spines.items():
        click.echo(f"  job {job}: over spine {spine} from {', '.join(hosts)}")
    if unmatched := alignment.unmatched:
        click.echo(f"  without a rotation: {', '.join(f'job {job}' for job in unmatched)}")


@click.command()
@job_operand
@json_option
@click.pass_obj
def why(session: Session, /, job: str | None, job_word: str | None, as_json: bool) -> None:
    """Show why JOB waits: every blocker with its numbers; or the recorded decision that placed it."""
    named = one_job(job, job_word, several=True)
    if not named.tasks or named.tasks.isdigit():
        answer = session.client.why(named)
        if as_json:
            emit_answer(answer)
        else:
            _show(answer.ref or str(answer.job), answer)
        return
    asked = _alike(session.client.job(JobId(named.job)), named)
    told = [(ref, session.client.why(first)) for ref, first in asked]
    if as_json:
        emit_json({"elements": [{"elements": str(ref), "why": answer} for ref, answer in told]})
        return
    for number, (ref, answer) in enumerate(told):
        if number:
            click.echo()
        _show(str(ref), answer)


def _alike(job: Job, named: JobId) -> list[tuple[JobId, JobId]]:
    """The elements that are named, in the order of their indices: those without jobs of their own that wait,
    are held, or were cancelled together, by the first of them, unless each waits for another job."""
    chosen = chosen_of(job, named.tasks)
    assert job.array is not None
    waiting, held, dropped = map(mask, (job.array.waiting, job.array.held, job.array.dropped))
    alike = not any(one.undecided or one.met or one.lost for one in job.dependencies)
    together = [some & chosen for some in (waiting & ~held, held, dropped) if alike and some & chosen]
    single = chosen & ~(waiting | dropped) if alike else chosen
    if single.bit_count() > ELEMENTS_MAX:
        count = f"{single.bit_count()} elements to be told one by one"
        raise UsageError(f"{str(named)[:80]} has {count}: at most {ELEMENTS_MAX} are.", "Name fewer.")
    kinds = sorted([*together, *(1 << task for task in each(single))], key=lowest)
    return [(JobId(job.id, text_of(some)), JobId(job.id, str(lowest(some)))) for some in kinds]


def _show(called: str, answer: Why) -> None:
    click.echo(f"Job {called} is {answer.state}.")
    _position(answer.queue_position)
    _reasons(answer.reasons)
    _priority(answer.priority)
    _start(answer.start, answer.no_start)
    _chain(answer)
    waits = answer.state == "PENDING"
    if not waits:
        _choice(answer.choice)
    _verdicts(answer.verdicts)
    if not waits:
        _compared(answer.choice)
    _alignment(answer.alignment, "" if waits else " now")


def show_plan(plan: Plan, as_json: bool) -> int:
    """The dry run's answer; NO_ROOM when the job would not start now."""
    placement = plan.placement
    if as_json:
        emit_answer(plan)
    elif placement is None:
        click.echo("The job would not start now:")
        _reasons(plan.reasons)
        _start(plan.start, plan.no_start)
        _verdicts(plan.verdicts)
    else:
        hosts = list(dict.fromkeys(task.host for task in placement.tasks))
        click.echo(f"The job would start now on {fold_hosts(hosts)}.")
        _verdicts(plan.verdicts)
        _alignment(plan.alignment)
    return NO_ROOM if placement is None else 0
