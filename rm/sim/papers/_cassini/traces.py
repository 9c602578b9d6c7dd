"""Workloads: the Poisson trace and the dynamic trace of Sec. 5.1, drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean

from rm.sim.papers._cassini.models import DATA_PARALLEL, MODEL_PARALLEL, Shape, sim_job
from rm.sim.papers.frame.parameters import parameters
from rm.sim.workload import SimJob, poisson

NEW = ("DLRM", "ResNet50")  # Sec. 5.3
NEW_PARALLEL = ("GPT-2", "DLRM")  # Sec. 5.4: GPT and DLRM models


def poisson_trace(
    models: Sequence[str], gpus: int, seed: int, *, scale: int | None = None, grid: bool = True
) -> list[SimJob]:
    """Jobs of random models, workers and durations, arriving as the load asks for.

    Args:
        scale: by which iterations are divided; None = the stated one.
        grid: False: iteration times have nothing in common.
    """
    known = parameters("cassini")
    chance = random.Random(f"poisson/{'/'.join(models)}/{seed}")
    load = chance.uniform(*known["load"])
    jobs = []
    for number in range(known["poisson_jobs"]):
        shape = _drawn(chance, models, grid)
        iterations = chance.randint(*known["iterations"]) // (scale or known["scale"])
        jobs.append(sim_job(f"{shape.model}-{number + 1}", shape, iterations))
    work_us = fmean(j.spec.ntasks * (j.spec.expected_us or 0) for j in jobs)
    return poisson(jobs, work_us / (gpus * load), seed)


def _drawn(chance: random.Random, models: Sequence[str], grid: bool) -> Shape:
    """All models are equally probable (Sec. 5.1); model parallel jobs have various parameters (Sec. 5.2)."""
    known = parameters("cassini")
    model, workers = chance.choice(models), chance.randint(*known["workers"])
    slower = 1.0
    if model in MODEL_PARALLEL:
        workers, slower = max(workers, 2), float(chance.choice((1, 2)))
    off = chance.uniform(1 - known["off_grid"], 1 + known["off_grid"])
    return Shape(model, workers, slower if grid else slower * off)


def dynamic_trace(
    present: Sequence[str], new: Sequence[str], gpus: int, seed: int, workers: int | None = None
) -> list[SimJob]:
    """Jobs that are there from the start and leave room for the new ones, which come later.

    Args:
        present: models of which those at the start are drawn.
        new: models of those that arrive, in a random order, all with a third of the present ones' iterations.
        workers: of every job; None = drawn, the new ones' from 2 to 6.
    """
    known = parameters("cassini")
    chance = random.Random(f"dynamic/{'/'.join(present)}/{seed}")
    iterations, arrival_us = known["dynamic_iterations"], known["arrival_us"]
    arriving = [Shape(model, workers or chance.randint(2, 6)) for model in chance.sample(new, len(new))]
    room = gpus - sum(shape.workers for shape in arriving)
    jobs: list[SimJob] = []
    while room > 0:
        model, wanted = chance.choice(present), workers or chance.randint(*known["workers"])
        shape = Shape(model, min(room, wanted))
        room -= shape.workers
        jobs.append(sim_job(f"{model}-{len(jobs) + 1}", shape, iterations))
    for shape in arriving:
        jobs.append(sim_job(f"{shape.model}-new", shape, iterations // 3, arrival_us))
    return jobs


def data_parallel(gpus: int, seed: int) -> list[SimJob]:
    return dynamic_trace(DATA_PARALLEL, NEW, gpus, seed)


def model_parallel(gpus: int, seed: int) -> list[SimJob]:
    return dynamic_trace(MODEL_PARALLEL, NEW_PARALLEL, gpus, seed)


def multi_gpu(gpus: int, seed: int) -> list[SimJob]:
    """XLM, ResNet50 and one more job, to which DLRM comes: three GPUs each (Sec. 5.6)."""
    known = parameters("cassini")
    chance = random.Random(f"multi/{seed}")
    there = [*chance.sample(("XLM", "ResNet50", chance.choice(DATA_PARALLEL)), 3)]
    jobs = [
        sim_job(f"{model}-{i + 1}", Shape(model, known["multi_workers"]), known["dynamic_iterations"])
        for i, model in enumerate(there)
    ]
    new = sim_job("DLRM-new", Shape("DLRM", known["multi_workers"]), known["dynamic_iterations"] // 3)
    assert sum(j.spec.ntasks for j in (*jobs, new)) <= gpus
    return [*jobs, SimJob(known["arrival_us"], new.spec, new.program)]
