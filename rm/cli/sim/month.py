"""`rmx sim month` and `rmx sim waits`: who gets how much of a shared cluster, and how long jobs wait."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from rm.cli.output import note
from rm.cli.session import table
from rm.cli.sim.run import FILE, bar

JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object with a version key.")
SEED = click.option("--seed", type=int, default=1, show_default=True, help="Equal seeds give equal runs.")


@click.command()
@click.argument("file", type=FILE, metavar="SCENARIO.toml")
@SEED
@click.option("--plot", type=FILE, help="Draw the parts into FILE (.svg, .png).")
@JSON
def month(file: Path, seed: int, plot: Path | None, as_json: bool) -> None:
    """Let users share a cluster for a month: what each gets under several queue policies."""
    from rm.sim import month as scenario
    from rm.sim import plots
    from rm.sim.batch import held_by

    form = scenario.read(file)
    parts, got = scenario.parts_of(form), dict[str, dict[str, float]]()
    utilisation: dict[str, float] = {}
    for queue in form.policies:
        with bar(queue) as progress:
            played = scenario.play(form, queue, seed, progress)
        held = held_by(played.stays, form.span_us)
        whole = max(1, sum(held.values()))
        got[queue] = {user: held.get(user, 0) / whole for user in parts}
        utilisation[queue] = played.utilisation(form.span_us)
    if plot is not None:
        plots.parts(parts, got, form.name, plot)
        note(f"Wrote {plot}.")
    if as_json:
        told = {"parts": parts, "got": got, "utilisation": utilisation}
        click.echo(json.dumps({"version": 1, "scenario": form.name, "seed": seed} | told))
        return
    appetites = {one.name: f"{one.appetite:g}" for one in form.user}
    rows = [
        (user, appetites[user], f"{100 * part:.1f} %", *(_beside(got[queue][user], part) for queue in got))
        for user, part in parts.items()
    ]
    names = tuple(queue.upper() for queue in got)
    table(("USER", "APPETITE", "SHARE", *names), rows, right=("APPETITE", "SHARE", *names))
    used = ", ".join(f"{queue} {100 * part:.1f} %" for queue, part in utilisation.items())
    click.echo(f"\nOf the GPUs' time was used: {used}.")


@click.command()
@click.argument("trace", metavar="TRACE.csv")
@click.option("--cluster", default="", help="The jobs of this cluster alone.")
@click.option("--hosts", type=click.IntRange(1, 100_000), default=16, show_default=True)
@click.option("--gpus", type=click.IntRange(1, 64), default=8, show_default=True, help="Of each host.")
@click.option(
    "--queue", default="fifo,backfill:1,backfill:16", show_default=True, metavar="NAME[:DEPTH],...",
    help="Queue policies.",
)  # fmt: skip
@click.option("--badness", type=click.FloatRange(0), default=4.0, show_default=True,
              help="A time limit is too long by at most this number of run times.")  # fmt: skip
@click.option("--ask-each", type=click.IntRange(0), default=10, show_default=True,
              help="One of this number of jobs is asked when it is expected to start; 0: none.")  # fmt: skip
@SEED
@JSON
def waits(
    trace: str, cluster: str, hosts: int, gpus: int, queue: str, badness: float, ask_each: int, seed: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Play a TRACE: waiting, utilisation and the error of expected starts under several queue policies.

    Instead of a file it may be philly-1, philly-2 or philly-3: the samples of 160 jobs that come with rm.
    """
    from rm.sim import trace as traces
    from rm.sim.real.workloads import PHILLY

    settings = traces.Settings(hosts, gpus, cluster, badness, seed, ask_each)
    works = traces.carried(trace, settings) if trace in PHILLY else traces.read(Path(trace), settings)
    found: dict[str, traces.Waits] = {}
    for name in queue.split(","):
        policy, _, depth = name.partition(":")
        with bar(name):
            found[name] = traces.play(works, policy, int(depth or 0), settings)
    if as_json:
        told = {name: asdict(one) for name, one in found.items()}
        click.echo(json.dumps({"version": 1, "trace": Path(trace).name, "seed": seed, "policies": told}))
        return
    rows = [
        (
            name,
            f"{one.mean_s / 3600:.2f} h",
            f"{one.median_s / 3600:.2f} h",
            f"{one.p95_s / 3600:.1f} h",
            f"{100 * one.utilisation:.1f} %",
            str(one.asked),
            f"{one.latest_error_s / 3600:.2f} h",
            f"{one.likely_error_s / 3600:.2f} h",
            f"{100 * one.within:.0f} %",
            f"{100 * one.before:.0f} %",
            f"{one.interval_s / 3600:.2f} h",
        )
        for name, one in found.items()
    ]
    header = (
        "QUEUE",
        "WAIT",
        "MEDIAN",
        "95 %",
        "USED",
        "ASKED",
        "ERROR",
        "OF LIKELY",
        "WITHIN",
        "BEFORE",
        "INTERVAL",
    )
    table(header, rows, right=header[1:])
    click.echo(f"\n{len(works)} jobs on {hosts} hosts with {gpus} GPUs each.")


def _beside(got: float, part: float) -> str:
    """`21.1 % (-1.7 %)`"""
    return f"{100 * got:.1f} % ({100 * (got / part - 1):+.1f} %)"
