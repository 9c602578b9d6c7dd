"""How jobs that share two links fare in each mode, on real hosts of a lab: `python -m bench crowd`.

Two, four and eight jobs of one priority and one period, the demo's own traffic, whose all-reduces fill 90 %
of the links' time. Each mode's figure is the slowest job's mean iteration as a multiple of the job's alone.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.figure import Figure, Settings
from rm.core.model.asked.traffic import TrafficProfile
from rm.demo import figures, scenario
from rm.demo.scenario import Training
from rm.demo.stage import Stage, stage
from rm.demo.training import JobRun, Trainer, program_text
from rm.lab import LabSpec

COUNTS = (2, 4, 8)
PERIOD_MS, FILL, BYTES_PER_MS = 200.0, 0.9, 11_400  # of an all-reduce: what the demo's jobs send alone
LEFT_OUT_S = 4.0


def run(settings: Settings) -> list[Figure]:
    counts, iterations = (COUNTS[:2], 40) if settings.quick else (COUNTS, 45)
    found = []
    with lab_stage(max(counts)) as cluster:
        for count in counts:
            found += _compared(cluster, count, iterations)
    return found


def _compared(cluster: Stage, count: int, iterations: int) -> Iterator[Figure]:
    everywhere = [host.name for host in cluster.lab.hosts]
    yield from compared(cluster, f"{count} jobs", [everywhere] * count, FILL / count, iterations)


def compared(
    cluster: Stage, title: str, hosts: Sequence[Sequence[str]], duty: float, iterations: int
) -> Iterator[Figure]:
    """Of equal jobs, one on each of these groups of hosts, that communicate for this share of a period."""
    trainer = Trainer(cluster, program_text(), scenario.CONGESTION_CONTROL)
    comm_ms = duty * PERIOD_MS
    size = round(comm_ms * BYTES_PER_MS)
    jobs = [Training(f"job{n + 1}", "low", PERIOD_MS - comm_ms, size, 4) for n in range(len(hosts))]
    cluster.start_daemon(scenario.MANAGED)
    cluster.await_hosts()
    (alone,) = runs_of(trainer, cluster, jobs[:1], hosts[:1], iterations // 2, None)
    profile = figures.profile(alone.iterations)
    alone_us = statistics.fmean(i.duration_us for i in alone.iterations)
    for mode in scenario.MODES:
        cluster.start_daemon(mode)
        cluster.await_hosts()
        before = os.getloadavg()[0]
        runs = runs_of(trainer, cluster, jobs, hosts, iterations, profile)
        begin, end = figures.span(runs, LEFT_OUT_S)
        kept = [
            [i.duration_us for i in r.iterations if i.start_us >= begin and i.end_us <= end] for r in runs
        ]
        times = sorted(statistics.fmean(one) / alone_us for one in kept if one)
        yield Figure(
            f"slowest of {title}, {mode.title}",
            round(times[-1], 3),
            "× alone",
            f"the jobs' mean {statistics.fmean(times):.3f}, the fastest {times[0]:.3f}; alone "
            f"{alone_us / 1000:.1f} ms, of which {profile.comm_us / 1000:.1f} communicate; "
            f"{min(map(len, kept))} iterations or more of each, load {before:.1f}",
        )


def runs_of(
    trainer: Trainer,
    cluster: Stage,
    jobs: Sequence[Training],
    hosts: Sequence[Sequence[str]],
    iterations: int,
    profile: TrafficProfile | None,
) -> list[JobRun]:
    """Submitted held, each for its hosts, released together, and followed to their ends."""
    runs = []
    for number, (job, on) in enumerate(zip(jobs, hosts, strict=True)):
        delay_s = number * PERIOD_MS / 1000 / len(jobs) * 0.618  # not where a rotation would put them
        words = trainer.prepare(job, iterations, delay_s, profile, on)
        runs.append(trainer.submit(job, [*words, "--hold"]))
    for one in runs:
        cluster.client.release(one.job)
    trainer.follow(runs, lambda _: None)
    return runs


@contextlib.contextmanager
def lab_stage(gpus: int, hosts: int = 2, leaves: int = 0, spines: int = 0) -> Iterator[Stage]:
    """Hosts, with all that the jobs need."""
    spec = LabSpec(
        zones=1,
        hosts=hosts,
        leaves=leaves,
        spines=spines,
        gpus_per_host=gpus,
        link_mbps=scenario.LINK_MBPS,
        queue_packets=scenario.QUEUE_PACKETS,
        congestion_control=scenario.CONGESTION_CONTROL,
    )
    with (
        tempfile.TemporaryDirectory(prefix="rm-crowd-") as folder,
        stage(Path(folder), spec, _silent) as made,
    ):
        made.prepare(scenario.MANAGED, _silent)
        made.playbook("shaping", _silent)
        made.first_daemon(scenario.MANAGED)
        yield made


def _silent(_: str) -> None: ...
