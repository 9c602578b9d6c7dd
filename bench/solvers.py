"""rm's exact rotation search beside general solvers, CP-SAT and HiGHS, on the same problems.

    python -m bench solvers --install-peers

The problems are those of `bench.rotation`. All run on one thread in the same run. Each solver may take
`solver_program.LIMIT_S` seconds for a problem; rm's search has its usual budget of steps.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure, Settings
from bench.peer_environment import peer_program
from bench.rotation import Problem, problems, timed
from rm.errors import RmError
from rm.policies.interleave import BUDGET, Circle, search_block

NAMES = {"rm": "rm's search", "cp_sat": "CP-SAT", "highs": "HiGHS"}
PATIENCE_S = 3600.0


def run(settings: Settings) -> list[Figure]:
    program = peer_program("solvers", "python", ("ortools>=9.15,<10", "highspy>=1.15,<2", "numpy"), settings)
    found: list[Figure] = []
    for jobs in (4, 6, 8):
        cases = problems(jobs, slots=72, cases=1 if settings.quick else 2)
        answers = {"rm": [own(problem) for problem in cases]}
        if program:
            answers |= {solver: asked(program, solver, cases) for solver in ("cp_sat", "highs")}
        check(answers)
        found += figures(jobs, answers)
    return found


def own(problem: Problem) -> dict[str, Any]:
    ms, scheme = timed(search_block, *problem, BUDGET, times=1)
    return {"ms": ms, "excess": scheme.excess, "proven": scheme.exact}


def asked(program: Path, solver: str, cases: list[Problem]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [str(program), str(Path(__file__).with_name("solver_program.py")), solver],
        input=json.dumps([as_data(case) for case in cases]),
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    if done.returncode:
        raise RmError(f"{NAMES[solver]} failed: {done.stderr.strip()[-300:]}")
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def as_data(problem: Problem) -> dict[str, Any]:
    circle = Circle(*problem)
    return {"capacity": circle.capacity[0], "slots": circle.slots, "patterns": circle.pattern[0]}


def check(answers: dict[str, list[dict[str, Any]]]) -> None:
    """What is proven is the least excess for everybody."""
    for case in zip(*answers.values(), strict=True):
        least = min(answer["excess"] for answer in case)
        if any(answer["proven"] and answer["excess"] > least for answer in case):
            raise RmError(f"A proven rotation is not the best: {case}. This is a defect.")


def figures(jobs: int, answers: dict[str, list[dict[str, Any]]]) -> Iterator[Figure]:
    least = [min(answer["excess"] for answer in case) for case in zip(*answers.values(), strict=True)]
    for solver, given in answers.items():
        times = [answer["ms"] for answer in given]
        proven = sum(answer["proven"] for answer in given)
        best = sum(answer["excess"] == excess for answer, excess in zip(given, least, strict=True))
        conditions = (
            f"of {len(given)} cases; worst {max(times):,.0f} ms; the best rotation known in {best}, "
            f"proven in {proven}"
        )
        yield Figure(f"{jobs} jobs, {NAMES[solver]}, median", statistics.median(times), "ms", conditions)
