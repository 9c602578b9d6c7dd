"""Rotations of jobs on one link by general solvers; runs in their environment, which lacks rm.

    python solver_program.py cp_sat|highs

Standard input: a JSON list of problems {"capacity", "slots", "patterns"}, where `patterns` has each job's
bandwidth per slot of one iteration; their lengths divide `slots`. Standard output: for each problem
{"ms", "excess", "proven"}. A one-hot variable says how far each job is rotated, and one variable a slot is
the bandwidth above the capacity; their sum is minimised. The model's construction counts, as it does for
rm's own search. Both solvers do not load into one process: each brings a HiGHS of its own.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

LIMIT_S = 20.0


def loads(problem: dict[str, Any]) -> list[list[np.ndarray]]:
    """[job][rotation] -> bandwidth per slot of the circle; the first job stays."""
    slots, found = problem["slots"], []
    for job, pattern in enumerate(problem["patterns"]):
        around = np.tile(np.array(pattern), slots // len(pattern))
        found.append([np.roll(around, k) for k in range(len(pattern) if job else 1)])
    return found


def cp_sat(problem: dict[str, Any]) -> tuple[float, bool]:
    from ortools.sat.python import cp_model

    model, capacity = cp_model.CpModel(), problem["capacity"]
    turned = loads(problem)
    chosen = [[model.new_bool_var("") for _ in rotations] for rotations in turned]
    for variables in chosen:
        model.add_exactly_one(variables)
    excess = []
    for slot in range(problem["slots"]):
        terms = [
            int(load[slot]) * variable
            for rotations, variables in zip(turned, chosen, strict=True)
            for load, variable in zip(rotations, variables, strict=True)
            if load[slot]
        ]
        most = sum(int(rotations[0].max()) for rotations in turned)
        over = model.new_int_var(0, max(0, most - capacity), "")
        model.add(sum(terms) - capacity <= over)
        excess.append(over)
    model.minimize(sum(excess))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = LIMIT_S
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    return solver.objective_value, status == cp_model.OPTIMAL


def highs(problem: dict[str, Any]) -> tuple[float, bool]:
    import highspy

    model = highspy.Highs()
    model.silent()
    model.setOptionValue("time_limit", LIMIT_S)
    model.setOptionValue("threads", 1)
    turned = loads(problem)
    chosen = [[model.addBinary() for _ in rotations] for rotations in turned]
    for variables in chosen:
        model.addConstr(model.qsum(variables) == 1)
    excess = [model.addVariable(lb=0) for _ in range(problem["slots"])]
    for slot, over in enumerate(excess):
        terms = [
            int(load[slot]) * variable
            for rotations, variables in zip(turned, chosen, strict=True)
            for load, variable in zip(rotations, variables, strict=True)
            if load[slot]
        ]
        model.addConstr(model.qsum(terms) - over <= problem["capacity"])
    model.minimize(model.qsum(excess))
    proven = model.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return model.getObjectiveValue(), proven


def main() -> None:
    solver = {"cp_sat": cp_sat, "highs": highs}[sys.argv[1]]
    answers = []
    first, *_ = problems = json.load(sys.stdin)
    solver(first)  # the import does not count
    for problem in problems:
        since = time.perf_counter()
        excess, proven = solver(problem)
        ms = 1000 * (time.perf_counter() - since)
        answers.append({"ms": ms, "excess": round(excess), "proven": proven})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
