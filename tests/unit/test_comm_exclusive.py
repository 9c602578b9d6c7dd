"""Exclusive use of links: jobs wait for links of their own, or for bandwidth that is left."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.model.network.alignment import NOTHING_TO_ALIGN
from rm.core.model.network.fabric import Fabric
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import Snapshot
from rm.core.ports import admits
from rm.core.registry import load
from rm.core.scheduling.blocked import Blocked
from rm.core.scheduling.engine import Policies, Tuning, decide
from rm.errors import ConfigError
from rm.policies.comm.exclusive import Exclusive, ExclusiveOptions
from tests.builders import MBPS, host, job, placed, profile, snapshot
from tests.examples import examples

HALF = profile(200, (0, 60, 500))
MOST = profile(200, (0, 60, 600))
CLUSTER = snapshot(*(host(n, nic_mbps=1_000) for n in "abcd"))


def start(
    snap: Snapshot, share: str, traffic: object = HALF, placement: str = "first-fit"
) -> tuple[str, ...] | Reason | None:
    chosen = Policies(
        load("queue", "fifo"), load("placement", placement), load("comm", "exclusive", {"share": share})
    )
    blocked = Blocked()
    one = job(1, ntasks=2, tasks_per_host=1, cpus_per_task=2, traffic=traffic)
    result = decide([one], snap, chosen, Tuning(top_k=1), blocked)
    return result.decisions[0].placement.hosts if result.decisions else blocked.reason_of(one)


def test_a_job_waits_until_it_has_links_of_its_own() -> None:
    everywhere = [placed(8, "a", "c", traffic=HALF), placed(9, "b", "d", traffic=HALF)]
    reason = start(snapshot(*CLUSTER.hosts.values(), placed=everywhere), "never")
    assert isinstance(reason, Reason)
    assert reason.code is ReasonCode.BANDWIDTH
    assert "link a" in reason.message
    assert dict(reason.numbers)["jobs"] == 2
    assert start(snapshot(*CLUSTER.hosts.values(), placed=everywhere[1:]), "never") == ("a", "c")
    assert start(snapshot(*CLUSTER.hosts.values()), "never") == ("a", "b")


def test_bandwidth_is_shared_as_long_as_the_peaks_fit() -> None:
    there = [placed(8, "a", "c", traffic=HALF), placed(9, "b", "d", traffic=HALF)]
    snap = snapshot(*CLUSTER.hosts.values(), placed=there)
    assert start(snap, "bandwidth") == ("a", "b")
    reason = start(snap, "bandwidth", MOST)
    assert isinstance(reason, Reason)
    assert dict(reason.numbers) == {"jobs": 2, "peaks_bps": 1_100 * MBPS, "capacity_bps": 1_000 * MBPS}


def test_jobs_without_traffic_share_what_they_like() -> None:
    quiet = [placed(i, "a", "b", low_comm=True) for i in (1, 2)]
    assert Exclusive().align([*quiet, placed(3, "a", "b", traffic=HALF)], CLUSTER) == NOTHING_TO_ALIGN


def test_an_uplink_is_a_link() -> None:
    fabric = Fabric({"a": "L1", "b": "L1", "c": "L2", "d": "L2"}, spines=1, uplink_bps=10**9)
    jobs = [placed(1, "a", "c", traffic=HALF), placed(2, "b", "d", traffic=HALF)]
    crossing = replace(CLUSTER, fabric=fabric)
    assert Exclusive().align(jobs, CLUSTER) == NOTHING_TO_ALIGN
    assert [link.link for link in Exclusive().align(jobs, crossing).links] == ["leaf:L1", "leaf:L2"]
    shared = Exclusive(ExclusiveOptions(share="bandwidth"))
    assert shared.align(jobs, crossing) == NOTHING_TO_ALIGN


def test_it_admits_no_single_transfers() -> None:
    """One transfer at a time is srsf-n with n = 1."""
    assert not admits(Exclusive())
    with pytest.raises(ConfigError):
        ExclusiveOptions(share="often")


@settings(max_examples=examples(60))
@given(
    pairs=st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")), max_size=4),
    full=st.sets(st.sampled_from("abcdef")),
    placement=st.sampled_from(("first-fit", "zone", "metronome", "cassini")),
)
def test_a_job_starts_exactly_when_two_hosts_with_room_have_their_links_to_themselves(
    pairs: list[tuple[str, str]], full: set[str], placement: str
) -> None:
    running = [placed(i, *pair, traffic=HALF) for i, pair in enumerate(pairs, 10) if pair[0] != pair[1]]
    snap = snapshot(*(host(n) for n in "abcdef"), placed=running)
    snap = replace(snap, free={n: replace(f, cpus=0) if n in full else f for n, f in snap.free.items()})
    idle = set("abcdef") - full - {h for p in running for h in p.placement.hosts}
    found = start(snap, "never", placement=placement)
    assert isinstance(found, tuple) == (len(idle) >= 2)
    assert isinstance(found, Reason) or set(found or ()) <= idle
