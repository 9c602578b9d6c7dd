"""`rmx submit` as a process, beside the least that a command line made with click can need."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping

from bench import peers
from bench.cluster import RMX, cluster
from bench.figure import Figure, Settings

TARGET_MS = 100.0
CLICK_FACTOR, CLICK_MARGIN_MS = 1.5, 30.0


def processor_s() -> float:
    """What the ended children have used; unlike the wall time it does not grow with others' load."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cost_ms(argv: list[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Wall and processor time of a command."""
    since, before = time.perf_counter(), processor_s()
    subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return 1000 * (time.perf_counter() - since), 1000 * (processor_s() - before)


def run(settings: Settings) -> list[Figure]:
    count = 10 if settings.quick else 30
    with cluster() as made:
        script = made.directory / "job.sh"
        script.write_text("#!/bin/sh\n#SBATCH --cpus-per-task=1\ntrue\n")
        submit, bare = [RMX, "submit", str(script)], [sys.executable, "-c", "import click"]
        for argv in (submit, bare):  # the first run reads the files from the disk
            cost_ms(argv, made.environment)
        runs = [(*cost_ms(submit, made.environment), *cost_ms(bare, made.environment)) for _ in range(count)]
    mine, mine_used, click, click_used = (statistics.median(times) for times in zip(*runs, strict=True))
    allowed = CLICK_FACTOR * click + CLICK_MARGIN_MS
    return [
        Figure(
            "rmx submit as a process, median",
            mine,
            "ms",
            f"of {count}; {mine_used:.0f} ms of processor",
            TARGET_MS,
            peer=peers.SUBMIT_PROCESS,
        ),
        Figure(
            "python -c 'import click', median",
            click,
            "ms",
            f"run in turn with it; {click_used:.0f} ms of processor",
        ),
        Figure(
            "rmx submit, against 1.5 x that + 30 ms",
            mine,
            "ms",
            f"{mine / click:.2f} times the bare import",
            round(allowed, 1),
        ),
    ]
