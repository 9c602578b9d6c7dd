"""What a difference of periods does: Fig. 15, and the same for two jobs of nearly equal periods."""

from __future__ import annotations

from collections.abc import Iterator

from rm.sim.papers._metronome.run import run
from rm.sim.papers._metronome.schedulers import DEFAULT, METRONOME, OURS
from rm.sim.papers._metronome.snapshots import snapshot
from rm.sim.papers._metronome.snapshots_compared import change_pct
from rm.sim.papers.frame.paper import Sample, Series
from rm.sim.papers.frame.parameters import parameters
from rm.sim.statistics import reduction_pct

METRONOME_G_T_US = 5_000  # Sec. IV-D: up to here the results stay within 1 %


def injected(seed: int) -> Iterator[Sample | Series]:
    """Fig. 15: S3's low job gets idle time; what is left of the difference is averaged."""
    known = parameters("metronome")
    low, high = snapshot("S3")
    left_us: list[int] = known["left_us"]
    whole = 2 * high.period_us - low.period_us
    averaging = METRONOME.averaging(whole)
    results = {left: run((low.slower(whole - left), high), averaging, seed) for left in left_us}
    results[-1] = run((low, high), DEFAULT, seed)
    best, default = results[0], results[-1]
    for left in left_us[1:]:
        case, each = f"{left / 1000:g} ms left", results[left]
        if left <= METRONOME_G_T_US:
            yield Sample("Fig. 15", case, "high, longer than at 0 ms", change_pct(best.high_us, each.high_us))
            yield Sample("Fig. 15", case, "low, longer than at 0 ms", change_pct(best.low_us, each.low_us))
        else:
            saved = reduction_pct(default.high_us, each.high_us)
            yield Sample("Fig. 15", case, "high, shorter than Default", saved)
            yield Sample("Fig. 15", case, "low, longer than Default", change_pct(default.low_us, each.low_us))
    x = tuple(left / 1000 for left in left_us)
    for label, outcomes in (
        ("averaged", [results[left] for left in left_us]),
        ("Default", [default] * len(x)),
    ):
        high_pct = tuple(change_pct(best.high_us, o.high_us) for o in outcomes)
        low_pct = tuple(change_pct(best.low_us, o.low_us) for o in outcomes)
        yield Series("Fig. 15", f"high, {label}", x, high_pct)
        yield Series("Fig. 15", f"low, {label}", x, low_pct)


def nearly_equal(seed: int) -> Iterator[Sample | Series]:
    """S2 with other differences of the two periods, all within G_T: how much is saved of Default's time."""
    known = parameters("metronome")
    differences_us: list[int] = known["s2_differences_us"]
    saved: dict[str, list[float]] = {"Metronome": [], "ours": []}
    for difference in differences_us:
        low, high = snapshot("S2")
        members = low.slower(high.period_us - difference - low.period_us), high
        default = run(members, DEFAULT, seed)
        for who, how in (("Metronome", METRONOME), ("ours", OURS)):
            each = run(members, how, seed)
            saved[who].append(reduction_pct(default.high_us, each.high_us))
            case = f"S2, periods {difference / 1000:g} ms apart"
            yield Sample("Periods within G_T", case, f"{who}, high, saved of Default", saved[who][-1])
    for who, values in saved.items():
        x = tuple(d / 1000 for d in differences_us)
        yield Series("Periods within G_T", who, x, tuple(values))
