"""`rmx monitor`: the meshes that measure the network, their schedules, grids and runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from rm.cli.groups import Group
from rm.cli.heartbeat import Heartbeat
from rm.cli.network.psconfig import export_psconfig, import_psconfig
from rm.cli.output import note
from rm.cli.session import Session, emit_answer, emit_json, json_option, table
from rm.units import format_duration, parse_duration_us

if TYPE_CHECKING:
    from rm.api.monitoring import Archives, Cell, Grid, Meshes, Run, Sources

MESH = click.argument("mesh")
FAILED_MOST = 5  # pairs that are named after a run


@click.group(cls=Group)
def monitor() -> None:
    """Show, run and pause the meshes that measure the network."""


monitor.add_command(import_psconfig)
monitor.add_command(export_psconfig)


@monitor.command("list")
@json_option
@click.pass_obj
def list_meshes(session: Session, /, as_json: bool) -> None:
    """List meshes: schedule, what they test, when they run next."""
    answer = session.client.monitor.meshes()
    if as_json:
        emit_json({"meshes": answer.meshes, "malformed": answer.malformed})
        return
    rows = [
        (
            mesh.name,
            mesh.state,
            mesh.schedule,
            ",".join(mesh.tests) or mesh.kind,
            len(mesh.hosts),
            format_duration(_seconds(mesh.every_us)),
            _away(mesh.next_us),
        )
        for mesh in answer.meshes
    ]
    columns = ("MESH", "STATE", "SCHEDULE", "TESTS", "HOSTS", "EACH PAIR EVERY", "NEXT IN")
    table(columns, rows, right=("HOSTS", "EACH PAIR EVERY", "NEXT IN"))
    _tell_malformed(answer)


@monitor.command()
@click.argument("mesh", required=False)
@json_option
@click.pass_obj
def status(session: Session, /, mesh: str | None, as_json: bool) -> None:
    """Show each mesh's last run and its cells by status; or one mesh's bad cells."""
    if mesh is not None:
        _show_mesh(session.client.monitor.grid(mesh), as_json)
        return
    answer = session.client.monitor.meshes()
    if as_json:
        emit_json({"meshes": answer.meshes, "malformed": answer.malformed})
        return
    rows = []
    for one in answer.meshes:
        counts = one.statuses
        rows.append(
            (
                one.name,
                one.state + (f" by {one.paused_by}" if one.paused_by else ""),
                _ago(one.ended_us),
                one.measured,
                one.failed,
                one.skipped,
                " ".join(f"{word}:{n}" for word, n in counts.items() if n) or "-",
            )
        )
    columns = ("MESH", "STATE", "LAST RUN", "MEASURED", "FAILED", "NO GAP", "CELLS")
    table(columns, rows, right=columns[2:6])
    _tell_malformed(answer)


def _show_mesh(grid: Grid, as_json: bool) -> None:
    if as_json:
        emit_answer(grid)
        return
    from rm.cli.network.grid import words

    bad = [c for c in grid.cells if c.status]
    rows = [
        (c.source, c.destination, c.check, words(c.status), _ago(c.since_us), c.message)
        for c in sorted(bad, key=lambda c: (-c.status, c.source, c.destination))
    ]
    table(("SOURCE", "DESTINATION", "CHECK", "STATUS", "SINCE", "MESSAGE"), rows, right=("SINCE",))
    note(f"{len(grid.cells) - len(bad)} of {len(grid.cells)} cells are ok.")


@monitor.command()
@MESH
@click.option("--check", default="", help="Only this check, such as loss, delay, bandwidth, mtu or dns.")
@click.option("--source", default="", metavar="HOST", help="Only from this host.")
@click.option("--destination", default="", metavar="HOST", help="Only to this host.")
@click.option("--since", default="7d", show_default=True, help="How far back, such as 1h or 30d.")
@click.option("--limit", default=100, show_default=True, help="Show the newest N.")
@json_option
@click.pass_obj
def history(
    session: Session,
    /,
    mesh: str,
    check: str,
    source: str,
    destination: str,
    since: str,
    limit: int,
    as_json: bool,
) -> None:
    """Show how the statuses of a mesh's cells changed, the newest first."""
    since_s = parse_duration_us(since) / 1e6
    changes = session.client.monitor.changes(
        mesh, check=check, source=source, destination=destination, since_s=since_s, limit=limit
    )[::-1]
    if as_json:
        emit_json({"mesh": mesh, "changes": changes})
        return
    from rm.cli.network.grid import words

    rows = [
        (
            _ago(c.at_us),
            c.source,
            c.destination,
            c.check,
            words(c.was),
            words(c.status),
            c.message,
        )
        for c in changes
    ]
    table(("AGO", "SOURCE", "DESTINATION", "CHECK", "WAS", "STATUS", "MESSAGE"), rows, right=("AGO",))
    if not rows:
        note(f"No status changed in the last {since}.")


