"""`rmx usage`: what jobs used that ended in a time, as Slurm's `sreport` adds it up."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from rm.cli.output import note
from rm.cli.session import Session, emit_answer, json_option, table
from rm.errors import UsageError

if TYPE_CHECKING:
    from rm.api.usage import Usage, UsageLine

USUAL_DAYS = 30
HOUR_US = 3_600_000_000
GIB_HOUR_MIB_S = 1024 * 3600
KWH_MJ = 3_600_000_000
SUMS = (
    "jobs", "failed", "requeued", "elapsed_us", "waited_us", "slowed_us", "cpu_us", "cpu_watched_us",
    "cpu_busy_us", "mem_mib_s", "gpu_us", "gpu_watched_us", "gpu_busy_us", "energy_mj", "read_bytes",
    "written_bytes", "waited_resources_us", "waited_priority_us", "waited_dependency_us", "waited_held_us",
    "waited_begin_us", "waited_limits_us", "waited_licenses_us", "waited_network_us", "waited_other_us",
    "received_bytes", "sent_bytes", "saved_us",
)  # fmt: skip
WAITS = tuple(name for name in SUMS if name.startswith("waited_") and name != "waited_us")


@click.command()
@click.option(
    "--by",
    default="account",
    metavar="NAMES",
    help="What each line is of: account, user, qos and partition, several with commas, or host; also day.",
)
@click.option("--from", "since", metavar="TIME", help="Jobs that ended since then (default: 30 days ago).")
@click.option("--to", "until", metavar="TIME", help="Jobs that ended before then (default: now).")
@click.option("--account", metavar="NAME", help="Only of this account.")
@click.option("--user", metavar="NAME", help="Only of this user.")
@click.option("--qos", metavar="NAME", help="Only of this QOS.")
@click.option("--partition", metavar="NAME", help="Only of this partition.")
@click.option("--host", metavar="NAME", help="Only of this host.")
@click.option("--waits", is_flag=True, help="For how long the jobs waited for what, added up.")
@click.option("--digest", metavar="ACCOUNT", help="As the weekly mail; without times of the last week.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, with a first line of names.")
@json_option
@click.pass_obj
def usage(
    session: Session,
    /,
    by: str,
    since: str | None,
    until: str | None,
    waits: bool,
    digest: str | None,
    as_csv: bool,
    as_json: bool,
    **only: str | None,
) -> None:
    """Show what jobs used: of which processors, GPUs and memory they held how much, and how busy these were.

    A job counts with all that it used where it ended. TIME is 2026-01-31, 2026-01-31T16:00, now-2days, today.
    """
    if as_csv and as_json:
        raise UsageError("--csv and --json are mutually exclusive.", "Keep one of them.")
    if digest is not None:
        if as_csv or as_json or any(value is not None for value in only.values()):
            raise UsageError("--digest goes with --from and --to alone.", "Leave the other options out.")
        click.echo(_digest(session, digest, since, until), nl=False)
        return
    now = datetime.now()
    asked = {name: value for name, value in only.items() if value is not None}
    first_us = _us(since, now, now - timedelta(days=USUAL_DAYS))
    found = session.client.sharing.usage(
        [word.strip() for word in by.split(",") if word.strip()],
        since_us=first_us,
        until_us=_us(until, now, now),
        **asked,
    )
    _say_forgotten(found, first_us)
    if as_json:
        emit_answer(found)
    elif as_csv:
        _write_csv(found)
    else:
        _show(found, _waits_of if waits else _used_of)


def _digest(session: Session, account: str, since: str | None, until: str | None) -> str:
    from rm.cli.output import printable
    from rm.core.sharing.digest import WEEK_US, digest, week_before

    now = datetime.now()
    first_us, last_us = week_before(round(now.timestamp() * 1_000_000))
    if since is not None or until is not None:
        last_us = _us(until, now, now)
        first_us = last_us - WEEK_US if since is None else _us(since, now, now)
    found = session.client.sharing.usage(["user"], since_us=first_us, until_us=last_us, account=account)
    _say_forgotten(found, first_us)
    text = digest(account, found.since_us, found.until_us, [(line.user, line) for line in found.lines])
    return "".join(f"{printable(line)}\n" for line in text.splitlines())


def _say_forgotten(found: Usage, first_us: int) -> None:
    if found.since_us > first_us:
        from rm.cli.shown import moment

        what = f"What ended before {moment(found.since_us)} is forgotten"
        click.echo(f"rmx: {what}: rm.toml's jobs.usage_days says for how long it is kept.", err=True)


def _us(text: str | None, now: datetime, usual: datetime) -> int:
    from rm.submission.begin import past_moment

    return round((usual if text is None else past_moment(text, now)).timestamp() * 1_000_000)


def _write_csv(found: Usage) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow((*found.by, *SUMS))
    for line in found.lines:
        writer.writerow((*(_name(line, name) for name in found.by), *(getattr(line, sum) for sum in SUMS)))


def _name(line: UsageLine, name: str) -> Any:
    if name == "day":
        return datetime.fromtimestamp(line.day_us / 1e6, UTC).strftime("%Y-%m-%d")
    return getattr(line, name)


Columns = tuple[list[str], Callable[[Any], list[Any]]]  # their names, and the cells of a line


def _used_of(found: Usage) -> Columns:
    from rm.units import format_bytes, format_elapsed

    gpus = any(line.gpu_us for line in found.lines)
    slowed, saved = (any(getattr(line, name) for line in found.lines) for name in ("slowed_us", "saved_us"))
    passed = any(line.received_bytes or line.sent_bytes for line in found.lines)

    def cells(line: Any) -> list[Any]:
        cells = [line.jobs, line.failed, format_elapsed(line.waited_us // max(1, line.jobs))]
        cells += [format_elapsed(line.slowed_us)] if slowed else []
        cells += [format_elapsed(line.saved_us)] if saved else []
        cells += [_hours(line.cpu_us), _busy(line.cpu_busy_us, line.cpu_watched_us)]
        cells.append(f"{line.mem_mib_s / GIB_HOUR_MIB_S:.1f}")
        if gpus:
            cells += [_hours(line.gpu_us), _busy(line.gpu_busy_us, line.gpu_watched_us)]
            cells.append(f"{line.energy_mj / KWH_MJ:.1f}")
        cells += [format_bytes(line.read_bytes), format_bytes(line.written_bytes)]
        network = (line.received_bytes, line.sent_bytes) if passed else ()
        return [*cells, *map(format_bytes, network)]

    of_links = (["SLOWED"] if slowed else []) + (["SAVED"] if saved else [])
    columns = ["JOBS", "FAILED", "WAITED", *of_links, "CPU-H", "BUSY", "GIB-H"]
    columns += ["GPU-H", "GPU-BUSY", "KWH"] if gpus else []
    return [*columns, "READ", "WRITTEN", *(("RECEIVED", "SENT") if passed else ())], cells


def _waits_of(found: Usage) -> Columns:
    from rm.units import format_elapsed

    def cells(line: Any) -> list[Any]:
        return [line.jobs, *(format_elapsed(getattr(line, name)) for name in WAITS)]

    return ["JOBS", *(name.removeprefix("waited_").removesuffix("_us").upper() for name in WAITS)], cells


def _show(found: Usage, shown: Callable[[Usage], Columns]) -> None:
    from rm.cli.shown import moment

    columns, cells = shown(found)
    rows = [[*(_name(line, name) or "-" for name in found.by), *cells(line)] for line in found.lines]
    if len(rows) > 1:
        rows.append(["all", *("" for _ in found.by[1:]), *cells(_Total(found.lines))])
    click.echo(f"Jobs that ended from {moment(found.since_us)} to {moment(found.until_us)}")
    table([*(name.upper() for name in found.by), *columns], rows, right=columns)
    if "BUSY" in columns and any(line.cpu_busy_us > line.cpu_watched_us > 0 for line in found.lines):
        note("BUSY is over 100 % where hosts let jobs have more processors than they held.")


class _Total:
    """Of all lines."""

    def __init__(self, lines: Sequence[UsageLine]) -> None:
        self._lines = lines

    def __getattr__(self, name: str) -> int:
        return sum(getattr(line, name) for line in self._lines)


def _hours(us: int) -> str:
    return f"{us / HOUR_US:.1f}"


def _busy(busy_us: int, watched_us: int) -> str:
    """Of what was watched; `-`: nothing was."""
    return f"{100 * busy_us / watched_us:.0f} %" if watched_us else "-"
