"""`rmx playbook start`, `runs` and `report`: playbooks that the daemon runs, as on its page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from rm.cli.output import printable
from rm.cli.session import Session, emit_json, json_option, table
from rm.errors import UsageError
from rm.units import format_elapsed

if TYPE_CHECKING:
    from rm.api.playbooks import PlaybookRun

COUNTED = ("ok", "changed", "unreachable", "failed", "skipped", "rescued", "ignored")


@click.command()
@click.argument("name", metavar="PLAYBOOK")
@click.option("-e", "--answer", multiple=True, metavar="NAME=VALUE", help="An answer to the survey.")
@click.option(
    "--answers", "file", type=click.File("r"), metavar="FILE",
    help="The answers as JSON, private ones too; - is standard input.",
)  # fmt: skip
@click.option("-l", "--limit", metavar="PATTERN", default="", help="Only these hosts and groups.")
@click.option("-t", "--tags", metavar="TAGS", default="", help="Only tasks with these tags.")
@click.option("--skip-tags", metavar="TAGS", default="", help="No tasks with these tags.")
@click.option("-C", "--check", is_flag=True, help="Change nothing; say what would change.")
@json_option
@click.pass_obj
def start(
    session: Session, /, name: str, answer: Sequence[str], file: Any, limit: str, tags: str, skip_tags: str,
    check: bool, as_json: bool,
) -> None:  # fmt: skip
    """Let the daemon run one of the playbooks that may be started from its page."""
    answers: dict[str, Any] = {}
    if file is not None:
        try:
            answers = json.load(file)
        except ValueError as error:
            raise UsageError(f"The answers are not JSON: {error}.") from None
        if not isinstance(answers, dict):
            raise UsageError("The answers must be a JSON object.")
    for text in answer:
        key, sign, value = text.partition("=")
        if not sign:
            raise UsageError(f"-e {text!r} answers nothing.", "Write NAME=VALUE.")
        answers[key] = value
    run = session.client.playbooks.start(
        name, answers, limit=limit, tags=_words(tags), skip_tags=_words(skip_tags), check=check
    )
    if as_json:
        emit_json({"run": run.id})
    else:
        click.echo(f"Run {run.id} of {run.playbook} is {run.state}: rmx playbook report {run.id}")


def _words(text: str) -> list[str]:
    return [word for word in text.replace(",", " ").split() if word]


@click.command()
@click.option(
    "-n", "--last", default=20, show_default=True, type=click.IntRange(1, 500), help="The newest N runs."
)
@click.option("--playbook", metavar="PLAYBOOK", default="", help="Of one playbook.")
@json_option
@click.pass_obj
def runs(session: Session, /, last: int, playbook: str, as_json: bool) -> None:
    """List the playbooks that the daemon has run, those on its page."""
    found = session.client.playbooks.runs(limit=last, playbook=playbook)
    if as_json:
        emit_json({"runs": found})
        return
    rows = []
    for one in reversed(found):
        counts = [sum(getattr(each, name) for each in one.recap.values()) for name in ("changed", "failed")]
        name = one.playbook + (" (check)" if one.options.check else "")
        rows.append((str(one.id), one.by, printable(name), one.options.limit or "all", one.state,
                     str(len(one.recap)), *map(str, counts), _took(one)))  # fmt: skip
    table(
        ("RUN", "BY", "PLAYBOOK", "LIMIT", "STATE", "HOSTS", "CHANGED", "FAILED", "TOOK"), rows,
        right=("RUN", "HOSTS", "CHANGED", "FAILED", "TOOK"),
    )  # fmt: skip


@click.command()
@click.argument("run", type=click.IntRange(1))
@click.option("--host", metavar="HOST", default="", help="Of one host.")
@click.option("--status", metavar="STATUSES", default="", help="Only these, with commas: changed,failed.")
@json_option
@click.pass_obj
def report(session: Session, /, run: int, host: str, status: str, as_json: bool) -> None:
    """Show what a run of the daemon's came to: each task on each host, with its time and what changed."""
    playbooks = session.client.playbooks
    told = playbooks.run(run)
    outcomes = list(playbooks.outcomes(run, host=host, status=status))
    if as_json:
        emit_json({"run": told.run, "doing": told.doing, "outcomes": outcomes})
        return
    one = told.run
    click.echo(f"run {one.id}: {one.playbook}, {one.state}, by {one.by}, {_took(one)}")
    if one.message:
        click.echo(printable(one.message))
    for note in one.notes:
        click.echo(f"note: {printable(note)}")
    for name, value in one.answers.items():
        click.echo(f"  {name}: {printable(value if isinstance(value, str) else json.dumps(value))}")
    for name in one.private:
        click.echo(f"  {name}: (private)")
    play = ""
    for each in outcomes:
        if each.play != play:
            play = each.play
            click.echo(f"PLAY {printable(play)}")
        line = f"{each.host}: {each.status:11} {each.took_us / 1e6:8.2f} s  {printable(each.task)}"
        bad = each.status in ("failed", "unreachable", "ignored", "rescued")
        click.echo(line + (f": {printable(' '.join(each.message.split()))}" if bad and each.message else ""))
        for diff in each.diffs:
            for text in diff.splitlines():
                click.echo("    " + printable(text.replace("\t", "    ")))
    for name, counts in sorted(one.recap.items()):
        click.echo(f"{name} : " + "  ".join(f"{word}={getattr(counts, word)}" for word in COUNTED))
    if one.not_reached:
        click.echo(f"not finished: {', '.join(one.not_reached)}")
    for name, doing in sorted(told.doing.items()):
        click.echo(f"{name}: is at {printable(doing.task)}")


def _took(run: PlaybookRun) -> str:
    if not run.began_us or not run.ended_us:
        return "–"
    return format_elapsed(run.ended_us - run.began_us)
