"""A paper's demo from beginning to end: the jobs alone, then in each way, live and simulated."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rm.core.model.asked.traffic import TrafficProfile
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.demo import figures, scenario
from rm.demo.again import Spoiled
from rm.demo.papers.scene import Scene, Way
from rm.demo.play import Screen
from rm.demo.scenario import Training
from rm.demo.simulated import MEASURED, Ran, Times, jitter_of, links_of, pooled, simulated, within
from rm.demo.stage import Stage, stage
from rm.demo.training import JobRun, Trainer, program_text
from rm.units import fold_hosts

LEFT_OUT_S = 1.5  # after the last job's begin
SEEDS = (1, 2, 3)  # of the simulated jitter, and of the hash that chooses paths


@dataclass(frozen=True, slots=True)
class Row:
    """One job in one way; `alone_ms` and the means are of its iterations."""

    way: str
    job: str
    hosts: str
    alone_ms: float
    live_ms: float
    simulated_ms: float


@dataclass(frozen=True, slots=True)
class Played:
    scene: Scene
    rows: tuple[Row, ...]
    load: tuple[float, float]  # of this machine, before and after


def play_paper(base: Path, scene: Scene, screen: Screen) -> Played:
    """Run it all; when this returns or raises, nothing is left of it but the figures.

    Args:
        base: a directory of the user's, below which the demo works in one of its own.
    """
    before = os.getloadavg()[0]
    with stage(base, scene.lab, screen.say) as cluster:
        cluster.prepare(scene.ways[0], screen.now)
        cluster.first_daemon(scene.ways[0])
        screen.say("the daemon runs, and all hosts are up")
        rows = tuple(_Play(cluster, scene, screen).rows())
        screen.say("taking everything down")
    return Played(scene, rows, (round(before, 2), round(os.getloadavg()[0], 2)))


class _Play:
    def __init__(self, cluster: Stage, scene: Scene, screen: Screen) -> None:
        self._cluster, self._scene, self._screen = cluster, scene, screen
        self._trainer = Trainer(cluster, program_text(), scenario.CONGESTION_CONTROL)
        self._alone: dict[str, TrafficProfile] = {}

    def rows(self) -> Iterator[Row]:
        self._start(self._scene.ways[0])
        known: dict[Training, TrafficProfile] = {}  # of jobs that differ by their names alone
        for training in self._scene.jobs:
            nameless = replace(training, name="")
            if nameless not in known:
                known[nameless] = self._profile(training)
            self._alone[training.name] = known[nameless]
        for way in self._scene.ways:
            self._start(way)
            runs = self._ran([self._scene.iterations] * len(self._scene.jobs))
            yield from self._compared(way, runs)

    def _start(self, way: Way) -> None:
        self._cluster.start_daemon(way)
        self._cluster.await_hosts()
        if self._scene.measures:
            self._screen.now("measuring loss, delay and bandwidth between the hosts")
            self._cluster.client.network.measure()

    def _profile(self, training: Training) -> TrafficProfile:
        """Measured on two hosts; of a job that has one task its computing is the period."""
        if training.tasks == 1:
            return TrafficProfile(round(1000 * training.compute_ms), ())
        spread = replace(training, spread=True)
        words = self._trainer.prepare(spread, self._scene.iterations_alone, 0.0, None, self._scene.alone_on)
        run = self._trainer.submit(spread, words)
        self._trainer.follow([run], lambda _: self._screen.now(f"{training.name}, alone"))
        found = figures.profile(run.iterations)
        self._screen.say(
            f"{training.name}, alone: {found.period_us / 1000:.0f} ms, of which {found.comm_us / 1000:.0f} "
            "communicate"
        )
        return found

    def _ran(self, iterations: Sequence[int]) -> list[JobRun]:
        """Submitted held in their order, released together, and followed to their ends."""
        scene, runs = self._scene, []
        nodelists = scene.nodelists or ((),) * len(scene.jobs)
        for training, count, delay_ms, hosts in zip(
            scene.jobs, iterations, scene.delays_ms, nodelists, strict=True
        ):
            profile = self._alone[training.name]
            traffic = profile if profile.phases else None
            words = self._trainer.prepare(training, count, delay_ms / 1000, traffic, hosts)
            runs.append(self._trainer.submit(training, [*words, "--hold"]))
        for run in runs:
            self._cluster.client.release(run.job)
        self._trainer.follow(runs, lambda found: self._screen.now(f"iteration {found[0].done}"))
        return runs

    def _compared(self, way: Way, runs: Sequence[JobRun]) -> Iterator[Row]:
        begins_us = [run.iterations[0].start_us for run in runs]
        first_us = min(begins_us)
        from_us = max(begins_us) - first_us + 1e6 * LEFT_OUT_S
        until_us = min(run.iterations[-1].end_us for run in runs) - first_us
        if until_us <= from_us:
            raise Spoiled(figures.hardly_together(runs, LEFT_OUT_S))
        live = pooled(
            [
                [
                    within(
                        [(i.start_us - first_us, i.duration_us) for i in run.iterations], from_us, until_us
                    )
                    for run in runs
                ]
            ]
        )
        ran = [
            Ran(
                run.training,
                self._alone[run.training.name],
                self._ranks(run),
                begin - first_us,
                len(run.iterations),
            )
            for run, begin in zip(runs, begins_us, strict=True)
        ]
        found = self._simulated(way, ran, runs)
        for one, measured, model in zip(ran, live, found, strict=True):
            alone_ms = one.profile.period_us / 1000
            hosts = fold_hosts(list(dict.fromkeys(one.hosts)))
            yield Row(way.name, one.training.name, hosts, alone_ms, measured.mean_ms, model.mean_ms)
        slowest = max(t.mean_ms / (r.profile.period_us / 1000) for t, r in zip(live, ran, strict=True))
        self._screen.say(f"{way.name}: the slowest job takes {slowest:.2f} times as long as alone")

    def _simulated(self, way: Way, ran: Sequence[Ran], runs: Sequence[JobRun]) -> tuple[Times, ...]:
        """Under the same communication policy, on the hosts where the jobs ran."""
        policies = Policies(
            load("queue", "fifo"),
            load("placement", "first-fit"),
            load("comm", way.comm, way.options.get("comm", {})),
        )
        links, jitter = links_of(self._cluster.lab, way.dscp), jitter_of(runs)
        return pooled(
            simulated(
                ran, policies, links, jitter=jitter, left_out_s=LEFT_OUT_S, seed=seed, unfair=MEASURED
            )
            for seed in SEEDS
        )

    def _ranks(self, run: JobRun) -> tuple[str, ...]:
        tasks = sorted(self._cluster.client.job(run.job).tasks, key=lambda task: task.rank)
        return tuple(task.host for task in tasks)
