"""`rmx interleave`: rotations for jobs that share links, asked of a file and not of the daemon."""

from __future__ import annotations

import json
import sys
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rm.cli.heartbeat import Heartbeat
from rm.cli.output import note
from rm.cli.session import emit_json, json_option
from rm.errors import RmError, UsageError

if TYPE_CHECKING:
    from rm.policies.interleave.answer import Answer, LinkAnswer

BUDGET = 200_000
SVG = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("file", metavar="FILE|-")
@click.option(
    "--offline/--online",
    default=True,
    help="The largest cushion between phases (default), or the first interval without contention.",
)
@click.option(
    "--mode",
    type=click.Choice(["default", "paper"]),
    default="default",
    show_default=True,
    help="paper takes Metronome to the letter.",
)
@click.option(
    "--metric",
    type=click.Choice(["gap", "midpoint"]),
    help="What to maximise: from end to start (default), or between middles (paper).",
)
@click.option(
    "--budget",
    type=click.IntRange(1),
    default=BUDGET,
    show_default=True,
    metavar="STEPS",
    help="Steps of one search, of about 10 microseconds.",
)
@click.option("--svg", type=SVG, metavar="FILE", help="Draw the circles before and after into FILE.")
@json_option
def interleave(
    file: str, offline: bool, mode: str, metric: str | None, budget: int, svg: Path | None, as_json: bool
) -> None:
    """Find time-shifts that keep jobs apart on the links that they share.

    FILE is JSON: jobs with their periods and phases, and one link or several (docs/interleaving.md).
    """
    from rm.policies.interleave.answer import answer, thresholds_for
    from rm.policies.interleave.problem import problem_from

    problem = problem_from(read(file))
    thresholds = thresholds_for(problem, mode == "paper", metric or "", budget)
    with Heartbeat(lambda: "time-shifts are searched"):
        found = answer(problem, thresholds, offline)
    if svg is not None:
        from rm.cli.sim.interleave_svg import circles

        write(svg, circles(found))
    if as_json:
        emit_json(fields(found))
        return
    from rm.cli.sim.interleave_text import show

    show(found)


def read(file: str) -> Any:
    """The decoded JSON value of a file or, for -, of standard input; fractions stay exact."""
    where = "standard input" if file == "-" else f"the file {file}"
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{where[0].upper()}{where[1:]} cannot be read: {error.strerror}.") from None
    try:
        return json.loads(data.decode("utf-8-sig"), parse_float=Decimal)
    except UnicodeDecodeError as error:
        raise UsageError(f"Byte {error.start} of {where} is not UTF-8 text.", "Give JSON.") from None
    except json.JSONDecodeError as error:
        raise UsageError(
            f"Line {error.lineno}, column {error.colno} of {where} is not JSON: {error.msg}.",
            "docs/interleaving.md shows an example.",
        ) from None
    except (ValueError, RecursionError):
        raise UsageError(f"The JSON of {where} has a number too long or is nested too deeply.") from None


def write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RmError(f"The file {path} cannot be written: {error.strerror}.") from None
    note(f"Wrote {path}.")


def fields(answer: Answer) -> dict[str, Any]:
    """The answer as JSON: times in milliseconds; what is not known, or not meant, is null."""
    names = [job.name for job in answer.problem.jobs]
    loop = answer.loop
    solved = Counter(id(link.solution) for link in answer.links)
    return {
        "perimeter_ms": _ms(answer.perimeter),
        "links": [
            _link(link, names, solved[id(link.solution)] > 1) | {"consistent": link.name not in answer.broken}
            for link in answer.links
        ],
        "shifts_ms": {names[job]: _ms(shift) for job, shift in answer.shifts.items()},
        "injected_ms": {names[job]: _ms(idle) for job, idle in answer.injected.items()},
        "consistent": answer.consistent,
        "loop": None if loop is None else [x if isinstance(x, str) else names[x] for x in loop],
        "periods_ms": {names[job]: _ms(period) for job, period in answer.periods.items()},
        "unmatched": [names[job] for job in answer.unmatched],
    }


def _link(link: LinkAnswer, names: list[str], joint: bool) -> dict[str, Any]:
    """`joint`: its rotations come from a search over several links at once."""
    solution = link.solution
    found: dict[str, Any] = {
        "name": link.name,
        "score": link.score,
        "psi_rad": link.psi_rad,
        "shifts_ms": {names[job]: _ms(shift) for job, shift in link.rotations.items()},
        "capacity_mbps": link.load.capacity / 1e6,
        "jobs": [names[job] for job in link.jobs],
        "contended": link.contended,
        "matched": solution is not None,
        "unrotated_score": link.unrotated,
        "random_score": link.expected,
        "perimeter_ms": _ms(link.perimeter),
        "cushion_ms": _ms(link.cushion()),
    }
    if solution is None:
        return found | {"slots": None, "rotations": {}, "bound": link.score, "gap": 0.0, "proven": True}
    scheme, spread = solution.scheme, solution.spread
    found |= {
        "slots": scheme.slots,
        "rotations": {names[job]: scheme.rotation(job) for job in link.jobs},
    }
    proof = {"bound": scheme.bound, "gap": scheme.gap, "proven": scheme.exact}
    if not joint:
        found |= proof
    else:  # what is proven is proven of all its links together
        perfect = link.score == 100.0
        found |= {"bound": 100.0, "gap": 0.0, "proven": True} if perfect else dict.fromkeys(proof)
        found["joint"] = {"score": scheme.score} | proof
    if spread is not None:
        found["stage3"] = {"psi_ms": _ms(spread.psi), "bound_ms": _ms(spread.bound), "proven": spread.exact}
    return found


def _ms(us: Fraction | int | None) -> float | None:
    return None if us is None else round(float(us) / 1000, 6)
