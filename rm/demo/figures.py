"""From iterations and byte counters to the figures of the table and of the JSON file. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any

from rm.api.reasons import Verdict, Why
from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.demo import scenario
from rm.demo.scenario import Training
from rm.demo.training import Iteration, JobRun
from rm.policies.interleave.answer import answer, thresholds_for
from rm.policies.interleave.problem import problem_from


@dataclass(frozen=True, slots=True)
class Run:
    """The jobs of one run, and the span that is looked at: all of them run, and the start is left out."""

    mode: str
    jobs: tuple[JobRun, ...]
    begin_us: int
    end_us: int
    mbps: Mapping[str, float] = field(default_factory=dict)  # what each host sent, over the span

    def within(self, job: JobRun) -> list[Iteration]:
        return [i for i in job.iterations if i.start_us >= self.begin_us and i.end_us <= self.end_us]

    @property
    def start_offset_ms(self) -> float:
        """How long after the first job's first iteration the last job's began."""
        first = [job.iterations[0].start_us for job in self.jobs]
        return round((first[-1] - first[0]) / 1000, 1)


@dataclass(slots=True)
class Measured:
    """Everything that one demo measured."""

    repeats: int
    left_out_s: float
    hosts: tuple[str, ...] = ()
    runs: list[Run] = field(default_factory=list)
    verdicts: Sequence[Verdict] = ()  # why the pair runs where it runs
    apart: dict[str, Any] = field(default_factory=dict)
    shaping: str = ""  # how traffic was classified, or why it was not
    load: tuple[float, float] = (0.0, 0.0)  # of this machine, before and after

    def of(self, mode: str) -> list[Run]:
        return [run for run in self.runs if run.mode == mode]

    def iterations(self, mode: str, name: str) -> list[Iteration]:
        """The iterations that count, of all runs of a mode, of the job of this name."""
        return [i for run in self.of(mode) for job in run.jobs if job.training.name == name
                for i in run.within(job)]  # fmt: skip

    def job_runs(self, mode: str, name: str) -> list[JobRun]:
        return [job for run in self.of(mode) for job in run.jobs if job.training.name == name]

    def utilisation(self, mode: str, host: str, name: str = "") -> float | None:
        """Share of the link's capacity, over the mode's runs (of one job alone, when named)."""
        found = [
            run.mbps[host]
            for run in self.of(mode)
            if host in run.mbps and (not name or run.jobs[0].training.name == name)
        ]
        return round(mean(found) / scenario.LINK_MBPS, 3) if found else None

    def times_alone(self, mode: str, name: str) -> float | None:
        """Mean iteration time as a multiple of the job's alone."""
        here, alone = self.iterations(mode, name), self.iterations(scenario.ALONE, name)
        if not here or not alone:
            return None
        return mean(i.duration_us for i in here) / mean(i.duration_us for i in alone)


def span(jobs: Sequence[JobRun], left_out_s: float) -> tuple[int, int]:
    """From `left_out_s` after the last job's start until the first one's end; host clock."""
    begin = max(job.iterations[0].start_us for job in jobs) + round(1e6 * left_out_s)
    return begin, min(job.iterations[-1].end_us for job in jobs)


def hardly_together(jobs: Sequence[JobRun], left_out_s: float) -> str:
    """Why there is nothing to measure in `span`."""
    began = sorted(jobs, key=lambda job: job.iterations[0].start_us)
    first, last = began[0], began[-1]
    late_s = (last.iterations[0].start_us - first.iterations[0].start_us) / 1e6
    both_s = max(0, min(job.iterations[-1].end_us for job in jobs) - last.iterations[0].start_us) / 1e6
    late = (
        f"job {last.training.name} began its first iteration {late_s:.1f} s after job {first.training.name}"
    )
    return (
        f"All jobs ran together for {both_s:.1f} s, of which the first {left_out_s:g} s are left out: {late}."
    )


def statistics(iterations: Sequence[Iteration]) -> dict[str, float] | None:
    """Mean and nearest-rank percentiles of the durations, in milliseconds; None without any."""
    if not iterations:
        return None
    ordered = sorted(i.duration_us for i in iterations)

    def rank(percent: int) -> int:
        return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]

    found = (("mean", mean(ordered)), ("p90", rank(90)), ("p99", rank(99)))
    return {name: round(value / 1000, 2) for name, value in found}


def profile(iterations: Sequence[Iteration]) -> TrafficProfile:
    """The job's traffic as measured alone: it computes, then fills its link until the iteration ends.

    Medians: one hiccup of this machine is not the job's pattern.
    """
    period = round(median(i.duration_us for i in iterations))
    communicates = round(median(i.comm_us for i in iterations))
    return _computes_then_sends(period - communicates, communicates)


def scaled(known: TrafficProfile, of: Training, to: Training) -> TrafficProfile:
    """The profile of a job that was never measured: as fast on the link as the one that was."""
    communicates = known.comm_us * to.bytes // of.bytes
    return _computes_then_sends(round(1000 * to.compute_ms), communicates)


