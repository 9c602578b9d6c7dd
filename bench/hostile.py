"""An honest client's submissions beside a thousand hostile ones, of several users."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.cluster import Cluster, cluster
from bench.figure import Figure, Settings
from rm.errors import RmError

TARGET_MS = 100.0
MEMORY_TARGET_MB = 1_024.0
CLIENTS, USERS = 1_000, 4
SETTLE_S = 5.0  # the first bursts are over


def run(settings: Settings) -> list[Figure]:
    if os.geteuid() != 0:
        raise RmError("Hostile clients are several users, which only root can be.", "Run it as root.")
    count = 100 if settings.quick else 600
    names = sorted(p.pw_name for p in pwd.getpwall() if 0 < p.pw_uid < 1_000)[: USERS + 1]
    victim, *attackers = names
    with cluster(hosts=0) as made:
        made.directory.chmod(0o711)
        alone = submissions_ms(made, victim, count)
        before = made.memory_bytes()
        with hostile(made, attackers):
            time.sleep(SETTLE_S)
            used = made.cpu_s()
            since = time.perf_counter()
            beside = submissions_ms(made, victim, count)
            share = (made.cpu_s() - used) / (time.perf_counter() - since)
            memory = made.memory_bytes()
        log = made.log.stat().st_size
    mix = f"{CLIENTS:,} clients of {len(attackers)} users: slow headers, idle, logs, 16 MB bodies, floods"
    return [
        Figure("an honest submission alone, p99", p99(alone), "ms", f"of {count}, one every 50 ms"),
        Figure("an honest submission beside hostile clients, median", statistics.median(beside), "ms", mix),
        Figure("an honest submission beside hostile clients, p99", p99(beside), "ms", mix, TARGET_MS),
        Figure("the daemon's memory beside hostile clients", memory / 1e6, "MB",
               f"{before / 1e6:.0f} MB before; {100 * share:.0f} % of one processor; log of {log} bytes",
               MEMORY_TARGET_MB),
    ]  # fmt: skip


def p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


def submissions_ms(made: Cluster, user: str, count: int) -> list[float]:
    done = subprocess.run(program(made, "honest", user, count), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RmError(f"The honest client failed: {done.stderr[-500:]}")
    took: list[float] = json.loads(done.stdout)
    return took


@contextlib.contextmanager
def hostile(made: Cluster, users: list[str]) -> Iterator[None]:
    each = CLIENTS // len(users)
    running = [
        subprocess.Popen(program(made, "hostile", user, each), stderr=subprocess.DEVNULL) for user in users
    ]
    try:
        yield
        if any(one.poll() is not None for one in running):
            raise RmError("Hostile clients have ended by themselves.")
    finally:
        for one in running:
            one.kill()
            one.wait()


def program(made: Cluster, kind: str, user: str, count: int) -> list[str]:
    return [sys.executable, "-m", "bench.hostile_clients", kind, made.socket, user, str(count)]
