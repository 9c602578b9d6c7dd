"""`rmx sim real`: what scheduling by the network is worth on measured jobs of production traces."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import click

from rm.cli.output import note
from rm.cli.session import table
from rm.cli.sim.run import FILE, bar
from rm.errors import UsageError

ROOT = Path(__file__).parents[3]  # of a checkout, where docs/ lies beside rm/
FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.option("--workload", default="pollux", show_default=True, metavar="NAME,...",
              help="pollux, philly, or single ones: pollux-1, philly-3.")  # fmt: skip
@click.option("--cluster", default="flat", show_default=True, metavar="NAME",
              help="flat: 16 hosts of 4 GPUs; lingjun: racks of a production fabric.")  # fmt: skip
@click.option(
    "--system", default="", metavar="NAME,...", help="What is compared (default: those of queue backfill)."
)
@click.option("--queue", default="", metavar="NAME", help="One queue policy for all, not each system's own.")
@click.option("--ours", default="ours", show_default=True, metavar="NAME",
              help="The system that the columns OURS AHEAD compare with.")  # fmt: skip
@click.option("--faster", type=click.FloatRange(0.01, 1000), default=1.0, show_default=True,
              help="GPUs compute N times as fast as those measured.")  # fmt: skip
@click.option("--speed", type=click.FloatRange(1, 10_000), default=40.0, show_default=True,
              help="Jobs make N times fewer iterations, and come N times sooner.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Runs of each.")
@click.option("--jobs", type=click.IntRange(min=1), help="How many processes (default: one a processor).")
@click.option("--keep", type=FOLDER, help="Keep results in DIR, and take those that the same code has kept.")
@click.option("--plot", type=FILE, help="Draw the job times into FILE (.svg, .png).")
@click.option("--update-docs", is_flag=True, help="Write this table and plot of docs/real-workloads.md.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with a version key.")
def real(
    workload: str, cluster: str, system: str, queue: str, ours: str, faster: float, speed: float, seeds: int,
    jobs: int | None, keep: Path | None, plot: Path | None, update_docs: bool, as_json: bool,
) -> None:  # fmt: skip
    """Play measured jobs of production traces under rm's policies and others.

    Job times are from submission to end, times as long as in reality; utilisation is the part of the GPU time
    held in which GPUs computed. docs/real-workloads.md says what is assumed.
    """
    from rm.sim.real import compare, picture, show, workloads
    from rm.sim.real.kept import Kept
    from rm.sim.real.systems import COMPARED, SYSTEMS

    known = {"pollux": workloads.POLLUX, "philly": workloads.PHILLY}
    names = [one for word in workload.split(",") for one in known.get(word, (word,))]
    terms = workloads.Terms(speed, faster)
    systems = system.split(",") if system else COMPARED
    units = compare.units_of(systems, names, cluster, terms, seeds, queue)
    compare.checked([ours], tuple(SYSTEMS), "system")
    label = show.label(workload, cluster, faster, queue, ours)
    if update_docs and not show.has_place(ROOT, label):
        raise UsageError(f"docs/real-workloads.md has no table '{label}'.", "Run it in a checkout.")
    kept = Kept(keep) if keep is not None else None
    already = kept.found(units) if kept is not None else {}
    with bar(label) as progress:
        ended = [len(already)]

        def done(unit: compare.Unit, measured: compare.Measured) -> None:
            if kept is not None:
                kept.keep(unit, measured)
            ended[0] += 1
            if progress is not None:
                progress(ended[0], len(units))

        processes = jobs or len(os.sched_getaffinity(0))
        found = compare.compare(units, processes, done, already)
    if as_json:
        runs = [asdict(unit) | asdict(one) for unit, one in found.items()]
        click.echo(json.dumps({"version": 1, "runs": runs}))
    else:
        header, rows = show.rows(found, ours)
        table(header, rows, right=header[1:])
    if plot is not None:
        picture.job_times(found, label, plot, ours)
        note(f"Wrote {plot}.")
    if update_docs:
        for path in show.update(ROOT, label, found, ours):
            note(f"Wrote {path}.")
