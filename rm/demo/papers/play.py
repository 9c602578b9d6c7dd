"""A paper's demo from beginning to end: the jobs alone, then in each way, live and simulated."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rm.core.model.asked.traffic import TrafficProfile
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.demo import figures, scenario
from rm.demo.again import Spoiled, processor_ticks
from rm.demo.papers.conditions import Conditions, Row, computing_waited, exchange_waited, judged
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
class Played:
    scene: Scene
    rows: tuple[Row, ...]
    during: tuple[Conditions, ...]  # of each way
    load: tuple[float, float]  # of this machine, before and after

    @property
    def judged(self) -> str:
        return judged(self.rows, self.during)


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
        play = _Play(cluster, scene, screen)
        rows = tuple(play.rows())
        screen.say("taking everything down")
    return Played(scene, rows, tuple(play.during), (round(before, 2), round(os.getloadavg()[0], 2)))


class _Play:
    def __init__(self, cluster: Stage, scene: Scene, screen: Screen) -> None:
        self._cluster, self._scene, self._screen = cluster, scene, screen
        self._trainer = Trainer(cluster, program_text(), scenario.CONGESTION_CONTROL)
        self._alone: dict[str, TrafficProfile] = {}
        self._exchange_waited = 0.0
        self.during: list[Conditions] = []

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
            idle, whole = processor_ticks()
            every = [self._ran() for _ in range(self._scene.runs)]
            idle_then, whole_then = processor_ticks()
            waited = statistics.fmean(computing_waited(runs, self._alone) for runs in every)
            self.during.append(
                Conditions(
                    way.name, (idle_then - idle) / (whole_then - whole), waited + self._exchange_waited
                )
            )
            yield from self._compared(way, every)

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
        self._exchange_waited = max(self._exchange_waited, exchange_waited(run.iterations))
        self._screen.say(
            f"{training.name}, alone: {found.period_us / 1000:.0f} ms, of which {found.comm_us / 1000:.0f} "
            "communicate"
        )
        return found

    def _ran(self) -> list[JobRun]:
        """Submitted held in their order, released together, and followed to their ends."""
        scene, runs = self._scene, []
        nodelists = scene.nodelists or ((),) * len(scene.jobs)
        for training, delay_ms, hosts in zip(scene.jobs, scene.delays_ms, nodelists, strict=True):
            profile = self._alone[training.name]
            traffic = profile if profile.phases else None
            words = self._trainer.prepare(training, scene.iterations, delay_ms / 1000, traffic, hosts)
            runs.append(self._trainer.submit(training, [*words, "--hold"]))
        for run in runs:
            self._cluster.client.release(run.job)
        self._trainer.follow(runs, lambda found: self._screen.now(f"iteration {found[0].done}"))
        return runs

    def _compared(self, way: Way, every: Sequence[Sequence[JobRun]]) -> Iterator[Row]:
        live = pooled([_together(runs) for runs in every])
        found = self._simulated(way, every)
        for run, measured, model in zip(every[-1], live, found, strict=True):
            alone_ms = self._alone[run.training.name].period_us / 1000
            hosts = fold_hosts(list(dict.fromkeys(self._ranks(run))))
            yield Row(way.name, run.training.name, hosts, alone_ms, measured.mean_ms, model.mean_ms)
        slowest = max(
            t.mean_ms / (self._alone[run.training.name].period_us / 1000)
            for t, run in zip(live, every[-1], strict=True)
        )
        self._screen.say(f"{way.name}: the slowest job takes {slowest:.2f} times as long as alone")

    def _simulated(self, way: Way, every: Sequence[Sequence[JobRun]]) -> tuple[Times, ...]:
        """Under the same communication policy, on the hosts where the jobs ran, begun as they began."""
        policies = Policies(
            load("queue", "fifo"),
            load("placement", "first-fit"),
            load("comm", way.comm, way.options.get("comm", {})),
        )
        links = links_of(self._cluster.lab, way.dscp)
        return pooled(
            simulated(
                self._as_begun(runs),
                policies,
                links,
                jitter=jitter_of(runs),
                left_out_s=LEFT_OUT_S,
                seed=seed,
                unfair=MEASURED,
            )
            for runs in every
            for seed in SEEDS
        )

    def _as_begun(self, runs: Sequence[JobRun]) -> list[Ran]:
        first_us = min(run.iterations[0].start_us for run in runs)
        return [
            Ran(
                run.training,
                self._alone[run.training.name],
                self._ranks(run),
                run.iterations[0].start_us - first_us,
                len(run.iterations),
            )
            for run in runs
        ]

    def _ranks(self, run: JobRun) -> tuple[str, ...]:
        tasks = sorted(self._cluster.client.job(run.job).tasks, key=lambda task: task.rank)
        return tuple(task.host for task in tasks)


def _together(runs: Sequence[JobRun]) -> list[list[float]]:
    """How long each job's iterations took while all ran; raises Spoiled where they hardly did."""
    from_us, until_us = figures.span(runs, LEFT_OUT_S)
    if until_us <= from_us:
        raise Spoiled(figures.hardly_together(runs, LEFT_OUT_S))
    return [within([(i.start_us, i.duration_us) for i in run.iterations], from_us, until_us) for run in runs]
