"""A service with something to see on the page: two jobs that share a link in their slots, a bad host, an
alert for it, and a mesh with its history."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from rm.core.model.host import Host, HostState
from rm.core.model.job import Job, JobSpec, Task
from rm.core.model.snapshot import Free
from rm.core.monitoring.cells import Status
from rm.core.monitoring.mesh import Thresholds
from rm.errors import NotFound
from tests import builders
from tests.fake_service import FakeService

MS = 1_000
PERIOD_US, ROTATED_US = 200 * MS, 100 * MS
# a name has no slash
HOSTILE = "<img src=x onerror=window.pwned=1>\"'><svg onload=window.pwned=1><script>window.pwned=1&amp;"


def now_us() -> int:
    return time.time_ns() // 1_000


class PageMonitoring:
    """One mesh, which tests loss, delay and MTU between h1 and h3: bad since 20 minutes, both ways."""

    checks = ("loss", "delay", "mtu")

    async def meshes(self) -> Mapping[str, Any]:
        limits = asdict(Thresholds(loss_warn_pct=1, loss_critical_pct=10))
        mesh = {
            "name": "latency", "checks": self.checks, "thresholds": limits, "every_us": 60_000 * MS,
            "kind": "mesh", "tests": ["latency", "mtu"], "hosts": ["h1", "h3"], "sides": None, "without": [],
            "schedule": "every 1min", "state": "waiting", "paused_by": None,
            "next_us": now_us() + 60_000 * MS, "begun_us": now_us() - 2 * MS, "ended_us": now_us(),
            "turn": 1, "rounds": 1, "measured": 2,
            "failed": 0, "skipped": 0, "jitter_us": 0, "slip_us": 0, "packets": 20, "spacing_us": 10 * MS,
            "duration_us": 400 * MS, "rate_bps": 0, "retry_attempts": 3,
            "statuses": {"ok": 4, "critical": 2, "warn": 0, "unknown": 0, "not run": 0, "maintenance": 0},
        }  # fmt: skip
        return {"meshes": [mesh], "malformed": [], "maintenance": []}

    async def grid(self, name: str) -> Mapping[str, Any]:
        bad = {
            "check": "loss",
            "status": Status.CRITICAL,
            "message": "loss 15 %, critical from 10 %",
            "value": 15.0,
        }
        slow = {"check": "delay", "status": Status.OK, "message": "delay 20.35 ms", "value": 20_346}
        wide = {"check": "mtu", "status": Status.OK, "message": "MTU 1500 bytes", "value": 1500}
        at = {
            "since_us": now_us() // MS // 60_000 * 60_000 * MS - 1_200_000 * MS,
            "checked_us": now_us(),
            "streak": 1,
        }
        cells = [
            {"source": a, "destination": b, **at, **told, "result": told["status"]}
            for a, b in (("h1", "h3"), ("h3", "h1"))
            for told in (bad, slow, wide)
        ]
        return {"mesh": name, "checks": self.checks, "hosts": [], "cells": cells}

    async def history(self, source: str, destination: str, span_us: int) -> Mapping[str, Any]:
        if destination not in ("h1", "h3"):
            raise NotFound(f"There is no host '{destination}'.")
        now = {"age_us": 30_000 * MS, "confidence": 0.9}
        told = {"source": source, "destination": destination, "samples": [], "summaries": [], "now": now}
        if span_us > 86_400_000 * MS:
            stats = {"loss_pct": {"min": 0.0, "mean": 5.0, "max": 15.0, "count": 60}}
            day = 86_400_000 * MS
            first = now_us() // day * day - 5 * day
            told["summaries"] = [
                {"start_us": first + n * day, "span_us": day, "stats": stats, "tries": 60, "failures": n % 2}
                for n in range(5)
            ]
            return told
        first = now_us() - 40 * 60_000 * MS
        told["samples"] = [
            {
                "at_us": first + n * 60_000 * MS, "mesh": "latency", "failed": "no answer" if n == 7 else "",
                "values": {} if n == 7 else {
                    "loss_pct": 15.0 if n >= 20 else 0.0, "delay_us": 20_346 + n, "rtt_us": 41_000,
                    "jitter_us": 212, "mtu_bytes": 1500,
                },
            }
            for n in range(40)
        ]  # fmt: skip
        return told

    async def changes(
        self, name: str, check: str, source: str, destination: str, span_us: int, limit: int
    ) -> Mapping[str, Any]:
        change = {
            "at_us": now_us() - 1_200_000 * MS, "check": "loss", "source": source, "destination": destination,
            "was": Status.OK, "status": Status.CRITICAL, "value": 15.0,
            "message": "loss 15 %, critical from 10 %",
        }  # fmt: skip
        return {"mesh": name, "changes": [change]}


class PageAlerts:
    """`over` tells whether the host's alert is."""

    def __init__(self) -> None:
        self.over = False

    def view(self) -> Mapping[str, Any]:
        fired_us = now_us() - 1_100_000 * MS
        common: dict[str, Any] = {
            "rule": "all", "pending_us": None, "ended_us": None, "fired_recently": 1, "silenced": None,
            "acked": None, "owed": [], "failed": None,
        }  # fmt: skip
        lossy = common | {
            "id": "all/loss/h3@1", "state": "resolved" if self.over else "firing", "condition": "loss",
            "subject": "h3", "hosts": ["h3"], "message": "2 of 4 pairs of h3 are bad", "fired_us": fired_us,
            "ended_us": now_us() if self.over else None, "owed": [{"event": "firing", "channel": "pager"}],
        }  # fmt: skip
        full = [
            common | {
                "id": f"all/disk/h{n}@1", "state": "firing", "condition": "disk", "subject": f"h{n}",
                "hosts": [f"h{n}"], "message": f"9 MiB are free for the spool of h{n}",
                "fired_us": fired_us - n, "acked": "ann: disks are ordered",
            }
            for n in (1, 2, 3)
        ]  # fmt: skip
        silence = {
            "id": 1, "conditions": ["gpu"], "hosts": ["h1"], "since_us": 1,
            "until_us": now_us() + 3_600_000 * MS, "by": "ann", "comment": "new driver",
        }  # fmt: skip
        return {"alerts": [lossy, *full], "silences": [silence], "rules": [], "channels": ["pager"]}


