"""`rmx demo`: two training jobs share links on this machine, with and without rm; figures and a picture."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rm.cli.demo_screen import paragraph, shown_screen
from rm.cli.session import table
from rm.errors import UsageError

if TYPE_CHECKING:
    from rm.demo.figures import Measured

FORMATS = (".svg", ".png", ".pdf")


@click.command()
@click.option("--json", "json_file", metavar="FILE", help="Write the figures to FILE; - for standard output.")
@click.option(
    "--picture", metavar="FILE", help="Where the picture goes, .svg or .png (default: beside the figures)."
)
@click.option("--quick", is_flag=True, help="One short run of each mode: to see that it works, not how well.")
@click.option("--paper", metavar="NAME", help="A paper's idea instead, live and simulated, in three minutes.")
def demo(json_file: str | None, picture: str | None, quick: bool, paper: str | None) -> int:
    """Bring up hosts on this machine, and let two training jobs share their links, with and without rm.

    Takes about five minutes (--quick: one), needs about 1 GB of memory, and leaves nothing behind but the
    files that you name. As root, or without root where the system allows user namespaces.

    If other work on this machine spoils a measurement, all is measured once more when the machine is quieter.

    Papers are metronome, cassini, foresight, ada-srsf and zone-first.
    """
    if paper is not None:
        if picture or quick:
            raise UsageError("--paper makes no picture, and is quick.", "Leave --picture and --quick out.")
        from rm.cli.paper_demo import paper_demo

        return paper_demo(paper, json_file, _writable(json_file))
    from rm.cli.lab import default_directory
    from rm.demo import scenario
    from rm.demo.figures import report
    from rm.demo.picture import draw
    from rm.demo.play import play

    drawn = _picture_path(picture, json_file, default_directory().parent)
    figures_file = _writable(json_file)
    # ended from outside is ended all the same: nothing may stay
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    length = scenario.QUICK if quick else scenario.FULL
    with shown_screen() as screen:
        measured, meter = play(default_directory().parent, length, screen)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        draw(measured, meter, drawn)
    text = json.dumps(report(measured), indent=1, ensure_ascii=False)
    if json_file == "-":
        click.echo(text)
    elif figures_file is not None:
        figures_file.write_text(text + "\n")
    if json_file != "-":
        show(measured)
        click.echo(f"\nPicture: {drawn}")
    return 0


def _picture_path(picture: str | None, json_file: str | None, base: Path) -> Path:
    if picture is not None:
        path = Path(picture).absolute()
    elif json_file and json_file != "-":
        path = Path(json_file).absolute().with_suffix(".svg")
    else:
        path = base / "demo.svg"
    if path.suffix not in FORMATS:
        raise UsageError(f"The picture cannot be written as {path.name}.", f"Name it {' or '.join(FORMATS)}.")
    _writable(str(path))
    return path


def _writable(file: str | None) -> Path | None:
    """Find out before the minutes of work, not after them."""
    if not file or file == "-":
        return None
    path = Path(file).absolute()
    if path.is_dir() or not os.access(path if path.exists() else _existing(path.parent), os.W_OK):
        raise UsageError(f"The file {path} cannot be written.", "Name another one.")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def show(measured: Measured) -> None:
    """The tables, on standard output."""
    click.echo(f"\nIteration times, and use of the links {', '.join(measured.hosts)}:\n")
    _times(measured)
    click.echo()
    _rotation(measured)
    click.echo(f"\nBoth were placed on {', '.join(measured.hosts)}. Host by host:\n")
    _why(measured)
    _apart(measured.apart)
    _conditions(measured)
    click.echo("\n" + _verdict(measured))


def _times(measured: Measured) -> None:
    from rm.demo import scenario
    from rm.demo.figures import statistics

    titles = {scenario.ALONE: "alone", **{mode.name: mode.title for mode in scenario.MODES}}
    if measured.shaping:
        titles[scenario.MANAGED.name] += " but shaping"
    used_columns = [f"{host} USED" for host in measured.hosts]
    rows = []
    for training in scenario.PAIR:
        for mode, title in titles.items():
            found = statistics(measured.iterations(mode, training.name))
            ratio = measured.times_alone(mode, training.name)
            if found is None or ratio is None:
                continue
            job = training.name if mode == scenario.ALONE else ""
            used = [measured.utilisation(mode, host, job) for host in measured.hosts]
            shown = ["-" if share is None else f"{100 * share:.0f} %" for share in used]
            times = [f"{found[name]:.1f}" for name in ("mean", "p90", "p99")]
            rows.append([training.name, title, *times, f"{ratio:.3f}", *shown])
    columns = ["JOB", "MODE", "MEAN MS", "P90 MS", "P99 MS", "× ALONE", *used_columns]
    table(columns, rows, right=columns[2:])


def _rotation(measured: Measured) -> None:
    from rm.demo.figures import report, score

    for host in measured.hosts:
        before, after = (score(measured, mode, host) for mode in ("shaped", "managed"))
        unrotated = "" if before is None else f", {before} unrotated"
        click.echo(f"Link {host}: compatibility score {after} of 100 rotated{unrotated}.")
    for job in report(measured)["jobs"]:
        if job["shift_ms"] is not None:
            paragraph(
                f"Job {job['name']}: time-shift {job['shift_ms']:.1f} ms, idle time {job['injected_ms']:.1f}",
                f"ms an iteration; {job['pauses']} pauses by the controller and {job['waits']} waits for its",
                f"slot ({job['waited_ms']:.0f} ms in all) in {measured.repeats} run(s).",
            )


def _conditions(measured: Measured) -> None:
    """All that one must know to judge the figures."""
    from rm.demo import scenario

    starts = ", ".join(f"{run.start_offset_ms:.0f}" for run in measured.of("unmanaged"))
    before, after = measured.load
    click.echo()
    paragraph(
        f"{measured.repeats} run(s) of each mode, the modes taking turns on the same hosts; unmanaged, the",
        f"low job began {starts} ms after the high one. The first {measured.left_out_s:g} s of each run are",
        f"left out. Queue of each link {scenario.QUEUE_PACKETS} packets, congestion control",
        f"{scenario.CONGESTION_CONTROL}, {scenario.LINK_MBPS} Mbit/s. The computation is emulated (sleep),",
        "the all-reduce is real TCP between hosts made of namespaces on this machine, whose load was",
        f"{before:g} before and {after:g} after, on {os.cpu_count()} processors.",
    )
    if measured.shaping:
        paragraph(f"Shaping: {measured.shaping}")


def _why(measured: Measured) -> None:
    names = list(dict.fromkeys(name for verdict in measured.verdicts for name, _ in verdict.scores))
    rows = []
    for verdict in measured.verdicts:
        scores = dict(verdict.scores)
        refused = verdict.refused
        told = f"refused: {refused.code}" if refused else "accepted"
        chosen = "chosen" if verdict.host in measured.hosts else told
        rows.append([verdict.host, *(f"{scores[n]:.6g}" if n in scores else "-" for n in names), chosen])
    columns = ["HOST", *(name.upper() for name in names), "VERDICT"]
    table(columns, rows, right=columns[1:-1])
    click.echo()
    for verdict in measured.verdicts:
        if verdict.refused:
            click.echo(f"{verdict.host} was not chosen: {verdict.refused.message}.")


def _apart(apart: dict[str, Any]) -> None:
    if not apart:
        return
    where = " and ".join(f"{name} on {', '.join(hosts)}" for name, hosts in apart["hosts"].items())
    click.echo()
    paragraph(
        f"Kept apart: two jobs that communicate {apart['communication_ms']:.0f} of {apart['period_ms']:.0f}",
        f"ms have no rotation (score together {apart['score_together']}), so they run on different links:",
        f"{where}.",
    )


def _verdict(measured: Measured) -> str:
    """What this run shows, whether it pleases or not."""
    parts = []
    for name in ("high", "low"):
        unmanaged, managed = (measured.times_alone(mode, name) for mode in ("unmanaged", "managed"))
        if unmanaged is not None and managed is not None:
            parts.append(f"{name} {unmanaged:.2f} × alone unmanaged and {managed:.2f} × with rm")
    return f"In this run: {'; '.join(parts)}."
