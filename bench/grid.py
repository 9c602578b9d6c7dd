"""What monitoring 1,000 hosts costs the daemon: planning, recording and judging rounds, and showing the grid.

Processor time of this thread, so that other programs on the machine do not count. The hosts are not there:
their results are made up.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import TypeVar

from bench.figure import Figure, Settings
from rm.adapters.clock import SystemClock
from rm.adapters.store.opening import open_store
from rm.cli.network.grid import draw
from rm.core.model.host import Host
from rm.core.monitoring.history import Sample
from rm.core.monitoring.mesh import Mesh, usual
from rm.core.monitoring.pairing import Pairing
from rm.daemon.monitoring.board import Board, Tried
from rm.daemon.monitoring.rows import cell_json

T = TypeVar("T")
HOSTS = 1_000
FOUND = {"loss_pct": 0.0, "delay_us": 123.0, "jitter_us": 7.0, "rtt_us": 300.0, "clock_error_us": 40.0}


def timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.thread_time()
    return work(), time.thread_time() - began


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def run(settings: Settings) -> list[Figure]:
    found = []
    mesh = usual(60_000_000, 3_600_000_000, 100)[0]
    for zones in (25, 1):
        with tempfile.TemporaryDirectory() as directory:
            found += one(mesh, zones, Path(directory), settings.quick)
    return found


def one(mesh: Mesh, zones: int, directory: Path, quick: bool) -> list[Figure]:
    hosts = {
        f"h{i:04}": Host(f"h{i:04}", f"z{i % zones}", f"10.0.{i // 250}.{i % 250}") for i in range(HOSTS)
    }
    where = f"{HOSTS} hosts in {zones} zone{'s' if zones > 1 else ''}"
    clock = SystemClock()
    store = open_store(f"sqlite:///{directory / 'rm.db'}")
    try:
        board = Board(store.history, clock, UTC)
        pairing, plan_s = timed(lambda: Pairing(mesh, hosts.values()))
        turn, turn_s = timed(lambda: [pairing.round(n) for n in range(mesh.rounds)])
        before_mb, record_s, judge_s, rows = resident_mb(), 0.0, 0.0, 0
        count = mesh.rounds if quick else len(pairing)
        for number in range(count):
            at_us = clock.now_us()
            tried = [
                Tried(s, d, Sample(s.name, d.name, at_us, mesh.name, FOUND), mesh.packets)
                for a, b in pairing.round(number)
                for s, d in ((a, b), (b, a))
            ]
            rows += len(tried)
            record_s += timed(lambda tried=tried: store.history.record(t.sample for t in tried))[1]  # type: ignore[misc]
            judge_s += timed(lambda tried=tried: board.tell(mesh, tried))[1]  # type: ignore[misc]
        memory_mb = resident_mb() - before_mb
        cells, look_s = timed(lambda: board.cells(mesh, hosts, 1 << 50, pairing))
        text, answer_s = timed(lambda: json.dumps([cell_json(c) for c in cells]))
        statuses = {(c.source, c.destination): int(c.status) for c in cells}
        zone_of = {h.name: h.zone for h in hosts.values()}
        _, draw_s = timed(lambda: draw(zone_of, statuses, colour=True, width=200))
    finally:
        store.close()
    pairs = sum(map(len, turn))
    run_ms = 2 * pairs / rows * 1e3
    return [
        Figure(f"tests of a run, {where}", pairs, "", f"{len(pairing)} rounds until all pairs are measured"),
        Figure(f"to plan a run, {where}", (plan_s + turn_s) * 1e3, "ms"),
        Figure(f"to record it, {where}", record_s * run_ms, "ms"),
        Figure(f"to judge it, {where}", judge_s * run_ms, "ms"),
        Figure(f"cells of the mesh, {where}", len(cells), "", f"{memory_mb:.0f} MB of memory"),
        Figure(f"to look at them, {where}", look_s * 1e3, "ms"),
        Figure(f"to answer with them, {where}", answer_s * 1e3, "ms", f"{len(text) / 1e6:.0f} MB of JSON"),
        Figure(f"to draw them, {where}", draw_s * 1e3, "ms"),
    ]
