"""How well does the simulator predict live hosts? `python -m bench fidelity` (as root), about eight minutes.

Each scenario runs on the hosts of a lab, and simulated: jobs with the profile that each had alone on those
hosts, that begin when they began and whose computation varies as much as it did, under the same policies. So
the profile predicts, and of the run itself the simulation knows the begins and the noise of the machine, of
which others' programs are a part. Compared are the mean and the 99th
percentile of each job's iterations, as errors of the simulation, in per cent. All scenarios are simulated
twice: with exactly fair sharing on a link, and with newcomers that count by `NEWCOMER` of their weight, which
is calibrated on the scenarios without management (the best of `WEIGHTS`, printed beside it).

Nothing keeps jobs without management apart, and single runs of equal ones differ by 5 to 10 per cent, live as
simulated. So these are played `RUNS` times, and compared are the means over the runs.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.crowd import lab_stage
from bench.figure import Figure, Settings
from rm.core.model.traffic import TrafficProfile
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.demo import figures, scenario
from rm.demo.scenario import MODES, Mode, Training
from rm.demo.simulated import NEWCOMER, Links, Ran, Times, jitter_of, means, simulated, times
from rm.demo.stage import Stage
from rm.demo.training import JobRun, Trainer, program_text

WEIGHTS = (0.7, 0.75, 0.8, 0.85, 0.87, 0.9, 0.95, 1.0)
SEEDS = (1, 2, 3, 4, 5)  # of the simulated jitter
RUNS = 3  # of a scenario in which nothing is managed
LEFT_OUT_S = 2.0
ITERATIONS, ALONE = 45, 20
BYTES_PER_MS = 11_400  # of an all-reduce: what the demo's jobs send alone
MODE = {mode.name: mode for mode in MODES}
MEDIAN_PCT, WORST_PCT = 3.0, 8.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """Jobs on the links of two hosts; `delays_ms` is when each begins, after they were released."""

    name: str
    jobs: tuple[Training, ...]
    mode: Mode
    delays_ms: tuple[float, ...]
    iterations: tuple[int, ...] = ()  # of each; without, all make ITERATIONS


@dataclass(frozen=True, slots=True)
class Played:
    """One scenario on live hosts: each job's begin, after the first one's, how many iterations it made, the
    jitter of all their computing, and their times within the span that is compared."""

    scenario: Scenario
    begins_us: tuple[int, ...]
    iterations: tuple[int, ...]
    jitter: float
    live: tuple[Times, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """One scenario, played several times."""

    runs: tuple[Played, ...]

    @property
    def scenario(self) -> Scenario:
        return self.runs[0].scenario

    @property
    def live(self) -> tuple[Times, ...]:
        return means(one.live for one in self.runs)

    @property
    def jitter(self) -> float:
        return statistics.fmean(one.jitter for one in self.runs)

    @property
    def spread_pct(self) -> float:
        """By how much the runs' means differ: the standard deviation of the job for which it is largest."""
        if len(self.runs) == 1:
            return 0.0
        found = [
            [times.mean_ms for times in each] for each in zip(*(one.live for one in self.runs), strict=True)
        ]
        return max(100 * statistics.stdev(each) / statistics.fmean(each) for each in found)


def is_managed(mode: Mode) -> bool:
    return mode.shaping or mode.rotation


def job(name: str, period_ms: float, share: float, priority: str = "low") -> Training:
    """A job that communicates for this share of its period."""
    comm_ms = share * period_ms
    return Training(name, priority, period_ms - comm_ms, round(comm_ms * BYTES_PER_MS), scenario.BUCKETS)


def scenarios() -> tuple[Scenario, ...]:
    three = tuple(job(f"three-{n}", 200, 0.30) for n in (1, 2, 3))
    four = tuple(job(f"four-{n}", 200, 0.22) for n in (1, 2, 3, 4))
    unlike = (job("unlike-1", 200, 0.28), job("unlike-2", 180, 0.28), job("unlike-3", 160, 0.28))
    equal = (job("equal-1", 200, 0.45), job("equal-2", 200, 0.45))
    together, spread = (0.0, 20.0, 40.0, 60.0), (0.0, 70.0, 130.0, 30.0)
    found = [Scenario(f"demo pair, {mode.title}", scenario.PAIR, mode, (0.0, 120.0)) for mode in MODES]
    for mode in (MODE["unmanaged"], MODE["managed"]):
        found += [
            Scenario(f"equal pair, {mode.title}", equal, mode, together[:2]),
            Scenario(f"3 jobs, {mode.title}", three, mode, together[:3]),
            Scenario(f"3 unlike periods, {mode.title}", unlike, mode, spread[:3]),
        ]
    found += [
        Scenario("4 jobs, first come", four, MODE["ordered"], spread),
        Scenario("3 jobs, one ends early, unmanaged", three, MODE["unmanaged"], spread[:3], (45, 20, 45)),
    ]
    return tuple(found)


