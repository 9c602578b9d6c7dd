"""How well does the simulator predict live hosts? `python -m bench fidelity` (as root), up to forty minutes.

Each scenario runs on two hosts of a lab, and simulated: jobs with the profile that each had alone on those
hosts, that begin when they began, under the same policies. So the profile predicts, and of the run itself the
simulation knows the begins and how jobs waited for the machine, of which others' programs are a part:

- The computation of a simulated iteration is drawn from what the job's own computing took in the run.
- Its exchange takes as long as the fastest one of the job alone, and begins later by what is drawn from a
  control: a job like the first one, which nobody shares links with, runs on two further hosts of the same
  machine at the same time. By how much its exchanges take longer than its fastest one is the wait of its
  processes for each other and for a processor.

Both are drawn from the span that is compared. Before it the machine starts the jobs' programs, and the
waits of then would be its 99th percentile.

Compared are the mean and the 99th percentile of the iterations, as errors of the simulation, in per cent.
All scenarios are simulated twice: with exactly fair sharing on a link, and as `MEASURED` says, which is
calibrated on the scenarios without management (the best of `WEIGHTS` and `LUCKS` is printed).

Nothing keeps jobs without management apart: like ones slide apart or stay in step by chance, and single
runs of them differ by 5 to 10 per cent, live as simulated; and the 99th percentile of some 40 iterations is
the longest one. So what is predicted is a distribution, and it takes several runs to know it: a scenario is
played `RUNS_MANAGED` times, without management `RUNS_FREE` times (two runs of it may agree by chance), and
up to `RUNS_MOST` times until the standard error of its means is `SETTLED_PCT`, and the one of its 99th
percentiles `SETTLED_TAIL_PCT`: the slow iterations of a run come together, while its jobs are in step. Once
each was played often enough for that, the time goes to those that are known least, `ROUND` runs at a time.
Looked at are the iterations of all runs and of all jobs that are alike together, beside `SIMULATED` runs or
more of the simulation. What the live runs leave open, a standard error, is printed after each live figure:
of the mean by the means of single runs, of the 99th percentile by drawing among the runs, and among the
iterations of each drawn run: the 99th percentile of two runs is the slowest iteration of one of them, and
whether there was such a one is chance, too. How many errors are larger than two standard errors says
whether more is wrong than what the live runs leave open.

    python -m bench.fidelity docs/simulator.md    # writes the table there, too
"""

from __future__ import annotations

import math
import os
import random
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.crowd import lab_stage
from bench.figure import Figure, Settings
from rm.core.model.asked.traffic import TrafficProfile
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.demo import figures, scenario
from rm.demo.scenario import MODES, Mode, Training
from rm.demo.simulated import MEASURED, Links, Ran, Times, pooled, simulated
from rm.demo.stage import Stage
from rm.demo.training import Iteration, JobRun, Trainer, program_text
from rm.sim.network.unfairness import FAIR, Unfairness
from rm.sim.workload import Noise
from scripts import section

WEIGHTS, LUCKS = (0.72, 0.78, 0.82, 0.87, 1.0), (0.0, 0.1, 0.2, 0.3)
SIMULATED, CALIBRATING = 60, 20  # runs of a scenario's simulation, some seeds for each live run
RUNS_MANAGED, RUNS_FREE, RUNS_MOST, ROUND = 2, 4, 36, 4
SETTLED_PCT, SETTLED_TAIL_PCT = 1.0, 3.0
LIVE_S = 2_160.0  # after which no scenario is played more often than at least
DRAWS = 200
LEFT_OUT_S = 2.0
HOSTS = 2  # on which a scenario's jobs run; on two further ones its control
ITERATIONS, ALONE = 45, 20
BYTES_PER_MS = 11_400  # of an all-reduce: what the demo's jobs send alone
MODE = {mode.name: mode for mode in MODES}
MEDIAN_PCT, WORST_PCT = 3.0, 8.0
AS_MEASURED = "as measured"
SHARING = {"fair": FAIR, AS_MEASURED: MEASURED}


@dataclass(frozen=True, slots=True)
class Scenario:
    """Jobs on the links of two hosts; `delays_ms` is when each begins, after they were released."""

    name: str
    jobs: tuple[Training, ...]
    mode: Mode
    delays_ms: tuple[float, ...]
    iterations: tuple[int, ...] = ()  # of each; without, all make ITERATIONS


