"""Each snapshot under every scheduler: Fig. 8, Tables V and VI, and S0 (Sec. IV-B1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rm.sim.papers._metronome.run import Outcome, run
from rm.sim.papers._metronome.schedulers import (
    CLASSES,
    DEFAULT,
    DIKTYO,
    GATES,
    IDEAL,
    METRONOME,
    OURS,
    Scheduler,
)
from rm.sim.papers._metronome.snapshots import CONGESTED, half_batch, snapshot
from rm.sim.papers.frame.paper import Sample
from rm.sim.papers.frame.parameters import parameters
from rm.sim.statistics import reduction_pct

WHO: Mapping[str, Scheduler] = {
    "Default": DEFAULT,
    "Diktyo": DIKTYO,
    "Ideal": IDEAL,
    "Metronome": METRONOME,
    "ours": OURS,
    "ours without classes": GATES,
    "classes alone": CLASSES,
}
AGAINST = {
    "Metronome": ("Default", "Diktyo", "Ideal"),
    "ours": ("Default", "Ideal"),
    "ours without classes": ("Default", "Ideal"),
    "classes alone": ("Default", "Ideal"),
}


def change_pct(before: float, after: float) -> float:
    """By how many percent of `before` `after` is larger."""
    return -reduction_pct(before, after)


def compared(name: str, seed: int) -> Iterator[Sample]:
    """Fig. 8, Table V and Table VI of one snapshot."""
    members, congested = snapshot(name), name in CONGESTED
    found = {who: run(members, how, seed, congested=congested) for who, how in WHO.items()}
    yield from _times(name, found)
    yield from _utilisation(name, found)
    longer = run(
        members, METRONOME, seed, congested=congested, span_s=parameters("metronome")["paper_span_s"]
    )
    metronome = found["Metronome"]
    yield Sample("Table VI", name, "low, half an hour", change_pct(metronome.low_us, longer.low_us))
    yield Sample("Table VI", name, "high, half an hour", change_pct(metronome.high_us, longer.high_us))


def _times(name: str, found: Mapping[str, Outcome]) -> Iterator[Sample]:
    for who in ("Metronome", "ours"):
        case = f"{name}, {who}"
        for other in AGAINST[who]:
            ours, theirs = found[who], found[other]
            if other == "Ideal":
                yield Sample("Fig. 8", case, "high, above Ideal", change_pct(theirs.high_us, ours.high_us))
                continue
            yield Sample(
                "Fig. 8", case, f"high, saved of {other}", reduction_pct(theirs.high_us, ours.high_us)
            )
            yield Sample("Fig. 8", case, f"low, saved of {other}", reduction_pct(theirs.low_us, ours.low_us))


def _utilisation(name: str, found: Mapping[str, Outcome]) -> Iterator[Sample]:
    for who, others in AGAINST.items():
        for other in others:
            gained = change_pct(found[other].utilisation, found[who].utilisation)
            yield Sample("Table V", f"{name}, {who}", f"against {other}", gained)
    for who in ("Default", "Ideal", "Metronome", "ours"):
        yield Sample("Table V", f"{name}, {who}", "Γ, eq. 5", 100 * found[who].utilisation)


def incompatible(seed: int) -> Iterator[Sample]:
    """S0: who keeps two jobs apart that cannot be interleaved."""
    for who in ("Default", "Diktyo", "Metronome", "ours"):
        yield Sample("Sec. IV-B1", f"S0, {who}", "shared links", run(snapshot("S0"), WHO[who], seed).shared)


def halved(seed: int) -> Iterator[Sample]:
    """Fig. 11: S1 with its batch and with half of it."""
    members = snapshot("S1")
    saved: dict[tuple[str, str], float] = {}
    for batch, jobs in (("whole", members), ("half", half_batch(members))):
        found = {who: run(jobs, WHO[who], seed) for who in ("Default", "Diktyo", "Metronome", "ours")}
        for who in ("Metronome", "ours"):
            for other in ("Default", "Diktyo"):
                saved[batch, f"{who}, saved of {other}"] = reduction_pct(
                    _mean(found[other]), _mean(found[who])
                )
    for (batch, metric), value in saved.items():
        yield Sample("Fig. 11", f"S1, {batch} batch", metric, value)
    for who in ("Metronome", "ours"):
        metric = f"{who}, saved of Default"
        more = saved["half", metric] - saved["whole", metric]
        yield Sample("Fig. 11", "S1, half less whole batch", metric, more)


def _mean(outcome: Outcome) -> float:
    """Over S1's three jobs, one of which is the high one."""
    return (outcome.high_us + 2 * outcome.low_us) / 3
