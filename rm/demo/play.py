"""The demo from beginning to end: what is done, in which order, and what is shown of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rm.core.model.asked.traffic import TrafficProfile
from rm.demo import figures, scenario
from rm.demo.again import Spoiled, await_quiet, measured_again
from rm.demo.figures import Measured, Run
from rm.demo.meter import LinkMeter
from rm.demo.scenario import Length, Mode, Training
from rm.demo.stage import Stage, stage
from rm.demo.training import JobRun, Trainer, program_text
from rm.errors import RmError
from rm.units import fold_hosts


class Screen(Protocol):
    """Where the demo shows what happens: `say` stays, `now` is replaced by what comes next."""

    def say(self, text: str) -> None: ...
    def now(self, text: str) -> None: ...


def play(base: Path, length: Length, screen: Screen) -> tuple[Measured, LinkMeter]:
    """Run it all; when this returns or raises, nothing is left of it but the figures.

    Args:
        base: a directory of the user's, below which the demo works in one of its own.
    """
    before = os.getloadavg()[0]
    with stage(base, scenario.LAB, screen.say) as cluster:
        demo = Demo(cluster, length, screen)
        demo.bootstrap()
        measured_again(demo.measure, demo.begin_again, screen.say)
        screen.say("taking everything down")
    demo.measured.load = (round(before, 2), round(os.getloadavg()[0], 2))
    return demo.measured, demo.meter


class Demo:
    """One performance on a stage."""

    def __init__(self, cluster: Stage, length: Length, screen: Screen) -> None:
        self.cluster = cluster
        self.length = length
        self.screen = screen
        self.measured = self._nothing_yet()
        self.meter = LinkMeter(cluster)
        self.trainer = Trainer(cluster, program_text(), scenario.CONGESTION_CONTROL)
        self.profiles: dict[str, TrafficProfile] = {}

    def _nothing_yet(self, shaping: str = "") -> Measured:
        return Measured(self.length.repeats, self.length.left_out_s, shaping=shaping)

    def measure(self) -> None:
        self.measure_alone()
        self.compare_modes()
        self.keep_apart()

    def begin_again(self) -> None:
        """As after `bootstrap`: nothing is measured, and no job runs."""
        self.trainer.end_all()
        if not await_quiet(self.screen.now):
            self.screen.say("this machine is as busy as before")
        self.measured = self._nothing_yet(self.measured.shaping)
        self.cluster.start_daemon(scenario.MANAGED)
        self.cluster.await_hosts()

    # -- the hosts -----------------------------------------------------------------------------

    def bootstrap(self) -> None:
        cluster = self.cluster
        playbooks = cluster.prepare(scenario.MANAGED, self.screen.now)
        self.screen.say(f"playbooks {', '.join(playbooks)} ran on {len(cluster.lab.hosts)} hosts, over SSH")
        try:
            cluster.playbook("shaping", self.screen.now)
            self.screen.say("playbook shaping: each host's trial class counted its packet")
        except RmError as error:
            cluster.shapes = False
            self.measured.shaping = f"none, the hosts of this lab cannot: {error}"
            self.screen.say(f"shaping is left out: {error}")
        cluster.first_daemon(scenario.MANAGED)
        self.screen.say("the daemon runs, and all hosts are up")
        self.screen.now("measuring loss, delay and bandwidth between the hosts")
        pairs = cluster.client.network.measure().measured
        if not pairs:
            raise RmError(f"The network between the hosts could not be measured: {cluster.last_words()}")
        self.screen.say(f"the network is measured: {pairs} pairs of hosts")

    # -- one run -------------------------------------------------------------------------------

    def _run(self, mode: str, jobs: Sequence[JobRun]) -> Run:
        def show(found: Sequence[JobRun]) -> None:
            self.meter.watch(found[0].hosts)
            self.screen.now(f"{mode}: {progress(found)}")

        self.trainer.follow(jobs, show)
        begin, end = figures.span(jobs, self.length.left_out_s)
        if end <= begin:
            raise Spoiled(figures.hardly_together(jobs, self.length.left_out_s))
        hosts = jobs[0].hosts
        mbps = {h: self.meter.mean_mbps(h, begin, end) for h in hosts if self.meter.covers(h, begin)}
        run = Run(mode, tuple(jobs), begin, end, mbps)
        self.measured.runs.append(run)
        return run

    def measure_alone(self) -> None:
        """Each job alone on the links: the time to compare with, and the profile to submit with."""
        for repeat in range(self.length.repeats_alone):
            for training in scenario.PAIR:
                words = self.trainer.prepare(
                    training, self.length.iterations_alone, 0.0, None, self.measured.hosts
                )
                run = self._run(scenario.ALONE, [self.trainer.submit(training, words)])
                if not self.measured.hosts:
                    self._tell_hosts(run.jobs[0])
                self._tell(run, f"alone, {repeat + 1} of {self.length.repeats_alone}")
        for training in scenario.PAIR:
            found = figures.profile(self.measured.iterations(scenario.ALONE, training.name))
            self.profiles[training.name] = found
            self.screen.say(
                f"{training.name} computes {found.phases[0].offset_us / 1000:.0f} ms, then communicates "
                f"{found.comm_us / 1000:.0f} ms, alone"
            )
        if wrong := figures.why_no_room(self.profiles):
            raise Spoiled(wrong)

    def _tell_hosts(self, first: JobRun) -> None:
        self.measured.hosts = tuple(sorted(first.hosts))
        self.measured.verdicts = first.why.verdicts if first.why is not None else ()
        self.screen.say(f"placed on {fold_hosts(self.measured.hosts)}")
        for host in figures.avoided(self.measured.verdicts):
            self.screen.say(f"avoided {host['name']}: {host['reason']}")

    # -- the pair ------------------------------------------------------------------------------

    def compare_modes(self) -> None:
        """The pair in each mode, modes taking turns, so that a busy minute of this machine hits all."""
        for repeat in range(self.length.repeats):
            for mode in scenario.MODES:
                if mode.shaping and not mode.rotation and not self.cluster.shapes:
                    continue
                self.screen.now(f"restarting the daemon: {mode.title}")
                self.cluster.start_daemon(mode)
                self.cluster.await_hosts()
                run = self._run(mode.name, self._submit_pair(mode, repeat))
                self._check_shared(run)
                self._tell(run, f"{mode.title}, {repeat + 1} of {self.length.repeats}")

    def _submit_pair(self, mode: Mode, repeat: int) -> list[JobRun]:
        # a different part of the low job's period each time
        delay_s = self.profiles["low"].period_us / 1e6 * repeat / self.length.repeats
        # with all of rm the scheduler chooses; the other modes shall differ in nothing but the mode
        hosts = () if mode is scenario.MANAGED else self.measured.hosts
        jobs = []
        for training in scenario.PAIR:
            words = self.trainer.prepare(
                training,
                self.length.iterations,
                delay_s if training.name == "low" else 0.0,
                self.profiles[training.name],
                hosts,
            )
            words.append("--hold")  # released together: on a busy machine a submission takes seconds
            if mode is scenario.MANAGED and repeat == 0:
                job, typed = self.trainer.submit_by_hook(training, words)
                self.screen.say(f"$ {typed}")
                self.screen.say(f"Submitted batch job {job.job}")
            else:
                job = self.trainer.submit(training, words)
            jobs.append(job)
        for job in jobs:
            self.cluster.client.release(job.job)
        return jobs

    def _check_shared(self, run: Run) -> None:
        for job in run.jobs:
            if sorted(job.hosts) != sorted(self.measured.hosts):
                raise Spoiled(
                    f"The {job.training.name} job ran on {fold_hosts(job.hosts)} instead of sharing "
                    f"{fold_hosts(self.measured.hosts)}: as measured alone, no rotation keeps the two apart."
                )

    def _tell(self, run: Run, title: str) -> None:
        parts = []
        for job in run.jobs:
            found = figures.statistics(run.within(job))
            parts.append(f"{job.training.name} {found['mean']:.1f} ms" if found else job.training.name)
        used = [100 * rate / scenario.LINK_MBPS for rate in run.mbps.values()]
        links = f", links used {sum(used) / len(used):.0f} %" if used else ""
        self.screen.say(f"{title}: {', '.join(parts)}{links}")

    # -- the pair that does not fit ------------------------------------------------------------

    def keep_apart(self) -> None:
        """Two jobs for which no rotation exists: the second goes elsewhere."""
        known, (first, second) = scenario.PAIR[0], scenario.HEAVY
        shape = figures.scaled(self.profiles[known.name], known, first)
        together = figures.score_together(shape)
        # the second is placed before the first was seen to run: on a busy machine its rhythm is slower than
        # the one that it declares, and at that rhythm, once rm has learnt it, the two may fit together
        two = self._submit_heavy(second, shape, "--hold")
        one = self._submit_heavy(first, shape)
        self.trainer.await_running(one)
        self.cluster.client.release(two.job)
        self.trainer.follow([one, two], lambda jobs: self.screen.now(f"apart: {progress(jobs)}"))
        begin, end = figures.span((one, two), self.length.left_out_s / 2)
        run = Run("apart", (one, two), begin, end)
        measured = {job.training.name: figures.statistics(run.within(job)) for job in (one, two)}
        self.measured.apart = {
            "period_ms": round(shape.period_us / 1000, 1),
            "communication_ms": round(shape.comm_us / 1000, 1),
            "score_together": together,
            "hosts": {job.training.name: list(job.hosts) for job in (one, two)},
            "iteration_ms": measured,
            "apart": not set(one.hosts) & set(two.hosts),
        }
        self.screen.say(
            f"no rotation exists for two jobs that communicate {shape.comm_us / 1000:.0f} of "
            f"{shape.period_us / 1000:.0f} ms (score together {together}): "
            f"{first.name} on {fold_hosts(one.hosts)}, {second.name} on {fold_hosts(two.hosts)}"
        )
        if not self.measured.apart["apart"]:
            raise Spoiled(
                "Two jobs for which no rotation exists were placed on the same links. "
                + figures.why_not_apart(one.hosts, two.why)
            )

    def _submit_heavy(self, training: Training, shape: TrafficProfile, *more: str) -> JobRun:
        words = self.trainer.prepare(training, self.length.iterations_heavy, 0.0, shape, ())
        return self.trainer.submit(training, [*words, *more])


def progress(jobs: Sequence[JobRun]) -> str:
    """One short line of how far the jobs are."""
    return ", ".join(f"{job.training.name} {job.done} iterations, last {job.last_ms:.0f} ms" for job in jobs)