class PageService(FakeService):
    """`busy()` submits and starts jobs 1 and 2; further ones wait."""

    def __init__(self) -> None:
        super().__init__()
        names = {"h1": "z1", "h2": "z1", "h3": "z1", "k1": "z2", "k2": "z2"}
        self.inventory = {
            name: builders.host(name, zone, gpus=2, nic_mbps=100) for name, zone in names.items()
        }
        self.inventory["k2"] = builders.host(
            "k2", "z2", gpus=2, state=HostState.DOWN, reason="It does not answer over SSH."
        )
        self.bad = {"h3"}
        self.monitoring = PageMonitoring()
        self.alerting = PageAlerts()
        self.epoch_us = now_us() - 60_000 * MS

    async def busy(self, *names: str) -> None:
        wide = {"ntasks": 2, "hosts_min": 2, "traffic": builders.profile(200, (0, 80, 90))}
        # the page trusts no name, though a daemon takes none with slashes
        await self.submit([replace(builders.spec("job", **wide), name=name) for name in names])
        for job in (1, 2):
            self.run(job)

    def put_spec(self, job_id: int, spec: JobSpec) -> None:
        self.put(job_id, spec=spec)

    def status(self) -> dict[str, Any]:
        jobs = Counter(job.state.value for job in self.table.values())
        hosts = Counter(host.state.value for host in self.inventory.values())
        return {**super().status(), "jobs": dict(jobs), "hosts": dict(hosts)}

    def run(self, job_id: int, host: str = "h1") -> Job:
        tasks = tuple(Task(rank, name, (0,), started_us=now_us()) for rank, name in enumerate(("h1", "h2")))
        return super().put(
            job_id, state=builders.JobState.RUNNING, tasks=tasks, started_us=now_us() - 30_000 * MS, attempt=1
        )

    def finish(self, job_id: int, code: int = 0, signal: int = 0) -> Job:
        super().finish(job_id, code, signal)
        return self.put(job_id, ended_us=now_us())

    def hosts(self) -> list[tuple[Host, Free | None, Sequence[int]]]:
        running = [job.id for job in self.table.values() if job.occupies]
        return [
            (host, Free(6, host.mem_bytes, (1,)), running if name in ("h1", "h2") else ())
            for name, host in self.inventory.items()
        ]

    def iterations(self, job_id: int) -> dict[str, Any]:
        if job_id > 2:
            return super().iterations(job_id) | {"slot": None}
        shift_us = ROTATED_US if job_id == 2 else 0
        first = (now_us() - self.epoch_us) // PERIOD_US - 40
        starts = [self.epoch_us + shift_us + (first + n) * PERIOD_US + 2 * MS for n in range(40)]
        items = [(start, PERIOD_US + n % 5 * MS, n % 7 * MS, None) for n, start in enumerate(starts)]
        slot = {"epoch_us": self.epoch_us, "shift_us": shift_us, "period_us": PERIOD_US}
        return {
            "baseline_us": PERIOD_US, "mean_us": 202 * MS, "p90_us": 205 * MS, "p99_us": 230 * MS,
            "count": 140, "pauses": 3, "slot": slot if job_id == 2 else None,
            "items": items,
        }  # fmt: skip

    def links(self) -> list[dict[str, Any]]:
        running = tuple(job.id for job in self.table.values() if job.occupies)
        phase = {"offset_us": 0, "duration_us": 80 * MS, "rate_bps": 90_000_000}
        demands = [{"job": job, "period_us": PERIOD_US, "phases": [phase]} for job in running]
        rotations = [
            {"link": "h1", "job": job, "slots": 36 * (job - 1), "circle_slots": 72} for job in running
        ]
        alone = {"score": None, "perimeter_us": None, "rotations": (), "gap_us": None, "demands": ()}
        shared = {
            "score": 100.0, "perimeter_us": PERIOD_US, "rotations": rotations, "gap_us": 20 * MS,
            "demands": demands,
        }  # fmt: skip
        return [
            {"name": name, "capacity_bps": 10**8, "jobs": running if name in ("h1", "h2") else ()}
            | (shared if name in ("h1", "h2") and len(running) > 1 else alone)
            for name in self.inventory
        ]

    def pairs(self) -> list[dict[str, Any]]:
        good = {"loss_pct": 0.0, "delay_us": 76, "bandwidth_bps": 96_400_000, "age_us": 9_000 * MS}
        lossy = {"loss_pct": 15.0, "delay_us": 20_346, "bandwidth_bps": 2_030_000, "age_us": 9_000 * MS}
        failing = {"loss_pct": None, "delay_us": None, "bandwidth_bps": None, "age_us": None, "failures": 4}
        return [
            {"source": a, "destination": b, "jitter_us": 3, "failures": 0}
            | (failing if "k2" in (a, b) else lossy if {a, b} & self.bad else good)
            for a in self.inventory
            for b in self.inventory
            if a != b
        ]