@dataclass(frozen=True, slots=True)
class Alone:
    """A job by itself: its profile, by medians, and the exchange that waited least for the machine."""

    profile: TrafficProfile
    fastest_us: int

    @property
    def sends(self) -> TrafficProfile:
        """The profile without those waits."""
        (phase,) = self.profile.phases
        saved_us = phase.duration_us - self.fastest_us
        shorter = replace(phase, duration_us=self.fastest_us)
        return TrafficProfile(self.profile.period_us - saved_us, (shorter,))


@dataclass(frozen=True, slots=True)
class Played:
    """One scenario on live hosts: each job's begin, after the first one's, how many iterations it made, how
    it waited for the machine, and how long its iterations took within the span that is compared."""

    scenario: Scenario
    begins_us: tuple[int, ...]
    iterations: tuple[int, ...]
    machine: tuple[Noise, ...]
    took_us: tuple[list[float], ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """One scenario, played several times."""

    runs: tuple[Played, ...]

    @property
    def scenario(self) -> Scenario:
        return self.runs[0].scenario

    @property
    def by_run(self) -> list[tuple[list[float], ...]]:
        return [by_kind(self.scenario, one.took_us) for one in self.runs]

    @property
    def live(self) -> tuple[Times, ...]:
        """Of each kind of jobs."""
        return pooled(self.by_run)

    @property
    def open_pct(self) -> list[tuple[float, float]]:
        """The standard errors of each kind's mean and 99th percentile; endless for a single run."""
        return [standard_errors_pct(each) for each in zip(*self.by_run, strict=True)]

    @property
    def jitter(self) -> float:
        """The standard deviation of what the jobs computed, as a share."""
        return statistics.fmean(statistics.pstdev(job.factors) for one in self.runs for job in one.machine)

    @property
    def late_ms(self) -> float:
        """For how long the control's exchanges waited for the machine, in the mean."""
        return statistics.fmean(late for one in self.runs for late in one.machine[0].late_us) / 1000

    @property
    def spread_pct(self) -> float:
        """By how much the runs' means differ: the standard deviation of the kind for which it is largest."""
        return max(mean for mean, _ in self.open_pct) * len(self.runs) ** 0.5


def by_kind(scenario: Scenario, took_us: Sequence[list[float]]) -> tuple[list[float], ...]:
    """The iterations of one run, those of jobs that differ by their names alone together."""
    counts = scenario.iterations or (ITERATIONS,) * len(scenario.jobs)
    found: dict[tuple[Training, int], list[float]] = {}
    for training, count, took in zip(scenario.jobs, counts, took_us, strict=True):
        found.setdefault((replace(training, name=""), count), []).extend(took)
    return tuple(found.values())


def standard_errors_pct(runs: Sequence[list[float]]) -> tuple[float, float]:
    """Of the mean and the 99th percentile of the iterations of all runs, from how the runs differ; of the
    latter also from how the iterations of each do."""
    if len(runs) == 1:
        return math.inf, math.inf
    (whole,) = pooled([one] for one in runs)
    means_ms = [statistics.fmean(one) / 1000 for one in runs]
    chance = random.Random(len(runs))
    tails_ms = []
    for _ in range(DRAWS):
        drawn = chance.choices(runs, k=len(runs))
        (again,) = pooled([chance.choices(one, k=len(one))] for one in drawn)
        tails_ms.append(again.p99_ms)
    return (
        100 * statistics.stdev(means_ms) / len(runs) ** 0.5 / whole.mean_ms,
        100 * statistics.stdev(tails_ms) / whole.p99_ms,
    )


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
    played, alone = play(settings)
    return [*_compared(predicted(played, alone)), _calibration(played, alone)]


def play(settings: Settings) -> tuple[list[Repeated], dict[str, Alone]]:
    """All scenarios on live hosts, and what their jobs are alone."""
    chosen = scenarios()
    if settings.quick:
        chosen = (chosen[0], chosen[4], chosen[5])
    alone: dict[str, Alone] = {}
    with lab_stage(4, hosts=4) as stage:
        trainer = Trainer(stage, program_text(), scenario.CONGESTION_CONTROL)
        stage.start_daemon(MODE["unmanaged"])
        stage.await_hosts()
        for training in dict.fromkeys(one for each in chosen for one in each.jobs):
            alone[training.name] = _alone(trainer, stage, training, alone)
        began_s = time.monotonic()
        runs: list[list[Played]] = [[] for _ in chosen]
        modes = [one.mode for one in chosen]
        while (index := next_scenario(modes, runs, settings.quick, time.monotonic() - began_s)) is not None:
            one, known = chosen[index], runs[index]
            stage.start_daemon(one.mode)
            stage.await_hosts()
            for _ in range(runs_at_once(one.mode, len(known), settings.quick)):
                known.append(_live(trainer, stage, one, alone))
    return [Repeated(tuple(known)) for known in runs], alone


def next_scenario(
    modes: Sequence[Mode], runs: Sequence[Sequence[Played]], quick: bool, passed_s: float
) -> int | None:
    """Which one to play now, of scenarios in these modes that were played so often: first those that were
    played less often than at least, then the one that is known least. None: no further run is
    worth its time."""

    def place(index: int) -> tuple[float, int]:
        known = runs[index]
        return (-unsettled(known) if len(known) >= fewest(modes[index]) else -math.inf), index

    wanting = (i for i, mode in enumerate(modes) if wants_more(mode, runs[i], quick, passed_s))
    return min(wanting, key=place, default=None)


def runs_at_once(mode: Mode, played: int, quick: bool) -> int:
    """How many runs follow one another, without another scenario's between them."""
    if quick:
        return 1
    return fewest(mode) - played if played < fewest(mode) else min(ROUND, RUNS_MOST - played)


def fewest(mode: Mode) -> int:
    return RUNS_MANAGED if is_managed(mode) else RUNS_FREE


def unsettled(runs: Sequence[Played]) -> float:
    """How many times as large as they should be the standard errors are at most."""
    known = Repeated(tuple(runs)).open_pct
    return max(max(mean / SETTLED_PCT, tail / SETTLED_TAIL_PCT) for mean, tail in known)


def wants_more(mode: Mode, runs: Sequence[Played], quick: bool, passed_s: float) -> bool:
    """Is another run of the scenario worth its time?"""
    if quick:
        return not runs
    if len(runs) < fewest(mode):
        return True
    return len(runs) < RUNS_MOST and passed_s < LIVE_S and unsettled(runs) > 1


def _alone(trainer: Trainer, stage: Stage, training: Training, known: Mapping[str, Alone]) -> Alone:
    """Measured, but for jobs that differ from a known one by their names alone."""
    like = (j for j in _all_jobs() if j.name in known and _same(j, training))
    if (twin := next(like, None)) is not None:
        return known[twin.name]
    (ran,) = _ran(trainer, stage, (Turn(training, ALONE),))
    return Alone(figures.profile(ran.iterations), min(i.comm_us for i in ran.iterations))


def _all_jobs() -> Iterator[Training]:
    for one in scenarios():
        yield from one.jobs


def _same(a: Training, b: Training) -> bool:
    return (a.compute_ms, a.bytes, a.buckets) == (b.compute_ms, b.bytes, b.buckets)


@dataclass(frozen=True, slots=True)
class Span:
    """What is compared of a run, on the hosts' clock."""

    from_us: float
    until_us: float

    def of(self, ran: JobRun) -> list[Iteration]:
        """The job's iterations that lie within it; all where it holds none."""
        kept = [i for i in ran.iterations if i.start_us >= self.from_us and i.end_us <= self.until_us]
        return kept or ran.iterations


@dataclass(frozen=True, slots=True)
class Turn:
    """A job of one run; `beside`: on the hosts that the others do not use."""

    training: Training
    iterations: int
    delay_ms: float = 0.0
    profile: TrafficProfile | None = None
    beside: bool = False


def _ran(trainer: Trainer, stage: Stage, turns: Sequence[Turn]) -> list[JobRun]:
    """Submitted held, released together, and followed to their ends."""
    names = [host.name for host in stage.lab.hosts]
    runs = []
    for turn in turns:
        where = names[HOSTS:] if turn.beside else names[:HOSTS]
        words = trainer.prepare(turn.training, turn.iterations, turn.delay_ms / 1000, turn.profile, where)
        runs.append(trainer.submit(turn.training, [*words, "--hold"]))
    for one in runs:
        stage.client.release(one.job)
    trainer.follow(runs, lambda _: None)
    return runs


def _live(trainer: Trainer, stage: Stage, one: Scenario, alone: Mapping[str, Alone]) -> Played:
    counts = one.iterations or (ITERATIONS,) * len(one.jobs)
    turns = [
        Turn(training, count, delay_ms, alone[training.name].profile)
        for training, count, delay_ms in zip(one.jobs, counts, one.delays_ms, strict=True)
    ]
    control = replace(one.jobs[0], name="control")
    turns.append(Turn(control, ITERATIONS, 0.0, turns[0].profile, beside=True))
    *runs, beside = _ran(trainer, stage, turns)
    first_us = min(r.iterations[0].start_us for r in runs)
    begins_us = tuple(r.iterations[0].start_us - first_us for r in runs)
    span = Span(first_us + max(begins_us) + 1e6 * LEFT_OUT_S, _until(runs))
    took_us = tuple([float(i.duration_us) for i in span.of(ran)] for ran in runs)
    machine = tuple(machine_of(span.of(ran), alone[ran.training.name], span.of(beside)) for ran in runs)
    return Played(one, begins_us, counts, machine, took_us)


def machine_of(own: Sequence[Iteration], alone: Alone, control: Sequence[Iteration]) -> Noise:
    """What was measured of a job's waiting for the machine, in its iterations and those of the control."""
    computes_us = alone.profile.period_us - alone.profile.comm_us
    computed_us = [i.duration_us - i.comm_us - i.paused_us for i in own]
    exchanged_us = [i.comm_us for i in control]
    fastest_us = min(exchanged_us)
    return Noise(
        factors=tuple(took / computes_us for took in computed_us),
        late_us=tuple(float(took - fastest_us) for took in exchanged_us),
    )


def _until(runs: Sequence[JobRun]) -> int:
    """When the first of the jobs ends that make the most iterations."""
    most = max(len(r.iterations) for r in runs)
    return min(r.iterations[-1].end_us for r in runs if len(r.iterations) == most)


# -- simulated ---------------------------------------------------------------------------------


def averaged(
    one: Repeated, alone: Mapping[str, Alone], unfair: Unfairness, runs: int = SIMULATED
) -> tuple[Times, ...]:
    """Each kind of jobs in the simulator, with several seeds of its noise, and each run's begins."""
    seeds = range(1, -(-runs // len(one.runs)) + 1)
    every = (_simulated(ran, alone, unfair, seed) for ran in one.runs for seed in seeds)
    return pooled(by_kind(one.scenario, took_us) for took_us in every)


def _simulated(
    one: Played, alone: Mapping[str, Alone], unfair: Unfairness, seed: int
) -> tuple[list[float], ...]:
    names = ("host1", "host2")
    about = zip(one.scenario.jobs, one.begins_us, one.iterations, one.machine, strict=True)
    jobs = [
        Ran(
            training,
            alone[training.name].profile,
            names,
            begin_us,
            count,
            alone[training.name].sends,
            machine,
        )
        for training, begin_us, count, machine in about
    ]
    links = Links(dict.fromkeys(names, scenario.LINK_MBPS * 1_000_000))
    return simulated(
        jobs,
        _policies(one.scenario.mode),
        links,
        jitter=0.0,
        left_out_s=LEFT_OUT_S,
        seed=seed,
        unfair=unfair,
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
    """Of the means and 99th percentiles, in per cent of what was measured."""
    return [
        (100 * (f.mean_ms / t.mean_ms - 1), 100 * (f.p99_ms / t.p99_ms - 1))
        for t, f in zip(live, found, strict=True)
    ]


def calibrated(played: Sequence[Repeated], alone: Mapping[str, Alone]) -> Unfairness:
    """Of WEIGHTS and LUCKS those with which what is not managed is least wrong; of equals the fairest."""
    free = [one for one in played if not is_managed(one.scenario.mode)]

    def wrong(unfair: Unfairness) -> float:
        found = (errors(one.live, averaged(one, alone, unfair, CALIBRATING)) for one in free)
        return statistics.fmean(abs(mean) + abs(tail) for each in found for mean, tail in each)

    tried = [
        replace(MEASURED, newcomer=weight, luck=luck)
        for luck in LUCKS
        for weight in sorted(WEIGHTS, reverse=True)
    ]
    return min(tried, key=wrong) if free else FAIR


def _of_runs(one: Repeated) -> str:
    count = len(one.runs)
    return f"of {count} runs that differ by {one.spread_pct:.1f} %" if count > 1 else "of one run"


def _give(standard_error_pct: float) -> str:
    return f" ± {standard_error_pct:.1f} %" if standard_error_pct < math.inf else ""


@dataclass(frozen=True, slots=True)
class Predicted:
    """What was played, and each kind of its jobs in the simulator, by how links are shared there."""

    live: Repeated
    found: Mapping[str, tuple[Times, ...]]

    @property
    def errors_pct(self) -> dict[str, list[tuple[float, float]]]:
        return {name: errors(self.live.live, found) for name, found in self.found.items()}


def predicted(played: Iterable[Repeated], alone: Mapping[str, Alone]) -> list[Predicted]:
    return [
        Predicted(one, {name: averaged(one, alone, unfair) for name, unfair in SHARING.items()})
        for one in played
    ]


def beyond_open(known: Iterable[Predicted], which: int) -> tuple[int, int]:
    """How many errors of the means (0) or 99th percentiles (1) are larger than twice what the live runs leave
    open, and of how many."""
    pairs = [
        (abs(wrong[which]), left[which])
        for one in known
        for wrong, left in zip(one.errors_pct[AS_MEASURED], one.live.open_pct, strict=True)
        if left[which] < math.inf
    ]
    return sum(wrong > 2 * left for wrong, left in pairs), len(pairs)


def _compared(known: Sequence[Predicted]) -> Iterator[Figure]:
    means: dict[str, list[float]] = {name: [] for name in SHARING}
    tails: dict[str, list[float]] = {name: [] for name in SHARING}
    for one in known:
        told = []
        for name, wrong in one.errors_pct.items():
            means[name] += [abs(mean) for mean, _ in wrong]
            tails[name] += [abs(tail) for _, tail in wrong]
            shown = ", ".join(f"{f.mean_ms:.1f} ({m:+.1f} %, p99 {t:+.1f} %)"
                              for f, (m, t) in zip(one.found[name], wrong, strict=True))  # fmt: skip
            told.append(f"simulated, sharing {name}: {shown}")
        live = ", ".join(
            f"{t.mean_ms:.1f}{_give(mean)} (p99 {t.p99_ms:.1f}{_give(tail)})"
            for t, (mean, tail) in zip(one.live.live, one.live.open_pct, strict=True)
        )
        yield Figure(
            f"{one.live.scenario.name}: worst mean",
            max(abs(mean) for mean, _ in one.errors_pct[AS_MEASURED]),
            "%",
            f"live {live} ms, {_of_runs(one.live)}, jitter {100 * one.live.jitter:.2f} %, exchanges "
            f"{one.live.late_ms:.1f} ms late; {'; '.join(told)}",
        )
    for what, table in (("mean", means), ("99th percentile", tails)):
        for name, found in table.items():
            measured = name == AS_MEASURED
            about = f"error of the {what}, sharing {name}"
            yield Figure(f"{about}, median", statistics.median(found), "%",
                         target=MEDIAN_PCT if measured else None)  # fmt: skip
            yield Figure(f"{about}, the worst", max(found), "%", target=WORST_PCT if measured else None)
    for which, what in enumerate(("mean", "99th percentile")):
        beyond, of = beyond_open(known, which)
        yield Figure(
            f"errors of the {what} beyond two standard errors", beyond, "",
            f"of {of} of jobs that were played several times, sharing {AS_MEASURED}; were the simulation "
            f"right, about {0.05 * of:.0f} by chance",
        )  # fmt: skip


def _calibration(played: Sequence[Repeated], alone: Mapping[str, Alone]) -> Figure:
    profiles = "; ".join(
        f"{name} {known.period_us / 1000:.1f} ms, {known.comm_us / 1000:.1f} of them communicating"
        for name, known in ((name, one.profile) for name, one in alone.items())
    )
    load, best = os.getloadavg()[0], calibrated(played, alone)
    return Figure(
        "a newcomer's weight that fits best here", best.newcomer, "",
        f"with a luck of {best.luck:g}; of {', '.join(map(str, WEIGHTS))} and {', '.join(map(str, LUCKS))}; "
        f"load {load:.1f}; alone: {profiles}",
    )  # fmt: skip


def table(known: Iterable[Predicted]) -> Iterator[str]:
    """For docs/simulator.md."""
    yield (
        "| scenario | live: mean, 99th percentile, ms | runs | "
        + " | ".join(f"sharing {name}: mean, 99th percentile" for name in SHARING)
        + " |"
    )
    yield "|" + "---|" * (3 + len(SHARING))
    for one in known:
        live = "; ".join(
            f"{t.mean_ms:.1f}{_give(mean)}, {t.p99_ms:.1f}{_give(tail)}"
            for t, (mean, tail) in zip(one.live.live, one.live.open_pct, strict=True)
        )
        wrong = (
            "; ".join(f"{mean:+.1f}, {tail:+.1f} %" for mean, tail in each)
            for each in one.errors_pct.values()
        )
        cells = (one.live.scenario.name, live, str(len(one.live.runs)), *wrong)
        yield "| " + " | ".join(cells) + " |"


def main(page: Path) -> None:
    """Show the figures, and write their table into the page."""
    played, alone = play(Settings())
    known = predicted(played, alone)
    for one in (*_compared(known), _calibration(played, alone)):
        print("\n".join(one.lines()))
    lines = "\n".join(("", *table(known), "", ""))
    page.write_text(section.renewed(page.read_text(encoding="utf-8"), "fidelity", lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
