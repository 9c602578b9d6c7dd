"""Processes of a simulation end with the command that started them, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.cluster import until

PROGRAM = """
import os, time
from rm.sim.workers import workers
if __name__ == "__main__":
    with workers(2) as pool:
        print(*{pool.submit(os.getpid).result() for _ in range(2)}, flush=True)
        pool.submit(time.sleep, 600)
        pool.submit(time.sleep, 600)
"""


def runs(pid: int) -> bool:
    """Also where nobody waits for orphans, so that what has ended stays as a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_who_started_them(how: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    assert pids
    process.send_signal(how)
    process.wait()
    process.stdout.close()
    try:
        until(lambda: not any(runs(pid) for pid in pids), "the workers are gone")
    finally:
        for pid in pids:
            if os.path.exists(f"/proc/{pid}"):
                os.kill(pid, signal.SIGKILL)
