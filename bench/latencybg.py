"""What continuous latency tests cost a host: its process with streams to and from 20 peers, over loopback."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.figure import Figure, Settings
from rm.adapters.playbook.shipped import shipped_directory
from rm.errors import RmError

PEERS, INTERVAL_US, PACKETS = 20, 100_000, 100
SHARE_PCT = 1.0  # of a processor
PROGRAM = b"rm_latencybg_process.py"


def run(settings: Settings) -> list[Figure]:
    with tempfile.TemporaryDirectory() as state:
        os.environ["RM_AGENT_STATE"] = state
        sys.path.insert(0, str(shipped_directory("agents")))
        door = importlib.import_module("rm_latencybg")
        here = os.getcwd()
        try:
            return measured(door, state, 40.0 if settings.quick else 120.0)
        finally:
            order(door, {})
            os.chdir(here)  # an operation has a process of its own, elsewhere
            sys.path.pop(0)
            del os.environ["RM_AGENT_STATE"]


def order(door: Any, told: dict[str, Any], count: int = 0, **more: int) -> dict[str, Any]:
    """Streams to itself; `told`: its answer, which says where they go."""
    secrets = dict(told.get("secrets", ()))
    streams = [
        {"out": n, "into": n, "address": "127.0.0.1", "port": told.get("port", 0), "count": PACKETS,
         "interval_us": INTERVAL_US, "secret": secrets.get(n, ""), "histogram": True}
        for n in range(1, count + 1)
    ]  # fmt: skip
    answer: dict[str, Any] = door.latencybg({"op": "latencybg", "streams": streams, **more})
    return answer


def measured(door: Any, state: str, seconds: float) -> list[Figure]:
    told = order(door, order(door, {}, PEERS), PEERS)
    pid = process_of(state)
    since_s, used_s, after, received = time.monotonic(), used(pid), 0, list[int]()
    while time.monotonic() - since_s < seconds:
        time.sleep(5.0)  # as the daemon asks
        answer = order(door, told, PEERS, life=told["life"], after=after, done=after)
        after = answer["last"]
        received += [window["received"] for window in answer["received"]]
    if not received:
        raise RmError("No window came.")
    share_pct = 100 * (used(pid) - used_s) / (time.monotonic() - since_s)
    said = f"{PEERS} peers, {1_000_000 // INTERVAL_US} packets/s to each and from each"
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return [
        Figure("latencybg, processor", share_pct, "%", said, target=SHARE_PCT),
        Figure("latencybg, memory", resident / (1 << 20), "MiB", said),
        Figure("latencybg, arrived", 100 * sum(received) / PACKETS / len(received), "%", "windows of 10 s"),
    ]


def process_of(state: str) -> int:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if PROGRAM in words and state.encode() in words:
            return int(name)
    raise RmError("The process of the streams is not there.")


def used(pid: int) -> float:
    """Seconds of processor."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
