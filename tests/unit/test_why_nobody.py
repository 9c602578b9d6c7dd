"""Why nobody is preempted for a job that may preempt others: each cause by its own words."""

from __future__ import annotations

from rm.core.jobs import events as ev
from rm.core.model.job import JobState
from rm.core.sharing.accounts import Accounts, Partition, Qos
from rm.core.sharing.qos import check_all
from tests import builders
from tests.unit.test_preempt_suspend import cpus, parted, tiers
from tests.unit.test_preemption import Cluster, S, qos


def nobody(cluster: Cluster, number: int) -> list[str]:
    return [one for one in cluster.why(number) if "preempted" in one or "suspended" in one]


def test_the_time_until_which_the_others_are_exempt_is_said_and_holds() -> None:
    cluster = Cluster(qos(exempt_s=60))
    low = cluster.submit()
    cluster.start(low)
    cluster.later(20)
    urgent = cluster.submit("urgent")
    assert nobody(cluster, urgent) == [
        f"the exempt time of job {low} ends at 1970-01-01 00:17:40 UTC: nobody is preempted before"
    ]
    cluster.now_us = 1_060 * S - 1
    cluster.step(ev.Tick())
    assert cluster.of(low) is JobState.RUNNING
    cluster.later(1)
    assert cluster.of(low) is JobState.COMPLETING


def test_who_would_only_stand_still_and_keep_gpus_is_named() -> None:
    cluster = parted(tiers("suspend"))
    low = cluster.submit(partition="batch", gpus=1)
    cluster.start(low)
    whole = cluster.submit(partition="debug", exclusive=True, **cpus(1))
    assert nobody(cluster, whole) == [
        f"job {low} would only be suspended for it, and keep memory and GPUs: nobody is preempted, since it "
        "would not fit"
    ]
    cluster.step(ev.AccountsSet(tiers("requeue"), "root"))
    cluster.later(2)
    assert cluster.of(low) is JobState.COMPLETING, "as it is said, the mode alone stood against it"


def test_others_that_hold_too_much_are_told_from_those_that_may_go() -> None:
    cluster = Cluster(qos(), hosts=2)
    stays, low = cluster.submit("normal"), cluster.submit()
    cluster.start(stays, low)
    wide = cluster.submit("urgent", hosts_min=2, ntasks=2)
    assert nobody(cluster, wide) == [
        "it would not fit without the one running job that it may preempt, either: nobody is preempted"
    ]


def test_where_none_of_those_that_run_may_go_that_is_said() -> None:
    cluster = Cluster(qos())
    cluster.start(cluster.submit("normal"))
    assert nobody(cluster, cluster.submit("urgent")) == ["none of the running jobs may be preempted for it"]
    assert nobody(cluster, cluster.submit("normal")) == [], "it preempts nobody in any case"


def test_a_limit_that_stands_against_its_hosts_then_is_said() -> None:
    made = Accounts(
        qos=(Qos("batch"), Qos("urgent", 10, preempts=("batch",), limits={"job.cpus": 8})),
    )
    check_all(made)
    cluster = Cluster(made)
    cluster.start(cluster.submit())
    whole = cluster.submit("urgent", gpus=0, exclusive=True)
    told = nobody(cluster, whole)
    assert told == ["where it would be placed if others were preempted, a limit stands against it"]


def test_whom_others_make_room_for_already_is_not_told_that_nobody_does() -> None:
    cluster = Cluster(qos())
    low = cluster.submit()
    cluster.start(low)
    urgent = cluster.submit("urgent")
    assert nobody(cluster, urgent) == [f"waits for the end of job {low}, preempted for it"]
    second = cluster.submit("urgent")
    assert nobody(cluster, second) == ["none of the running jobs may be preempted for it"], (
        "what goes is kept for the first"
    )


def test_of_several_partitions_the_time_is_that_of_the_one_that_helps() -> None:
    low = Partition("batch", preempt_mode="requeue", exempt_s=100)
    cluster = parted(Accounts(partitions=(low, Partition("debug", tier=10), Partition("free"))))
    number = cluster.submit(partition="batch", **cpus(16))
    cluster.start(number)
    both = cluster.submit(partition="free,debug", **cpus(16))
    assert nobody(cluster, both) == [
        f"the exempt time of job {number} ends at 1970-01-01 00:18:20 UTC: nobody is preempted before"
    ]
    host = builders.host("h9", cpus=16, partitions=("free",))
    cluster.step(ev.HostAdded(host), ev.HostUp("h9", "boot", "1"))
    assert cluster.of(both) is JobState.CONFIGURING


def test_whoever_is_next_to_be_preempted_is_named() -> None:
    """Its turn comes with the next pass: the last one met the other's exempt time."""
    cluster = Cluster(qos(exempt_s=60))
    low = cluster.submit()
    cluster.start(low)
    urgent = cluster.submit("urgent")
    cluster.now_us = 1_060 * S - 1
    cluster.step(ev.Tick())
    cluster.now_us += 1
    assert nobody(cluster, urgent) == [f"job {low} may be preempted for it, and is next"]
    cluster.later(1)
    assert cluster.of(low) is JobState.COMPLETING


def test_whom_it_would_delay_is_named_and_a_shorter_one_delays_nobody() -> None:
    cluster = Cluster(qos(), "backfill", hosts=2)
    stays = cluster.submit("normal", hosts_only=("h0",), time_limit_us=100 * S)
    low = cluster.submit(hosts_only=("h1",), time_limit_us=100 * S)
    cluster.start(stays, low)
    wide = cluster.submit("urgent", hosts_min=2, ntasks=2, priority=1, time_limit_us=100 * S)
    late = cluster.submit("urgent", time_limit_us=1_000 * S)
    said = f"it would delay job {wide}, which may preempt, too, and comes before it"
    assert cluster.why(late)[-1] == said
    cluster.later(2)
    assert cluster.of(low) is JobState.RUNNING
    cluster.submit("urgent", time_limit_us=50 * S)
    cluster.later(2)
    assert cluster.of(low) is JobState.COMPLETING
