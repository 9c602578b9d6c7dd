"""What Metronome's parts are worth, and its monitor's thresholds: Tables VII and VIII, Figs. 13 and 14."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rm.sim.papers._metronome.run import Outcome, run
from rm.sim.papers._metronome.schedulers import METRONOME, UNVERIFIED
from rm.sim.papers._metronome.snapshots import CONGESTED, snapshot
from rm.sim.papers._metronome.snapshots_compared import change_pct
from rm.sim.papers.frame.paper import Sample, Series
from rm.sim.statistics import reduction_pct

COMPACT = METRONOME.aligned(compact=True, stage3=False)  # phases follow one another without a cushion
UNWATCHED = METRONOME.aligned(regulation=False)
A_T = (1.05, 1.10, 1.15)
O_T = (3, 5)


def ablated(name: str, seed: int) -> Iterator[Sample]:
    """Tables VII and VIII and Fig. 13 of one snapshot."""
    members, congested = snapshot(name), name in CONGESTED
    full, compact, unwatched = (
        run(members, how, seed, congested=congested) for how in (METRONOME, COMPACT, UNWATCHED)
    )
    yield Sample("Table VII", name, "low, time", change_pct(full.low_us, compact.low_us))
    yield Sample("Table VII", name, "high, time", change_pct(full.high_us, compact.high_us))
    yield Sample("Table VII", name, "utilisation", change_pct(full.utilisation, compact.utilisation))
    yield Sample("Fig. 13a", name, "pauses for 1,000 iterations", full.readjusted)
    yield Sample("Fig. 13a", name, "more pauses without stage 3", compact.readjusted - full.readjusted)
    yield Sample("Table VIII", name, "utilisation", change_pct(full.utilisation, unwatched.utilisation))
    yield Sample(
        "Fig. 13b", name, "high, saved by monitoring", reduction_pct(unwatched.high_us, full.high_us)
    )
    yield Sample("Fig. 13b", name, "low, saved by monitoring", reduction_pct(unwatched.low_us, full.low_us))


def thresholds(name: str, seed: int) -> Iterator[Sample | Series]:
    """Fig. 14 of one snapshot: low jobs' time above the best setting's, and the readjustments."""
    members, congested = snapshot(name), name in CONGESTED
    found: dict[tuple[float, int], Outcome] = {}
    for slow in A_T:
        for overs in O_T:
            how = replace(METRONOME, controller=replace(UNVERIFIED, slow=slow, overs=overs))
            found[slow, overs] = run(members, how, seed, congested=congested)
    best = min(each.low_us for each in found.values())
    above = {setting: change_pct(best, each.low_us) for setting, each in found.items()}
    rest = max(value for (slow, _), value in above.items() if slow > A_T[0])
    yield Sample("Fig. 14a", name, "low above best, A_T = 105 %", max(above[A_T[0], o] for o in O_T))
    yield Sample("Fig. 14a", name, "low above best, A_T = 110 and 115 %", rest)
    paused = {slow: max(found[slow, o].readjusted for o in O_T) for slow in A_T}
    yield Sample(
        "Fig. 14b", name, "pauses for 1,000 iterations, A_T = 105 less 110 %", paused[1.05] - paused[1.10]
    )
    for overs in O_T:
        x = tuple(100 * slow for slow in A_T)
        yield Series("Fig. 14a", f"{name}, O_T = {overs}", x, tuple(above[slow, overs] for slow in A_T))