def run(settings: Settings) -> list[Figure]:
    chosen = scenarios()
    if settings.quick:
        chosen = (chosen[0], chosen[4], chosen[5])
    alone: dict[str, TrafficProfile] = {}
    played: list[Repeated] = []
    with lab_stage(4) as stage:
        trainer = Trainer(stage, program_text(), scenario.CONGESTION_CONTROL)
        stage.start_daemon(MODE["unmanaged"])
        stage.await_hosts()
        for training in dict.fromkeys(one for each in chosen for one in each.jobs):
            alone[training.name] = _alone(trainer, stage, training, alone)
        for one in chosen:
            stage.start_daemon(one.mode)
            stage.await_hosts()
            times_played = 1 if settings.quick or is_managed(one.mode) else RUNS
            played.append(Repeated(tuple(_live(trainer, stage, one, alone) for _ in range(times_played))))
    return list(_compared(played, alone))


def _alone(
    trainer: Trainer, stage: Stage, training: Training, known: Mapping[str, TrafficProfile]
) -> TrafficProfile:
    """Measured, but for jobs that differ from a known one by their names alone."""
    like = (j for j in _all_jobs() if j.name in known and _same(j, training))
    if (twin := next(like, None)) is not None:
        return known[twin.name]
    (ran,) = _ran(trainer, stage, (training,), (ALONE,), (0.0,), {})
    return figures.profile(ran.iterations)


def _all_jobs() -> Iterator[Training]:
    for one in scenarios():
        yield from one.jobs


def _same(a: Training, b: Training) -> bool:
    return (a.compute_ms, a.bytes, a.buckets) == (b.compute_ms, b.bytes, b.buckets)


def _ran(
    trainer: Trainer,
    stage: Stage,
    jobs: Sequence[Training],
    iterations: Sequence[int],
    delays_ms: Sequence[float],
    alone: Mapping[str, TrafficProfile],
) -> list[JobRun]:
    """Submitted held, released together, and followed to their ends."""
    runs = []
    for training, count, delay_ms in zip(jobs, iterations, delays_ms, strict=True):
        profile = alone[training.name] if alone else None
        names = [host.name for host in stage.lab.hosts]
        words = trainer.prepare(training, count, delay_ms / 1000, profile, names)
        runs.append(trainer.submit(training, [*words, "--hold"]))
    for one in runs:
        stage.client.release(one.job)
    trainer.follow(runs, lambda _: None)
    return runs


def _live(trainer: Trainer, stage: Stage, one: Scenario, alone: Mapping[str, TrafficProfile]) -> Played:
    counts = one.iterations or (ITERATIONS,) * len(one.jobs)
    runs = _ran(trainer, stage, one.jobs, counts, one.delays_ms, alone)
    first_us = min(r.iterations[0].start_us for r in runs)
    begins_us = tuple(r.iterations[0].start_us - first_us for r in runs)
    live = []
    for ran in runs:
        own = [(i.start_us - first_us, i.duration_us) for i in ran.iterations]
        live.append(times(own, max(begins_us) + 1e6 * LEFT_OUT_S, _until(runs, first_us)))
    return Played(one, begins_us, counts, jitter_of(runs), tuple(live))


def _until(runs: Sequence[JobRun], first_us: int) -> int:
    """When the last of the jobs ends that make the most iterations, less what follows the first such end."""
    most = max(len(r.iterations) for r in runs)
    return min(r.iterations[-1].end_us for r in runs if len(r.iterations) == most) - first_us


# -- simulated ---------------------------------------------------------------------------------


def averaged(one: Repeated, alone: Mapping[str, TrafficProfile], newcomer: float) -> tuple[Times, ...]:
    """The same jobs in the simulator: means over the seeds of its jitter, and over the begins of the runs."""
    return means(_simulated(ran, alone, newcomer, seed) for ran in one.runs for seed in SEEDS)


