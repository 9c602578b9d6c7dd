"""`rmx sim replay`: does a journal decide the same again, and what would other policies have done?"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rm.cli.heartbeat import Heartbeat
from rm.cli.output import note
from rm.cli.session import Session, emit_json, json_option, table
from rm.errors import UsageError
from rm.units import fold_hosts, parse_duration_us

if TYPE_CHECKING:
    from rm.core.journal.journal import Chosen
    from rm.sim.journal_source import Journal
    from rm.sim.replay import Verdict
    from rm.sim.replay_summary import Row
    from rm.sim.whatif import Decider

FILE = click.Path(dir_okay=False, path_type=Path)
KINDS = ("queue", "placement", "comm")


@click.command()
@click.argument("journal", required=False, metavar="[JOURNAL]")
@click.option("--queue", metavar="POLICY", help="What if this had been the queue policy?")
@click.option("--placement", metavar="POLICY", help="What if this had been the placement policy?")
@click.option("--comm", metavar="POLICY", help="What if this had been the communication policy?")
@click.option("--policies", type=FILE, metavar="FILE", help="What if [policies] came from this rm.toml?")
@click.option("--since", metavar="TIME", help="Begin before this: 2026-11-14, 2026-11-14T16:00, or 7d ago.")
@click.option("--jobs", "list_jobs", is_flag=True, help="List every job that would start otherwise.")
@click.option("--export", "target", type=FILE, help="Write the journal into FILE (.gz: compressed) instead.")
@json_option
@click.pass_obj
def replay(
    session: Session,
    /,
    journal: str | None,
    queue: str | None,
    placement: str | None,
    comm: str | None,
    policies: Path | None,
    since: str | None,
    list_jobs: bool,
    target: Path | None,
    as_json: bool,
) -> int:
    """Take a daemon's journal again through the scheduler.

    JOURNAL is a database (a SQLite file, or a URL) or a file made with --export; by default the
    database of rm.toml. Without policies every decision is compared with the recorded one, and a
    difference ends it with code 1. With policies the same submissions meet these, and the
    differences are shown.
    """
    from rm import __version__
    from rm.sim.journal_source import export, open_journal

    source = open_journal(journal or _own_database(session))
    first = _first(source, since)
    if target is not None:
        with _busy(source, "exported"):
            count = export(source, target, first, __version__)
        note(f"Wrote {count} entries of {source.name} into {target}.")
        return 0
    named = {k: v for k, v in zip(KINDS, (queue, placement, comm), strict=True) if v is not None}
    if named or policies is not None:
        from rm.sim.whatif import Decider

        _what_if(source, first, Decider(*_chosen(named, policies)), list_jobs, as_json)
        return 0
    return _verify(source, first, as_json)


def _busy(source: Journal, what: str) -> Heartbeat:
    return Heartbeat(lambda: f"the journal of {source.name} is {what}")


def _own_database(session: Session) -> str:
    from rm.config import load_config

    return load_config(session.config_flag).daemon.database


def _first(source: Journal, since: str | None) -> int:
    """The sequence number of the last start at or before that time, or of the first one."""
    starts = source.starts()
    if since is None or not starts:
        return 0
    since_us = _time_us(since)
    return max([seq for seq, at_us in starts if at_us <= since_us], default=starts[0][0])


def _time_us(text: str) -> int:
    now = datetime.now()
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        try:
            when = now - timedelta(microseconds=parse_duration_us(text.removesuffix("ago")))
        except UsageError:
            raise UsageError(
                f"--since is '{text}'.", "Write 2026-11-14, 2026-11-14T16:00, or 7d for seven days ago."
            ) from None
    return round(when.timestamp() * 1e6)


def _chosen(named: Mapping[str, str], file: Path | None) -> tuple[dict[str, Chosen | str], Any]:
    """The policies that are asked for: by their names alone, or with the options of an rm.toml."""
    if file is None:
        return dict(named), None
    from rm.bootstrap.choices import named_policies, tuning_of
    from rm.config import load

    config = load(str(file)).config
    return {**named_policies(config), **named}, tuning_of(config)


# -- the same decisions? --------------------------------------------------------------------------


def _verify(source: Journal, first: int, as_json: bool) -> int:
    from rm import __version__
    from rm.sim.replay import verify

    with _busy(source, "replayed"):
        verdict = verify(source.entries(first))
    found = verdict.difference
    if as_json:
        emit_json(_verdict_fields(source, verdict))
        return 1 if found else 0
    for setup in verdict.setups:
        click.echo(f"Policies: {_policies_text(setup.policies)} (rm {setup.rm}).")
    click.echo(
        f"Replayed {_span(verdict.from_us, verdict.until_us)}: {verdict.steps:,} steps with "
        f"{verdict.events:,} events and {verdict.placed:,} placements; starts: {verdict.starts}."
    )
    if found is None:
        click.echo("Every decision is the same.")
        return 0
    click.echo(f"The first difference, at {_clock(found.at_us)} (entry {found.seq}): {found.what}.")
    if found.rm != __version__:
        click.echo(f"That was decided by rm {found.rm}; this is rm {__version__}.")
    return 1


def _verdict_fields(source: Journal, verdict: Verdict) -> dict[str, Any]:
    found = verdict.difference
    return {
        "journal": source.name,
        "from_us": verdict.from_us,
        "until_us": verdict.until_us,
        "starts": verdict.starts,
        "steps": verdict.steps,
        "events": verdict.events,
        "placed": verdict.placed,
        "policies": [_policies_fields(s.policies) for s in verdict.setups],
        "equal": found is None,
        "difference": found and {"seq": found.seq, "at_us": found.at_us, "what": found.what, "rm": found.rm},
    }


# -- what if? -----------------------------------------------------------------------------------


def _what_if(source: Journal, first: int, asked: Decider, list_jobs: bool, as_json: bool) -> None:
    from rm.sim import recording, replay_summary
    from rm.sim.whatif import Decider, WhatIf

    with _busy(source, "replayed, with its own policies and with the others"):
        told = recording.read(source.entries(first))
        same, other = WhatIf(told, Decider({}, None)), WhatIf(told, asked)
        rows = replay_summary.rows(told, same.play(source.entries(first)), other.play(source.entries(first)))
    columns = ("recorded", "modelled", "replayed")
    values = {which: replay_summary.metrics(rows, which) for which in columns}
    counts = replay_summary.counts(rows)
    assumed = sorted(same.assumed | other.assumed)
    if as_json:
        emit_json(
            {
                "journal": source.name,
                "from_us": told.from_us,
                "until_us": told.until_us,
                "recorded_policies": [_policies_fields(s.policies) for s in told.setups],
                "policies": [_policies_fields(asked.choose(s)) for s in told.setups],
                "counts": counts,
                "metrics": values,
                "assumed_jobs": assumed,
                "jobs": [replay_summary.row_to_json(row) for row in rows],
            }
        )
        return
    if list_jobs:
        _list_jobs([row for row in rows if row.changed])
        click.echo()
    for setup in told.setups:
        click.echo(f"Recorded: {_policies_text(setup.policies)}, {_span(told.from_us, told.until_us)}.")
        click.echo(f"What if:  {_policies_text(asked.choose(setup))}.")
    click.echo()
    table(
        ("METRIC", "RECORDED", "SAME POLICIES", "WHAT IF", "UNIT", "WHAT"),
        [
            (name, *(_number(values[which][name]) for which in columns), unit, what)
            for name, (what, unit) in replay_summary.METRICS.items()
        ],
        right=("RECORDED", "SAME POLICIES", "WHAT IF"),
    )
    click.echo(
        f"\nOf {counts['compared']:,} jobs that start in all three (of {counts['jobs']:,}), "
        f"{counts['earlier']:,} start earlier, {counts['later']:,} later and {counts['elsewhere']:,} on "
        "other hosts than with the same policies in this model."
    )
    if assumed:
        click.echo(
            f"Jobs whose run time is not in the journal: {len(assumed):,}; the model uses what they declare, "
            "or the usual run time."
        )


def _list_jobs(rows: list[Row]) -> None:
    def seconds(row: Row, start_us: int | None) -> str:
        return "-" if start_us is None else f"{max(0, start_us - row.due_us) / 1e6:.1f}"

    table(
        ("JOB", "NAME", "WAITED s", "SAME s", "WHAT IF s", "HOSTS", "SAME", "WHAT IF", "SCORE"),
        [
            (
                row.story.id,
                row.story.spec.name,
                *(seconds(row, f.start_us) for f in (row.recorded, row.modelled, row.replayed)),
                *(fold_hosts(f.hosts) or "-" for f in (row.recorded, row.modelled, row.replayed)),
                _number(row.replayed.score),
            )
            for row in rows
        ],
        right=("JOB", "WAITED s", "SAME s", "WHAT IF s", "SCORE"),
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _policies_text(policies: Mapping[str, Chosen]) -> str:
    return ", ".join(f"{kind} {policies[kind].name}" for kind in KINDS)


def _policies_fields(policies: Mapping[str, Chosen]) -> dict[str, Any]:
    return {k: {"name": policies[k].name, "options": dict(policies[k].options)} for k in KINDS}


def _span(from_us: int | None, until_us: int | None) -> str:
    return f"{_clock(from_us or 0)} to {_clock(until_us or 0)}"


def _clock(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6).strftime("%Y-%m-%d %H:%M:%S")
