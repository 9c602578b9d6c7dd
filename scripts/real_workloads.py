"""Make rm/sim/real/data anew from the published traces: `python -m scripts.real_workloads DIRECTORY`.

DIRECTORY holds what rm/sim/real/data/SOURCES.md names: `pollux/MODEL/placements.csv`, `scalability.csv` and
`validation-BATCH.csv`, `pollux/workloads/workload-N.csv`, `philly.csv` and `lingjun-topo.csv`.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from math import ceil
from pathlib import Path

DATA = Path(__file__).parents[1] / "rm" / "sim" / "real" / "data"
HOST_GPUS = 4  # of the hosts that were measured
EPOCHS = {"bert": 2, "cifar10": 100, "deepspeech2": 80, "imagenet": 90, "ncf": 10, "yolov3": 50}
# what Philly's jobs are taken to train, by their GPU-hours: the categories of Pollux, Sec. 5.1
BY_GPU_HOURS = ((1.0, "cifar10"), (10.0, "deepspeech2"), (100.0, "yolov3"), (float("inf"), "imagenet"))
PER_GPU = {"cifar10": 341, "deepspeech2": 53, "yolov3": 16, "imagenet": 133}  # as in Pollux' workloads
SAMPLES, SAMPLE_JOBS = 3, 160
LEAST_S, MOST_S = 300.0, 43_200.0
SIZES = (2, 4, 8, 16, 32)

Point = tuple[int, float, float]  # batch size per GPU, seconds of a step, of its exchange


def main() -> None:
    source = Path(sys.argv[1])
    jobs = [
        (f"pollux-{n}", row["time"], row["application"], row["num_replicas"], row["batch_size"], "")
        for n in range(1, 9)
        for row in _rows(source / "pollux" / "workloads" / f"workload-{n}.csv")
    ]
    jobs += _philly(_rows(source / "philly.csv"))
    kinds = sorted({(app, int(gpus), int(batch)) for _, _, app, gpus, batch, _ in jobs})
    _write("jobs.csv", ("workload", "at_s", "application", "gpus", "batch", "runs_s"), jobs)
    header = ("application", "gpus", "batch", "compute_us", "exchange_us", "iterations")
    _write("profiles.csv", header, [(*kind, *_profile(source / "pollux", *kind)) for kind in kinds])
    racks = Counter((row["PSW"], row["ASW"]) for row in _rows(source / "lingjun-topo.csv"))
    ordered = sorted(racks.items(), key=lambda one: tuple(int(name[1:]) for name in one[0]))
    _write("lingjun.csv", ("group", "rack", "hosts"), [(*names, count) for names, count in ordered])


def _philly(rows: Iterable[Mapping[str, str]]) -> list[tuple[str, str, str, str, str, str]]:
    """Of the clusters with the most jobs of several GPUs the densest run of consecutive ones."""
    of: dict[str, list[tuple[float, float, int]]] = {}
    for row in rows:
        lasts, gpus = float(row["duration"]), int(row["num_gpus"])
        if gpus in SIZES and LEAST_S <= lasts <= MOST_S:
            at = datetime.fromisoformat(row["timestamp"]).timestamp()
            of.setdefault(row["cluster"], []).append((at, lasts, gpus))
    found = []
    for number, cluster in enumerate(sorted(of, key=lambda name: (-len(of[name]), name))[:SAMPLES], 1):
        jobs = sorted(of[cluster])
        starts = range(len(jobs) - SAMPLE_JOBS + 1)
        first = min(starts, key=lambda i: jobs[i + SAMPLE_JOBS - 1][0] - jobs[i][0])
        for at, lasts, gpus in jobs[first : first + SAMPLE_JOBS]:
            hours = lasts * gpus / 3600
            app = next(name for most, name in BY_GPU_HOURS if hours < most)
            when, batch = str(round(at - jobs[first][0])), str(gpus * PER_GPU[app])
            found.append((f"philly-{number}", when, app, str(gpus), batch, str(round(lasts))))
    return found


def _profile(models: Path, app: str, gpus: int, batch: int) -> tuple[int, int, int]:
    """(compute, exchange, iterations until the jobs of Pollux end) on the fewest hosts that hold the GPUs.

    A batch per GPU that was too large for the measured GPUs is made of several steps of which the last one
    exchanges, as Pollux accumulates gradients.
    """
    hosts = ceil(gpus / HOST_GPUS)
    points = _points(models / app, gpus, hosts)
    local = batch / gpus
    steps = ceil(local / points[-1][0])
    step, exchange = _between(points, local / steps)
    compute = steps * (step - exchange)
    if hosts == 1:
        compute, exchange = compute + exchange, 0.0
    validated = models / app / f"validation-{batch}.csv"
    iterations = 0
    if validated.exists():
        epochs = list(_rows(validated))
        iterations = int(epochs[min(EPOCHS[app], len(epochs)) - 1]["iteration"])
    return round(1e6 * compute), round(1e6 * exchange), iterations


def _points(model: Path, gpus: int, hosts: int) -> list[Point]:
    full, rest = divmod(gpus, HOST_GPUS)
    digits = (str(rest) if rest else "") + str(HOST_GPUS) * full
    found = [row for row in _rows(model / "placements.csv") if row["placement"] == digits]
    if not found:
        sizes = {"num_nodes": str(hosts), "num_replicas": str(gpus)}
        rows = list(_rows(model / "scalability.csv"))
        found = [row for row in rows if all(row[key] == value for key, value in sizes.items())]
    return sorted((int(r["local_bsz"]), float(r["step_time"]), float(r["sync_time"])) for r in found)


def _between(points: Sequence[Point], local: float) -> tuple[float, float]:
    """(step, exchange) at that batch size per GPU, on the line between its neighbours."""
    if local <= points[0][0]:
        return points[0][1:]
    low, high = next(pair for pair in pairwise(points) if local <= pair[1][0])
    part = (local - low[0]) / (high[0] - low[0])
    return low[1] + part * (high[1] - low[1]), low[2] + part * (high[2] - low[2])


def _rows(path: Path) -> Iterable[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _write(name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with (DATA / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


if __name__ == "__main__":
    main()