def _simulated(
    one: Played, alone: Mapping[str, TrafficProfile], newcomer: float, seed: int
) -> tuple[Times, ...]:
    names = ("host1", "host2")
    jobs = [
        Ran(training, alone[training.name], names, begin_us, count)
        for training, begin_us, count in zip(one.scenario.jobs, one.begins_us, one.iterations, strict=True)
    ]
    links = Links(dict.fromkeys(names, scenario.LINK_MBPS * 1_000_000))
    return simulated(
        jobs,
        _policies(one.scenario.mode),
        links,
        jitter=one.jitter,
        left_out_s=LEFT_OUT_S,
        seed=seed,
        newcomer=newcomer,
    )


def _policies(mode: Mode) -> Policies:
    """As the demo's rm.toml has them."""
    if not is_managed(mode):
        comm = load("comm", "none")
    elif mode.comm != "metronome":
        comm = load("comm", mode.comm)
    else:
        options = {"shaping": mode.shaping, "rotation": mode.rotation, "gating": mode.rotation}
        comm = load("comm", "metronome", options)
    return Policies(load("queue", "fifo"), load("placement", "first-fit"), comm)


# -- compared ----------------------------------------------------------------------------------


def errors(live: Sequence[Times], found: Sequence[Times]) -> list[tuple[float, float]]:
    """Of each job's mean and 99th percentile, in per cent of what was measured."""
    return [
        (100 * (f.mean_ms / t.mean_ms - 1), 100 * (f.p99_ms / t.p99_ms - 1))
        for t, f in zip(live, found, strict=True)
    ]


def calibrated(played: Sequence[Repeated], alone: Mapping[str, TrafficProfile]) -> float:
    """Of WEIGHTS the one with which the means without management are least wrong; of equals the largest."""
    free = [one for one in played if not is_managed(one.scenario.mode)]

    def wrong(weight: float) -> float:
        return statistics.fmean(
            abs(mean) for one in free for mean, _ in errors(one.live, averaged(one, alone, weight))
        )

    return min(sorted(WEIGHTS, reverse=True), key=wrong) if free else 1.0


def _compared(played: Sequence[Repeated], alone: Mapping[str, TrafficProfile]) -> Iterator[Figure]:
    means: dict[float, list[float]] = {1.0: [], NEWCOMER: []}
    tails: dict[float, list[float]] = {1.0: [], NEWCOMER: []}
    for one in played:
        worst, told = 0.0, []
        for weight in (1.0, NEWCOMER):
            found = averaged(one, alone, weight)
            wrong = errors(one.live, found)
            means[weight] += [abs(mean) for mean, _ in wrong]
            tails[weight] += [abs(tail) for _, tail in wrong]
            worst = max(abs(mean) for mean, _ in wrong)
            shown = ", ".join(f"{f.mean_ms:.1f} ({m:+.1f} %, p99 {t:+.1f} %)"
                              for f, (m, t) in zip(found, wrong, strict=True))  # fmt: skip
            told.append(f"simulated with newcomers at {weight:g}: {shown}")
        live = ", ".join(f"{t.mean_ms:.1f} (p99 {t.p99_ms:.1f})" for t in one.live)
        yield Figure(
            f"{one.scenario.name}: worst mean",
            worst,
            "%",
            f"live {live} ms, of {len(one.runs)} runs that differ by {one.spread_pct:.1f} %, jitter "
            f"{100 * one.jitter:.2f} %; {'; '.join(told)}",
        )
    profiles = "; ".join(
        f"{name} {profile.period_us / 1000:.1f} ms, {profile.comm_us / 1000:.1f} of them communicating"
        for name, profile in alone.items()
    )
    for what, table, target in (("mean", means, MEDIAN_PCT), ("99th percentile", tails, None)):
        for weight, found in table.items():
            yield Figure(
                f"error of the {what}, newcomers at {weight:g}, median", statistics.median(found), "%",
                f"the worst {max(found):.1f} %; goals {MEDIAN_PCT:g} and {WORST_PCT:g} %",
                target=target if weight == NEWCOMER else None,
            )  # fmt: skip
    load = os.getloadavg()[0]
    yield Figure(
        "a newcomer's weight that fits best here", calibrated(played, alone), "",
        f"of {', '.join(map(str, WEIGHTS))}; load {load:.1f}; alone: {profiles}",
    )  # fmt: skip