@monitor.command()
@MESH
@click.option("--once", is_flag=True, help="Run once as scheduled (the default without --all).")
@click.option("--all", "everything", is_flag=True, help="Measure all pairs now, not only the next rounds.")
@json_option
@click.pass_obj
def run(session: Session, /, mesh: str, once: bool, everything: bool, as_json: bool) -> None:
    """Run a mesh now and wait until it is over (for system cron, too). Fails if a test failed."""
    with Heartbeat(lambda: f"mesh {mesh} is run"):
        answer = session.client.monitor.run(mesh, all_rounds=everything)
    if as_json:
        emit_json({"mesh": answer})
    else:
        no_gap = f", {answer.skipped} left out (no gap)" if answer.skipped else ""
        click.echo(f"{mesh}: {answer.measured} pairs measured, {answer.failed} failed{no_gap}")
    if answer.failed:
        _say_what_failed(session, answer)
        raise click.exceptions.Exit(1)


def _say_what_failed(session: Session, run: Run) -> None:
    """The pairs of which this run learnt nothing, and why, on standard error."""
    from rm.cli.network.grid import UNKNOWN

    found: dict[str, list[Cell]] = {}
    for cell in session.client.monitor.grid(run.name).cells:
        if cell.result == UNKNOWN and (cell.checked_us or 0) >= (run.begun_us or 0):
            found.setdefault(" - ".join(sorted({cell.source, cell.destination})), []).append(cell)
    # what a clock hides is unknown of pairs that have not failed, too
    ranked = sorted(found.items(), key=lambda one: -len(one[1]))[: run.failed]
    for pair, cells in ranked[:FAILED_MOST]:
        checks = ", ".join(sorted({cell.check for cell in cells}))
        why = next((cell.message for cell in cells if cell.status == UNKNOWN and cell.message), "")
        why = why or _why_it_failed(session, run, cells[0])  # the grid waits for more failures in a row
        note(f"{pair}: nothing is known of {checks}{why and f': {why}'}")
    if len(ranked) > FAILED_MOST:
        note(f"{len(ranked) - FAILED_MOST} more: `rmx network --mesh {run.name}` shows all.")


def _why_it_failed(session: Session, run: Run, cell: Cell) -> str:
    """What the run said of the pair; nothing if that is not kept."""
    tries = session.client.network.history(cell.source, cell.destination).samples
    said = (
        one.failed for one in reversed(tries) if one.mesh == run.name and one.at_us >= (run.begun_us or 0)
    )
    return next(filter(None, said), "")


@monitor.command()
@MESH
@click.pass_obj
def pause(session: Session, /, mesh: str) -> None:
    """Do not run a mesh by its schedule until it is resumed, also over restarts of the daemon."""
    session.client.monitor.pause(mesh)
    click.echo(f"{mesh} is paused")


@monitor.command()
@MESH
@click.pass_obj
def resume(session: Session, /, mesh: str) -> None:
    """Run a paused mesh by its schedule again."""
    session.client.monitor.resume(mesh)
    click.echo(f"{mesh} runs by its schedule")


@monitor.command()
@click.option("--read", "name", metavar="NAME", help="Read this one now, then show it.")
@json_option
@click.pass_obj
def sources(session: Session, /, name: str | None, as_json: bool) -> None:
    """List the archives whose measurements join ours, and the result of the newest reading."""
    if name is not None:
        session.client.monitor.read_source(name)
    answer = session.client.monitor.sources()
    found = [row for row in answer.sources if name in (None, row.name)]
    if as_json:
        emit_json({"sources": found, "malformed": answer.malformed})
        return
    rows = []
    for one in found:
        numbers = (_ago(one.read_us), one.recorded, one.refused)
        rows.append((one.name, one.kind, one.every, *numbers, one.message or "-"))
    columns = ("SOURCE", "KIND", "EVERY", "LAST READ", "NEW", "REFUSED", "MESSAGE")
    table(columns, rows, right=columns[3:6])
    _tell_malformed(answer)


@monitor.command()
@json_option
@click.pass_obj
def archives(session: Session, /, as_json: bool) -> None:
    """List the archives that results are sent to, and how many wait, were sent and were given up."""
    answer = session.client.monitor.archives()
    if as_json:
        emit_json({"archives": answer.archives, "malformed": answer.malformed})
        return
    rows = [
        (
            one.name,
            one.kind,
            one.host,
            one.waiting,
            one.sent,
            one.dropped,
            _ago(one.sent_us),
            one.message or "-",
        )
        for one in answer.archives
    ]
    columns = ("ARCHIVE", "KIND", "HOST", "WAITING", "SENT", "GIVEN UP", "LAST SENT", "MESSAGE")
    table(columns, rows, right=columns[3:7])
    _tell_malformed(answer)


def _tell_malformed(answer: Meshes | Sources | Archives) -> None:
    for one in answer.malformed:
        note(f"left out: {one.message}")
    for mesh in getattr(answer, "meshes", ()):
        if mesh.complaint:
            note(mesh.complaint)


def _seconds(us: float) -> int:
    return round(us / 1e6) * 1_000_000


def _away(at_us: int | None) -> str:
    return "-" if at_us is None else format_duration(_seconds(max(0, at_us - time.time_ns() // 1000)))


def _ago(at_us: int | None) -> str:
    return "-" if not at_us else format_duration(_seconds(max(0, time.time_ns() // 1000 - at_us)))
