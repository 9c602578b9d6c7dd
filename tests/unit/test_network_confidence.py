"""How far measurements are relied upon, and what that does to placement."""

from dataclasses import replace

import pytest

from rm.core.journal.starting_point import stats_from, stats_row
from rm.core.model.network.links import LinkStats, NetworkView, bandwidth_confidence, confidence
from rm.core.monitoring.history import Sample, complaint, learn
from rm.policies.placement.steps.network_score import NetworkWeights
from rm.policies.placement.steps.network_table import LatestNetworkTable, NetworkTable
from tests import builders

NOW_US = 10**15
MINUTE_US = 60_000_000
FRESH = builders.linkstats(measured_at_us=NOW_US, fresh_us=MINUTE_US)


def test_confidence_sinks_with_age_and_failures() -> None:
    assert confidence(FRESH, NOW_US) == 1.0
    assert confidence(FRESH, NOW_US + 2 * MINUTE_US) == 1.0  # one late test costs nothing
    assert confidence(FRESH, NOW_US + 32 * MINUTE_US) == pytest.approx(0.5)
    assert confidence(FRESH, NOW_US + 62 * MINUTE_US) == pytest.approx(0.25)
    assert confidence(replace(FRESH, failures=2), NOW_US) == 0.25
    assert confidence(replace(FRESH, fresh_us=0), NOW_US + 10**12) == 1.0  # was not to be measured again
    assert confidence(FRESH, NOW_US - 10**9) == 1.0  # the clock went back
    assert confidence(LinkStats(failures=1), NOW_US) == 0.0


def test_bandwidth_ages_by_itself() -> None:
    stats = replace(FRESH, bandwidth_at_us=NOW_US - 62 * MINUTE_US, bandwidth_fresh_us=MINUTE_US)
    assert confidence(stats, NOW_US) == 1.0
    assert bandwidth_confidence(stats, NOW_US) == pytest.approx(0.25)
    assert bandwidth_confidence(replace(stats, bandwidth_bps=None), NOW_US) == 0.0


def test_a_view_tells_age_and_confidence() -> None:
    view = NetworkView({("a", "b"): FRESH, ("b", "a"): LinkStats()}, NOW_US + 5)
    assert (view.age_us("a", "b"), view.confidence("a", "b")) == (5, 1.0)
    assert (view.age_us("b", "a"), view.confidence("b", "a")) == (None, 0.0)
    assert (view.age_us("a", "c"), view.confidence("a", "c")) == (None, 0.0)


def table(now_us: int = NOW_US, **odd: LinkStats) -> NetworkTable:
    hosts = [builders.host(n) for n in "abcd"]
    pairs = builders.full_mesh("abcd", FRESH, **odd)
    snap = replace(builders.snapshot(*hosts, net=pairs), now_us=now_us, network=NetworkView(pairs, now_us))
    return NetworkTable(snap, NetworkWeights())


def test_a_bad_pair_that_is_not_sure_counts_between_bad_and_never_measured() -> None:
    bad = replace(FRESH, loss_pct=8.0, delay_us=20_000)
    scores = {}
    for name, odd in (
        ("sure", bad),
        ("failed", replace(bad, failures=1)),
        ("stale", replace(bad, measured_at_us=NOW_US - 32 * MINUTE_US)),
        ("unmeasured", LinkStats()),
    ):
        scores[name] = float(table(a=odd).scores("z1", "z1")[0, 1])
    good = float(table().scores("z1", "z1")[0, 1])
    assert scores["sure"] < scores["failed"] < scores["unmeasured"] < good
    assert scores["sure"] < scores["stale"] < scores["unmeasured"]
    assert scores["unmeasured"] == pytest.approx(good - NetworkWeights().unmeasured_penalty)


