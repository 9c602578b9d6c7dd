"""Growth of the simulator's time and memory with the number of jobs, each size in a process of its own.

    python -m bench scale            # 160, 960 and 9,920 jobs: minutes
    python -m bench scale --quick    # without the largest

The workload is Ada-SRSF's (Sec. V-A), one to 62 times over: as many groups of 160 jobs as of 16
servers, so that each server has the same work at every size; iterations and arrivals are divided by
100. Queue srsf, placement lwf, communication srsf-n; every decision goes through the daemon's cycle.
Seconds are those of processor.
"""

from __future__ import annotations

import json
import subprocess
import sys

from bench.figure import Figure, Settings
from bench.memory import memory_bytes
from rm.errors import RmError

GROUPS = (1, 6, 62)
JOBS_A_GROUP, SERVERS_A_GROUP = 160, 16
TARGET_S = 40.0  # of processor, for the largest


def run(settings: Settings) -> list[Figure]:
    figures = []
    for groups in GROUPS[:-1] if settings.quick else GROUPS:
        seconds, events, mib = measured(groups)
        jobs, servers = groups * JOBS_A_GROUP, groups * SERVERS_A_GROUP
        what = f"simulate {jobs:,} jobs on {servers:,} servers"
        told = f"{events:,.0f} events, {events / seconds:,.0f} a second; 4 GPUs a server; one process"
        target = TARGET_S if groups == GROUPS[-1] else None
        figures += [Figure(what, seconds, "s", told, target), Figure(f"{what}: memory", mib, "MiB")]
    return figures


def measured(groups: int) -> tuple[float, float, float]:
    """(seconds, events, MiB at the most) of one simulation in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.scale", str(groups)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RmError(f"The simulation ended with code {done.returncode}: {done.stderr.strip()[-300:]}", "")
    seconds, events, mib = json.loads(done.stdout)
    return seconds, events, mib


def peak_bytes() -> int:
    """Its own largest resident memory: getrusage(2) also counts what its parent had at the fork."""
    return memory_bytes("self", "VmHWM")


def simulate(groups: int) -> None:
    import time

    from rm.sim.papers._ada_srsf.workload import simulate as simulated

    began = time.process_time()
    result = simulated(1, "lwf", "srsf-n", groups=groups)
    seconds = time.process_time() - began
    mib = peak_bytes() / (1 << 20)
    print(json.dumps([seconds, result.events, mib]))


if __name__ == "__main__":
    simulate(int(sys.argv[1]))
