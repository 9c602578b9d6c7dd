"""Ada-SRSF's scenario: the workload is the paper's, the defect is what it is said to be."""

from collections import Counter

import pytest

from rm.policies.comm.srsf_n import SrsfN
from rm.sim.network.port import Transfer
from rm.sim.papers._ada_srsf.compat import AskedPenalty
from rm.sim.papers._ada_srsf.workload import jobs, simulate
from rm.sim.papers.ada_srsf import ADA, OURS, SRSF
from rm.sim.papers.frame.parameters import parameters


def test_the_workload_is_that_of_the_paper():
    made = jobs(seed=1, scale=100)
    assert Counter(job.spec.ntasks for job in made) == {1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}
    assert all(10 <= job.program.iterations <= 60 for job in made)
    assert all(0 <= job.arrival_us < 12_000_000 for job in made)
    assert jobs(seed=1, scale=100) == made != jobs(seed=2, scale=100)


def test_who_is_asked_sends_faster_only_while_somebody_waits():
    network = AskedPenalty(a_us=0, b_us_per_byte=1, eta_us_per_byte=0.25)
    network.begin(Transfer(1, 1, ("a", "b"), size_bytes=100), 0)
    network.waiting({7: ("b", "c"), 8: ("a", "d")}, 10)
    assert network.left_bytes(1, 20) == pytest.approx(100 - 10 - 3 * 10)
    network.waiting({7: ("c", "d")}, 20)
    assert network.next_us() == pytest.approx(20 + 60)


def test_what_is_left_of_a_transfer_changes_nothing_under_a_policy_that_does_not_look_at_it(monkeypatch):
    told = simulate(2, "lwf", "srsf-n", comm_options={"n": 2})
    monkeypatch.setattr(SrsfN, "looks_at_left", True)
    assert simulate(2, "lwf", "srsf-n", comm_options={"n": 2}) == told


def test_the_gain_over_srsf1_comes_from_the_defect_and_ours_does_not():
    """The average over the seeds is the paper's page; a single seed shows the direction."""

    def average(policy, **more):
        name, options = policy
        return simulate(3, "lwf", name, comm_options=options, **more).mean_jct_us

    one = average(SRSF["SRSF(1)"])
    assert average(ADA, compat=True) < 0.9 * one < average(ADA)
    assert average(OURS) < one
    assert average(SRSF["SRSF(1)"], compat=True) == one


def test_parameters_of_the_contention_model():
    known = parameters("ada-srsf")
    assert known["b_ns"] / (2 * (known["b_ns"] + known["eta_ns"])) == pytest.approx(0.392, abs=5e-4)