def _computes_then_sends(compute_us: int, comm_us: int) -> TrafficProfile:
    rate = scenario.LINK_MBPS * 1_000_000
    return TrafficProfile(compute_us + comm_us, (Phase(compute_us, comm_us, rate),))


def why_no_room(profiles: Mapping[str, TrafficProfile]) -> str:
    """Why no rotation can keep all of these jobs apart on one link, "" where that is not certain."""
    communicate_us = sum(found.comm_us for found in profiles.values())
    shortest_us = min(found.period_us for found in profiles.values())
    if communicate_us <= shortest_us:
        return ""
    return (
        f"Alone the jobs communicate {communicate_us / 1000:.0f} ms together, more than the "
        f"{shortest_us / 1000:.0f} ms of one iteration: their transfers waited for this machine."
    )


def report(measured: Measured) -> dict[str, Any]:
    """The JSON file's content."""
    return {
        "version": 1,
        "jobs": [_job(measured, training) for training in scenario.PAIR],
        "links": [_link(measured, host) for host in measured.hosts],
        "avoided_hosts": avoided(measured.verdicts),
        "kept_apart": measured.apart,
        "queue_packets": scenario.QUEUE_PACKETS,
        "congestion_control": scenario.CONGESTION_CONTROL,
        "repeats": measured.repeats,
        "starts_ms": {m.name: [r.start_offset_ms for r in measured.of(m.name)] for m in scenario.MODES},
        "left_out_s": measured.left_out_s,
        "shaping": measured.shaping,
        "load_average": list(measured.load),
    }


def _job(measured: Measured, training: Training) -> dict[str, Any]:
    name, managed = training.name, scenario.MANAGED.name
    found: dict[str, Any] = {"name": name, "priority": training.priority}
    for mode in (scenario.ALONE, *(m.name for m in scenario.MODES)):
        found[f"{mode}_ms"] = statistics(measured.iterations(mode, name))
    runs = measured.job_runs(managed, name)
    schedule = next((run.schedule for run in reversed(runs) if run.schedule), None)
    held = [i.paused_us for run in runs for i in run.iterations if i.paused_us]
    return {
        **found,
        "shift_ms": round(schedule.shift_us / 1000, 1) if schedule else None,
        "pauses": sum(run.pauses for run in runs),
        "waits": len(held),
        "waited_ms": round(sum(held) / 1000, 1),
        "injected_ms": round(schedule.inject_us / 1000, 2) if schedule else None,
        "iterations_measured": len(measured.iterations(managed, name)),
        "hosts": list(runs[-1].hosts) if runs else [],
    }


def _link(measured: Measured, host: str) -> dict[str, Any]:
    modes = {mode.name: measured.utilisation(mode.name, host) for mode in scenario.MODES}
    alone = {f"alone_{t.name}": measured.utilisation(scenario.ALONE, host, t.name) for t in scenario.PAIR}
    return {
        "name": host,
        "capacity_mbps": scenario.LINK_MBPS,
        "utilisation": {**modes, **alone},
        "score": score(measured, scenario.MANAGED.name, host),
    }


def score(measured: Measured, mode: str, host: str) -> float | None:
    """The compatibility score of the link in the last run of the mode."""
    for run in reversed(measured.of(mode)):
        for job in run.jobs:
            if host in job.links and (found := job.links[host].score) is not None:
                return round(float(found), 2)
    return None


def score_together(shape: TrafficProfile) -> float:
    """The compatibility score of two jobs of this profile on one link, rotated as well as can be."""
    phases = [
        {
            "offset_ms": phase.offset_us / 1000,
            "duration_ms": phase.duration_us / 1000,
            "bandwidth_mbps": phase.rate_bps / 1e6,
        }
        for phase in shape.phases
    ]
    jobs = [{"name": t.name, "period_ms": shape.period_us / 1000, "phases": phases} for t in scenario.HEAVY]
    problem = problem_from({"capacity_mbps": scenario.LINK_MBPS, "jobs": jobs})
    (link,) = answer(problem, thresholds_for(problem)).links
    return round(link.score, 1)


def why_not_apart(taken: Sequence[str], why: Why | None) -> str:
    """What kept the second job off the hosts that the first (on `taken`) had left free, as a sentence.

    `why`: the answer about the second job, with the decision as it was recorded.
    """
    verdicts = why.verdicts if why is not None else ()
    others = [verdict for verdict in verdicts if verdict.host not in taken]
    refused = [f"{one.host}: {one.refused.message}" for one in others if one.refused]
    choice = why.choice if why is not None else None
    if not others and (choice is None or not choice.passed_over_hosts):
        return "Placement saw no other host."
    if not refused:
        return (
            "The other hosts were free: at the rhythm that the first job had by then, the two fit together."
        )
    return f"Of the others placement said: {'; '.join(refused)}."


def avoided(verdicts: Sequence[Verdict]) -> list[dict[str, str]]:
    return [
        {"name": v.host, "reason": v.refused.message}
        for v in verdicts
        if v.refused and v.refused.code == "BadNetwork"
    ]
