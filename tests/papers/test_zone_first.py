"""The zone-first scenario: TCP, training, the choice of hosts and its cost; the paper's hosts."""

import math

import numpy as np
import pytest

from rm.core.model.network.links import NetworkView
from rm.sim.papers import zone_first
from rm.sim.papers._zone_first import selection, testbed
from rm.sim.papers._zone_first.tcp import throughput_bps
from rm.sim.papers._zone_first.testbed import Egress
from rm.sim.papers._zone_first.training import asynchronous_s, ring_s, trainings
from rm.sim.papers.frame.parameters import parameters
from rm.sim.papers.frame.run import run

RATE = 100e6


@pytest.fixture(scope="module")
def result():
    return run("rm.sim.papers.zone_first", seeds=3)


def test_the_named_hosts_are_chosen_and_the_impaired_are_not(result):
    for figure in (zone_first.SELECTION, zone_first.COST):
        rows = [row for row in result.rows if row.figure == figure]
        assert rows
        for row in rows:
            assert row.within, row
            assert row.std == 0


def test_proposed_hosts_do_not_feel_the_impairments(result):
    means = [row.mean for row in result.rows if row.metric == "proposed, longest over shortest"]
    assert means
    assert all(1 <= mean < 1.01 for mean in means)


def test_worst_case_is_never_faster_and_grows_with_each_impairment(result):
    worst_cases = {key: curves for key, curves in result.series.items() if key[1].endswith("worst case")}
    assert worst_cases
    for (figure, case), curves in worst_cases.items():
        proposed = result.series[figure, case.replace("worst case", "proposed")]
        for worst, best in zip(curves, proposed, strict=True):
            # the chosen hosts' slowest rate may lie a little below that of the drawn ones
            assert all(w > 0.93 * b for w, b in zip(worst.y, best.y, strict=True))
            down = figure == "Fig. 11"  # more bandwidth, less time
            assert list(worst.y) == sorted(worst.y, reverse=down)


def test_three_lost_workers_of_six_cost_asynchronous_training_at_most_half(result):
    cases = {key: curves for key, curves in result.series.items() if "asynchronous, worst case" in key[1]}
    assert cases
    for (figure, case), curves in cases.items():
        proposed = result.series[figure, case.replace("worst case", "proposed")]
        ratios = [w / b for a, p in zip(curves, proposed, strict=True) for w, b in zip(a.y, p.y, strict=True)]
        assert max(ratios) < 2.1  # 2, and the spread of the hosts' rates


def test_tcp_without_loss_carries_the_rate_and_with_it_less():
    assert throughput_bps(RATE, 0.0, 0.001) == RATE
    rates = [throughput_bps(RATE, loss, 0.001) for loss in (0.001, 0.01, 0.05, 0.1, 0.3, 0.5)]
    assert rates == sorted(rates, reverse=True)
    assert throughput_bps(RATE, 0.01, 0.5) < throughput_bps(RATE, 0.01, 0.05)
    assert throughput_bps(1e3, 0.01, 0.05) == 1e3


def test_tcp_of_few_losses_and_a_long_way_follows_mathis():
    """1/RTT · √(3/2bp): where time-outs hardly matter the formula is the square-root law."""
    loss, rtt = 1e-6, 1.0
    law = 8 * 1448 / (rtt * math.sqrt(2 * 2 * loss / 3))
    assert throughput_bps(1e12, loss, rtt) == pytest.approx(law, rel=0.01)


def test_ring_of_equal_hosts_takes_the_textbook_time():
    known, (cifar, _) = parameters("zone-first"), trainings()
    hosts = [Egress(RATE, RATE)] * 6
    step = cifar.bits / 6 / RATE + known["delay_s"]
    assert ring_s(cifar, hosts) == pytest.approx(cifar.batches / 6 * (cifar.compute_s + 10 * step))


def test_ring_is_as_slow_as_its_slowest_way_out():
    cifar, _ = trainings()
    one = [Egress(RATE, 40e6), *[Egress(RATE, RATE)] * 5]
    three = [Egress(RATE, 40e6), Egress(RATE, RATE)] * 3
    step = cifar.bits / 6 / 40e6
    least = cifar.batches / 6 * (cifar.compute_s + 10 * step)
    assert least <= ring_s(cifar, one) <= ring_s(cifar, three) < 1.01 * least


def test_ring_waits_for_delays_on_the_way_round():
    """Ten steps in turn pass five delayed links of six that alternate."""
    cifar, _ = trainings()
    alternate = [Egress(RATE, RATE, delay_s=0.5), Egress(RATE, RATE)] * 3
    more = ring_s(cifar, alternate) - ring_s(cifar, [Egress(RATE, RATE)] * 6)
    assert more == pytest.approx(cifar.batches / 6 * 5 * 0.5, rel=0.1)


def test_asynchronous_workers_add_up():
    cifar, _ = trainings()
    good, bad = Egress(RATE, RATE), Egress(RATE, 10e6)
    alone = [asynchronous_s(cifar, [host]) for host in (good, bad)]
    assert asynchronous_s(cifar, [good, bad]) == pytest.approx(1 / sum(1 / t for t in alone))


@pytest.mark.parametrize(("among", "need"), [(9, 6), (9, 1), (9, 9), (20, 4)])
def test_choice_from_the_master_scores_each_round_one_host_less(among, need):
    rng = np.random.default_rng(among)
    hosts = [str(n) for n in range(1, among + 1)]
    bed = testbed.draw(rng)
    pairs = {(a, b): testbed.measured(bed, a, b, rng) for a in [*hosts, "master"] for b in hosts if a != b}
    chosen, checks = selection.accumulating(hosts, NetworkView(pairs), "master", need)
    assert len(set(chosen)) == need
    assert checks == sum(among - i for i in range(need))


def test_measurements_tell_what_was_impaired():
    rng = np.random.default_rng(0)
    bed = testbed.impaired(
        testbed.draw(rng), {"33": {"loss": 0.1}, "34": {"delay_s": 0.01}, "35": {"rate_bps": 1e7}}
    )
    lossy, slow, narrow = (testbed.measured(bed, host, "28", rng) for host in testbed.IMPAIRED)
    assert lossy.loss_pct == pytest.approx(10, abs=5)
    assert slow.delay_us == pytest.approx(10_100)
    assert narrow.bandwidth_bps == pytest.approx(1e7, rel=0.05)
    back = testbed.measured(bed, "28", "35", rng)
    assert back.bandwidth_bps == pytest.approx(1e8, rel=0.15)
