"""Whether live figures of a paper's demo show its idea, and whether a busy machine is why they do not."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rm.core.model.asked.traffic import TrafficProfile
from rm.demo.training import Iteration, JobRun

BUSY_SHARE = 0.25  # of the processors' time: less is idle on a machine that has too much to do
SHOWN_SHARE = 0.5  # of the simulated gain, which shows it; or which waits for the machine may hide
LEAST_GAIN = 0.02  # simulated; a smaller one cannot be told from chance
LONGER_SHARE = 0.05  # of an iteration alone: live ones that take so much longer than simulated were hindered


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
class Conditions:
    """While the jobs of one way ran: the part of the processors' time that was idle, and for how long jobs
    waited for a processor, as a part of what an iteration takes alone."""

    way: str
    idle: float
    waited: float


def computing_waited(runs: Sequence[JobRun], alone: Mapping[str, TrafficProfile]) -> float:
    """By how much computing took longer than asked, as a part of an iteration alone: it is a sleep."""
    return statistics.fmean(
        (i.duration_us - i.comm_us - i.paused_us - 1000 * run.training.compute_ms)
        / alone[run.training.name].period_us
        for run in runs
        for i in run.iterations[1:]
    )


def exchange_waited(alone: Sequence[Iteration]) -> float:
    """By how much the exchanges of a job alone took longer than its fastest one, in the same measure."""
    took_us = [i.comm_us for i in alone[1:]]
    return (statistics.fmean(took_us) - min(took_us)) / statistics.fmean(i.duration_us for i in alone[1:])


def gain(rows: Sequence[Row], way: str, live: bool) -> float:
    """By which part of its time alone the slowest job is faster in this way than in the first."""

    def slowest(way: str) -> float:
        return max((r.live_ms if live else r.simulated_ms) / r.alone_ms for r in rows if r.way == way)

    return slowest(rows[0].way) - slowest(way)


def judged(rows: Sequence[Row], during: Sequence[Conditions]) -> str:
    """What one must know to believe the live figures or not, "" where they show what is simulated."""
    way = _least_shown(rows)
    expected, found = gain(rows, way, live=False), gain(rows, way, live=True)
    waited, idle = max(one.waited for one in during), min(one.idle for one in during)
    longer = statistics.fmean((row.live_ms - row.simulated_ms) / row.alone_ms for row in rows)
    gains = expected >= LEAST_GAIN
    shown = found >= SHOWN_SHARE * expected or not gains
    machine = (
        f"its processors were idle for {100 * idle:.0f} % of the time, and jobs waited for one for "
        f"{100 * waited:.1f} % of an iteration"
    )
    hidden = gains and waited >= SHOWN_SHARE * expected
    busy = idle < BUSY_SHARE or hidden
    if shown:
        if hidden:
            return (
                f"The live figures say little: this machine was busy, {machine}. Play it again when it has "
                "less to do."
            )
        if busy and longer >= LONGER_SHARE:
            return (
                f"Live iterations took {100 * longer:.0f} % of one alone longer than simulated: this machine "
                f"was busy, {machine}."
            )
        return ""
    told = (
        f"The live figures show less than half of what is simulated: in the way {way} the slowest job is "
        f"{_by(found)}, simulated {_by(expected)}."
    )
    if busy:
        return f"{told} This machine was busy: {machine}. Play it again when it has less to do."
    return (
        f"{told} That is not other work on this machine: {machine}. Jobs that nobody keeps apart may stay so "
        "by chance. Play it again."
    )


def _least_shown(rows: Sequence[Row]) -> str:
    """The way, but the first, that shows the least of its simulated gain."""

    def short(way: str) -> float:
        return SHOWN_SHARE * gain(rows, way, live=False) - gain(rows, way, live=True)

    ways = [*dict.fromkeys(row.way for row in rows)][1:]
    return max(
        (way for way in ways if gain(rows, way, live=False) >= LEAST_GAIN), key=short, default=ways[-1]
    )


def _by(share: float) -> str:
    return f"faster by {100 * share:.0f} %" if share >= 0 else f"slower by {-100 * share:.0f} %"
