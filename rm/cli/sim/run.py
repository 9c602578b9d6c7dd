"""`rmx sim run` and `rmx sim compare`: a scenario file on the simulator."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rm.cli.heartbeat import Heartbeat
from rm.cli.output import note
from rm.cli.session import table
from rm.errors import UsageError

if TYPE_CHECKING:
    from rm.sim.result import Result
    from rm.sim.scenario import Scenario

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("file", type=FILE, metavar="SCENARIO.toml")
@click.option("--seed", type=int, default=1, show_default=True, help="Equal seeds give equal runs.")
@click.option("--jobs", "show_jobs", is_flag=True, help="List each job.")
@click.option("--plot", type=FILE, help="Draw hosts over time into FILE (.svg, .png).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with a version key.")
def run(file: Path, seed: int, show_jobs: bool, plot: Path | None, as_json: bool) -> None:
    """Simulate a scenario once, with the daemon's own cycle and policies."""
    from rm.sim import experiment, plots, scenario, summary

    form = scenario.read(file)
    with bar(form.name) as progress:
        result = experiment.run(form, seed, file.parent, progress)
    if plot is not None:
        plots.timeline(result, form.name, plot)
        note(f"Wrote {plot}.")
    if as_json:
        click.echo(json.dumps({"version": 1, "scenario": form.name, "seed": seed} | summary.run_row(result)))
        return
    if show_jobs:
        _list_jobs(result)
        click.echo()
    values = summary.metrics(result)
    table(
        ("METRIC", "VALUE", "UNIT", "WHAT"),
        [(name, f"{values[name]:.4g}", unit, what) for name, (what, unit) in summary.METRICS.items()],
        right=("VALUE",),
    )
    click.echo(
        f"\n{len(result.finished)} of {len(result.jobs)} jobs ended in {result.span_us / 1e6:.1f} simulated "
        f"seconds, {result.events} events; {result.alignments} alignments, worst score "
        f"{result.worst_score:.1f}, {result.pauses} pauses, {result.inspections} inspections."
    )


@click.command()
@click.argument("file", type=FILE, metavar="SCENARIO.toml")
@click.option("--vary", multiple=True, metavar="KIND=NAME,...", help="More variants: comm=none,cassini.")
@click.option("--seeds", type=click.IntRange(min=1), help="How many seeds (default: the scenario's).")
@click.option("--plot", type=FILE, help="Draw the job completion times into FILE (.svg, .png).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with a version key.")
def compare(file: Path, vary: tuple[str, ...], seeds: int | None, plot: Path | None, as_json: bool) -> None:
    """Compare policies on one scenario: the file as it stands, its [[variant]]s, and those of --vary.

    All run over the same seeds: jobs, arrivals and noise of a seed are the same for each, and gains
    compare pairs.
    """
    from rm.sim import experiment, plots, scenario, summary
    from rm.sim.statistics import mean_std

    form = _varied(scenario.read(file), vary)
    count = seeds or form.seeds
    results: dict[str, list[Result]] = {}
    for name, variant in experiment.variants(form):
        with bar(name) as progress:
            results[name] = [
                experiment.run(variant, seed, file.parent, progress) for seed in range(1, count + 1)
            ]
    values = {
        name: {metric: [summary.metrics(r)[metric] for r in runs] for metric in summary.METRICS}
        for name, runs in results.items()
    }
    if plot is not None:
        plots.completion(results, form.name, plot)
        note(f"Wrote {plot}.")
    base = next(iter(values))
    rows = []
    for name, measured in values.items():
        for metric, (what, unit) in summary.METRICS.items():
            mean, std = mean_std(measured[metric])
            gain = None if name == base else summary.gains(values[base][metric], measured[metric])
            rows.append(
                {"variant": name, "metric": metric, "what": what, "unit": unit, "mean": mean, "std": std}
                | {"gain_pct": gain and gain[0], "gain_std_pct": gain and gain[1]}
            )
    if as_json:
        click.echo(json.dumps({"version": 1, "scenario": form.name, "seeds": count, "rows": rows}))
        return
    table(
        ("VARIANT", "METRIC", "MEAN", "± STD", "UNIT", "GAIN"),
        [
            (
                row["variant"],
                row["metric"],
                f"{row['mean']:.4g}",
                f"{row['std']:.2g}",
                row["unit"],
                "-" if row["gain_pct"] is None else f"{row['gain_pct']:+.1f} ± {row['gain_std_pct']:.1f} %",
            )
            for row in rows
        ],
        right=("MEAN", "± STD", "GAIN"),
    )
    click.echo(f"\n{count} seeds; gains are over {base}, seed by seed: positive is less.")


def _varied(form: Scenario, vary: tuple[str, ...]) -> Scenario:
    """The scenario with a further variant for each name in `--vary KIND=NAME,NAME`."""
    import msgspec

    from rm.core.registry import KINDS
    from rm.sim.scenario import Variant
    from rm.typed import convert

    more = []
    for word in vary:
        kind, _, names = word.partition("=")
        if kind not in KINDS or not names:
            raise UsageError(f"--vary {word} is not KIND=NAME,...", f"KIND is one of {', '.join(KINDS)}.")
        more += [convert({"name": f"{kind} {name}", kind: name}, Variant) for name in names.split(",")]
    return msgspec.structs.replace(form, variant=(*form.variant, *more))


def _list_jobs(result: Result) -> None:
    from rm.units import fold_hosts

    rows = []
    for job in result.jobs:
        jct, wait = job.jct_us, job.wait_us
        rows.append(
            (
                job.name,
                "-" if wait is None else f"{wait / 1e6:.2f}",
                "-" if jct is None else f"{jct / 1e6:.2f}",
                str(job.iterations),
                f"{job.mean_us / 1e3:.1f}",
                f"{job.mean_us / job.alone_us:.3f}" if job.iterations and job.alone_us else "-",
                fold_hosts(job.hosts),
            )
        )
    table(
        ("JOB", "WAIT s", "JCT s", "ITERATIONS", "MEAN ms", "SLOWDOWN", "HOSTS"),
        rows,
        right=("WAIT s", "JCT s", "ITERATIONS", "MEAN ms", "SLOWDOWN"),
    )


@contextmanager
def bar(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Ended jobs of all, on standard error: a bar where that is a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        said = [f"{label}: begins"]
        with Heartbeat(lambda: said[0]):
            yield lambda ended, total: said.__setitem__(0, f"{label}: {ended} of {total} jobs have ended")
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def progress(ended: int, total: int) -> None:
            bar.length = total
            bar.update(ended - bar.pos)

        yield progress
