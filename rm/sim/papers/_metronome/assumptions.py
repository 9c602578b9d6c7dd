"""How much the results depend on what the paper does not print: the phases' lengths, and the jitter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rm.sim.papers._metronome.run import run
from rm.sim.papers._metronome.schedulers import DEFAULT, METRONOME, OURS
from rm.sim.papers._metronome.snapshots import Member, snapshot
from rm.sim.papers._metronome.snapshots_compared import change_pct
from rm.sim.papers.frame.paper import Sample, Series
from rm.sim.papers.frame.parameters import parameters

NAMES = ("S1", "S2", "S3")


def swept(seed: int) -> Iterator[Sample | Series]:
    """Utilisation gained over Default by `fill` and by `jitter`, the other as stated; and where sharing is
    not fair, but as measured on real links."""
    known = parameters("metronome")
    for name in NAMES:
        fills: list[float] = known["fills"]
        gained = [_gained(snapshot(name, fill), seed, known["jitter"]) for fill in fills]
        yield from _told(name, "fill", fills, gained)
        jitters: list[float] = known["jitters"]
        gained = [_gained(snapshot(name), seed, jitter) for jitter in jitters]
        yield from _told(name, "jitter", jitters, gained)
        newcomer: float = known["newcomer"]
        both = _gained(snapshot(name), seed, known["jitter"], newcomer)
        for who, gain in zip(("Metronome", "ours"), both, strict=True):
            yield Sample("Assumptions", f"{name}, newcomers at {newcomer:g}", f"{who}, utilisation", gain)


def _gained(
    members: Sequence[Member], seed: int, jitter: float, newcomer: float = 1.0
) -> tuple[float, float]:
    """By Metronome and by ours, percent."""
    default, theirs, ours = (
        run(members, how, seed, jitter=jitter, newcomer=newcomer).utilisation
        for how in (DEFAULT, METRONOME, OURS)
    )
    return change_pct(default, theirs), change_pct(default, ours)


def _told(
    name: str, what: str, values: Sequence[float], gained: Sequence[tuple[float, float]]
) -> Iterator[Sample | Series]:
    """The curves, and for the table their end that is farthest from what was assumed."""
    far = max(range(len(values)), key=lambda i: abs(values[i] - parameters("metronome")[what]))
    for i, who in enumerate(("Metronome", "ours")):
        y = tuple(each[i] for each in gained)
        yield Series("Assumptions", f"{name}, {what}, {who}", tuple(values), y)
        yield Sample("Assumptions", f"{name}, {what} {100 * values[far]:g} %", f"{who}, utilisation", y[far])
