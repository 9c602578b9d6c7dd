"""`rmx sim paper`: a paper's results, measured here, beside what it printed."""

from __future__ import annotations

import os
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
    from rm.sim.papers.frame.paper import Result

ROOT = Path(__file__).parents[3]  # of a checkout, where docs/ lies beside rm/


@click.command()
@click.argument("name", required=False, metavar="[NAME]")
@click.option("--name", "name_word", metavar="NAME", help="The same as NAME.")
@click.option("--all", "everything", is_flag=True, help="All papers, one after the other.")
@click.option("--seeds", type=click.IntRange(min=1), help="How many seeds (default: the paper's number).")
@click.option("--jobs", type=click.IntRange(min=1), help="How many processes (default: one a processor).")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw into FILE (.svg, .png).")
@click.option("--update-docs", is_flag=True, help="Write the table and the plot of docs/papers/NAME.md.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: paper and rows.")
def paper(
    name: str | None,
    name_word: str | None,
    everything: bool,
    seeds: int | None,
    jobs: int | None,
    plot: Path | None,
    update_docs: bool,
    as_json: bool,
) -> None:
    """Reproduce a paper's results with rm's own policies; without NAME, list the papers.

    Each row has the published value, mean and standard deviation over the seeds, and the range
    in which a result reproduces the paper. Rows outside their range are results, too: docs/papers/
    says why. Equal seeds give equal results with any number of processes.
    """
    from rm.sim.papers.frame import find

    if name and name_word:
        raise UsageError("Name one paper, as an operand or with --name=NAME.")
    wanted = name or name_word
    if everything and (wanted or plot or as_json):
        raise UsageError("--all goes with --seeds, --jobs and --update-docs only.", "Or name one paper.")
    if not everything and not wanted:
        _list()
        return
    for one in find.names() if everything else [wanted or ""]:
        _one(one, seeds, jobs or _processors(), plot, update_docs, as_json)


def _list() -> None:
    from rm.sim.papers.frame import find

    papers = [(name, find.load(find.module_of(name))) for name in find.names()]
    table(("PAPER", "TITLE", "SOURCE"), [(name, each.title, each.source) for name, each in papers])


def _one(
    name: str, seeds: int | None, jobs: int, plot: Path | None, update_docs: bool, as_json: bool
) -> None:
    import json

    from rm.sim.papers.frame import find, run, show
    from rm.sim.papers.frame.draw import draw

    module = find.module_of(name)
    name = module.rpartition(".")[2].replace("_", "-")
    found = find.load(module)
    with _progress(name, len(run.units_of(found, seeds or found.seeds))) as step:
        result = run.run(module, seeds, jobs, step)
    if as_json:
        click.echo(json.dumps(show.as_json(name, result), ensure_ascii=False))
    else:
        _tell(name, result)
    if plot:
        draw(found.plot, result, plot)
    if update_docs:
        _update(name, result)


def _tell(name: str, result: Result) -> None:
    from rm.sim.papers.frame import show

    table(show.COLUMNS, [show.cells(row) for row in result.rows], right=show.RIGHT)
    click.echo(f"\n{name}: {show.verdict(result)}")


def _update(name: str, result: Result) -> None:
    from rm.sim.papers.frame import expected, find, show
    from rm.sim.papers.frame.draw import draw

    rows = expected.read(expected.DIRECTORY / f"{name}.toml")
    page, picture = ROOT / f"docs/papers/{name}.md", ROOT / f"docs/images/papers/{name}.svg"
    show.put_into(page, show.markdown(result, rows))
    draw(find.load(find.module_of(name)).plot, result, picture)
    note(f"Wrote {page.relative_to(ROOT)} and {picture.relative_to(ROOT)}.")


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _progress(name: str, length: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error where that is a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        done: list[None] = []
        note(f"{name}: {length} pieces")  # at once: the first of them may take long
        with Heartbeat(lambda: f"{name}: {len(done)} of {length} pieces are done"):
            yield lambda: done.append(None)
        return
    with click.progressbar(length=length, label=name, file=sys.stderr) as bar:
        yield lambda: bar.update(1)