def test_what_is_fresh_scores_as_if_it_had_no_age() -> None:
    hosts = [builders.host(n) for n in "abcd"]
    ageless = builders.full_mesh("abcd", builders.linkstats())
    old = NetworkTable(builders.snapshot(*hosts, net=ageless), NetworkWeights())
    new = table()
    assert (new.scores("z1", "z1") == old.scores("z1", "z1")).all()
    assert (new.delays_us() == old.delays_us()).all()


def test_a_kept_table_is_renewed_when_its_measurements_grow_old() -> None:
    hosts = [builders.host(n) for n in "abcd"]
    pairs = builders.full_mesh("abcd", FRESH, a=replace(FRESH, loss_pct=8.0))
    latest = LatestNetworkTable(NetworkWeights())

    def under(now_us: int) -> NetworkTable:
        snap = builders.snapshot(*hosts, net=pairs)
        return latest.under(replace(snap, now_us=now_us, network=NetworkView(pairs, now_us)))

    first = under(NOW_US)
    assert under(NOW_US + 2 * MINUTE_US) is first
    assert under(NOW_US + 40 * MINUTE_US) is not first
    again = under(NOW_US + 90 * MINUTE_US)
    assert again.scores("z1", "z1")[0, 1] > first.scores("z1", "z1")[0, 1]
    assert under(NOW_US + 90 * MINUTE_US + 1) is again
    assert (under(NOW_US).scores("z1", "z1") == first.scores("z1", "z1")).all()  # a replay goes back


def test_a_measurement_in_the_journal_is_short_and_comes_back() -> None:
    stats = LinkStats(0.5, 90, 10**9, 3, NOW_US - 7, 0, MINUTE_US, NOW_US - 9, 3_600_000_000)
    assert stats_row(stats, NOW_US) == [0.5, 90, 10**9, 3, 7, 0, MINUTE_US, 9, 3_600_000_000]
    for one in (stats, FRESH, LinkStats(failures=2), LinkStats()):
        assert stats_from(stats_row(one, NOW_US), NOW_US) == one
    assert stats_row(replace(FRESH, fresh_us=0), NOW_US) == [0.0, 200, 10**9, None, 0]
    assert stats_from([0.5, 90, None, 3, 7, 1], NOW_US).failures == 1  # as an older rm wrote it


def test_learning() -> None:
    got = learn(None, Sample("a", "b", 5, "m", {"loss_pct": 0.0, "delay_us": 90.4}), 60)
    assert got == LinkStats(loss_pct=0.0, delay_us=90, measured_at_us=5, fresh_us=60)
    got = learn(got, Sample("a", "b", 9, "n", {"bandwidth_bps": 1e9}), 3_600)
    assert (got.measured_at_us, got.bandwidth_at_us, got.bandwidth_fresh_us) == (5, 9, 3_600)
    failed = learn(got, Sample("a", "b", 11, "m", failed="no"), 60)
    assert failed == replace(got, failures=1)
    mended = learn(failed, Sample("a", "b", 12, "on-demand", {"loss_pct": 1.0}), None)
    assert mended == replace(got, loss_pct=1.0, delay_us=None, measured_at_us=12, failures=0)


@pytest.mark.parametrize(
    ("values", "at_us", "said"),
    [
        ({"loss_pct": 0.0, "delay_us": 5}, NOW_US, ""),
        ({"loss_pct": -0.1}, NOW_US, "impossible"),
        ({"loss_pct": 100.1}, NOW_US, "impossible"),
        ({"delay_us": float("nan")}, NOW_US, "not a number"),
        ({"delay_us": 10**400}, NOW_US, "impossible"),
        ({"delay_us": "5"}, NOW_US, "not a number"),
        ({"bandwidth_bps": True}, NOW_US, "not a number"),
        ({"speed": 5}, NOW_US, "does not know"),
        ({}, NOW_US + 10**9, "in the future"),
        ({}, -1, "before 1970"),
    ],
)
def test_absurd_samples_are_found(values: dict[str, float], at_us: int, said: str) -> None:
    found = complaint(Sample("a", "b", at_us, "m", values), NOW_US)
    assert (found == "") == (said == "")
    assert said in found
