"""Measured pairs as arrays say what the network view says pair by pair."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.core.model.network.links import LinkStats, NetworkView, bandwidth_confidence, confidence
from rm.policies.placement.steps.measured import Measured, Readings
from rm.units import MINUTE_US

NOW_US = 1_700_000_000_000_000
HOSTS = ("h0", "h1", "h2", "h3")
KNOWN = (*HOSTS[:3], None)  # nothing counts that touches h3

times = st.integers(NOW_US - 500 * MINUTE_US, NOW_US + MINUTE_US)
every = st.sampled_from((0, MINUTE_US, 30 * MINUTE_US))
stats = st.builds(
    LinkStats,
    loss_pct=st.none() | st.floats(0, 100),
    delay_us=st.none() | st.integers(0, 10**7),
    bandwidth_bps=st.none() | st.integers(0, 4 * 10**11),
    measured_at_us=times,
    failures=st.integers(0, 70),
    fresh_us=every,
    bandwidth_at_us=st.just(0) | times,
    bandwidth_fresh_us=every,
)
networks = st.dictionaries(st.sampled_from(list(permutations(HOSTS, 2))), stats)


def measured(pairs: dict[tuple[str, str], LinkStats], as_of_us: int) -> Measured:
    readings = Readings()
    readings.follow(pairs)
    return readings.between(KNOWN, as_of_us)


@given(networks)
def test_arrays_hold_the_worse_direction_and_its_confidence(pairs: dict[tuple[str, str], LinkStats]) -> None:
    view = NetworkView(pairs)
    found = measured(pairs, NOW_US)
    rows = {
        (HOSTS[a], HOSTS[b]): row
        for a, b, row in zip(found.first, found.second, found.values.tolist(), strict=True)
    }
    assert rows.keys() == {min(pair, pair[::-1]) for pair in pairs if "h3" not in pair}
    for (a, b), row in rows.items():
        worst = view.worst(a, b)
        assert worst is not None
        told = (worst.loss_pct, worst.delay_us, worst.bandwidth_bps, worst.failures)
        assert row[:4] == pytest.approx([float("nan") if x is None else x for x in told], nan_ok=True)
        assert row[4:] == pytest.approx([confidence(worst, NOW_US), bandwidth_confidence(worst, NOW_US)])


@given(networks)
def test_no_confidence_sinks_by_age_before_the_time_that_is_named(
    pairs: dict[tuple[str, str], LinkStats],
) -> None:
    begins_us = measured(pairs, NOW_US).ages_from_us
    later_us = 2 * NOW_US if begins_us is None else begins_us
    sure = [measured(pairs, now_us).values[:, 4:].tolist() for now_us in (0, later_us)]
    assert sure[0] == sure[1]


@given(stats.filter(lambda s: s.loss_pct is not None and s.fresh_us > 0 and s.bandwidth_bps is None))
def test_confidence_sinks_from_then_on(one: LinkStats) -> None:
    pairs = {("h0", "h1"): one}
    begins_us = measured(pairs, NOW_US).ages_from_us
    assert begins_us is not None
    then, later = (measured(pairs, t).values[0, 4] for t in (begins_us, begins_us + MINUTE_US))
    assert later < then
