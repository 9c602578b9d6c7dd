"""What throughput tests cost running jobs: in the gaps between their phases, and regardless of them.

    python -m bench gaps

Two training jobs share the links of two lab hosts of 100 Mbit/s, in their slots, each communicating for about
a fifth of its iterations. Stretches without tests, with tests in the gaps, and with tests that disturb
take turns. The jobs' own iteration times count, and what the tests found.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from bench.cluster import Cluster, cluster
from bench.figure import Figure, Settings
from rm.client.connection import Connection
from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.demo.scenario import Training
from rm.demo.training import batch_script, program_text, traffic_file
from rm.errors import RmError

LINK_MBPS = 100
JOBS = (Training("high", "high", 150.0, 480_000, 4), Training("low", "low", 146.0, 480_000, 4))
COMM_MS, RATE_BPS = 42.0, 95_000_000
SETTLE_S, STRETCH_S, LATE_S = 8.0, 12.0, 1.0
COST_TARGET_PCT = 3.0
MESHES = "".join(
    f'\n[[monitor.mesh]]\nname = "{name}"\nschedule = "every 24h"\ntests = ["throughput"]\n'
    f"duration_s = 0.2\ndisturb = {str(disturb).lower()}\n"
    for name, disturb in (("gaps", False), ("blind", True))
)


def submit(made: Cluster, folder: Path) -> list[int]:
    jobs = []
    for training in JOBS:
        period_us = round(1000 * (training.compute_ms + COMM_MS))
        phase = Phase(round(1000 * training.compute_ms), round(1000 * COMM_MS), RATE_BPS)
        script, traffic = folder / f"{training.name}.sh", folder / f"{training.name}.json"
        script.write_text(batch_script(training, program_text(), 100_000, 0.0, "cubic"))
        traffic.write_text(traffic_file(TrafficProfile(period_us, (phase,))))
        made.rmx("submit", f"--file={script}", f"--traffic={traffic}", "--chdir=/tmp", "--export=NONE")
    client = made.client()
    deadline = time.monotonic() + 60
    while len(jobs) < len(JOBS):
        found = client.get("jobs")["jobs"]
        jobs = [job["id"] for job in found if job["state"] == "RUNNING"]
        if time.monotonic() > deadline:
            raise RmError("The jobs did not start.")
        time.sleep(0.1)
    client.close()
    time.sleep(SETTLE_S)  # until each is in its slot
    return jobs


def stretch(made: Cluster, jobs: list[int], mesh: str) -> list[float]:
    """Milliseconds of the jobs' iterations while the mesh is run again and again ("" = none)."""
    client = made.client()
    begin = time.time()
    while time.time() < begin + STRETCH_S:
        if mesh:
            client.post("monitor", mesh, "run", body={"all": True})
        else:
            time.sleep(0.1)
    end = time.time()
    time.sleep(LATE_S)  # the last reports
    found: list[float] = []
    for job in jobs:
        items = client.get("jobs", job, "iterations")["items"]
        found += [item[1] / 1000 for item in items if begin * 1e6 <= item[0] and sum(item[:2]) <= end * 1e6]
    client.close()
    return found


def rates(client: Connection, mesh: str) -> list[float]:
    """Mbit/s that the mesh found, both ways."""
    hosts = [host["name"] for host in client.get("hosts")["hosts"]]
    found = []
    for a, b in (hosts, hosts[::-1]):
        history = client.get("network", "history", source=a, destination=b, since_s=3_600)
        found += [s["values"].get("bandwidth_bps", 0) / 1e6 for s in history["samples"] if s["mesh"] == mesh]
    return found


def run(settings: Settings) -> list[Figure]:
    repeats = 2 if settings.quick else 4
    with cluster(hosts=2, zones=1, gpus_per_host=2, link_mbps=LINK_MBPS, more=MESHES) as made:
        jobs = submit(made, made.directory)
        times: dict[str, list[float]] = {"": [], "gaps": [], "blind": []}
        for _ in range(repeats):
            for mesh, found in times.items():
                found += stretch(made, jobs, mesh)
        client = made.client()
        told = {mesh: rates(client, mesh) for mesh in ("gaps", "blind")}
        client.close()
    alone = statistics.fmean(times[""])
    figures = [
        Figure("iterations without tests, mean", alone, "ms", f"{len(times[''])} iterations of two jobs")
    ]
    for mesh, how in (("gaps", "in the gaps"), ("blind", "regardless")):
        mean = statistics.fmean(times[mesh])
        target = COST_TARGET_PCT if mesh == "gaps" else None
        figures += [
            Figure(f"longer with tests {how}", 100 * (mean / alone - 1), "%", f"mean {mean:.1f} ms", target),
            Figure(
                f"throughput found {how}, median",
                statistics.median(told[mesh]) if told[mesh] else 0.0,
                "Mbit/s",
                f"{len(told[mesh])} tests of a link of {LINK_MBPS} Mbit/s",
            ),
        ]
    return figures
