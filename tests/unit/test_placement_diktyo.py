"""diktyo against worked cases: what it sees of the network, and what it does not."""

from itertools import islice

from rm.core.registry import load
from tests.builders import asked, full_mesh, host, job, linkstats, placed, profile, snapshot

NEAR, FAR = linkstats(delay_ms=0.1), linkstats(delay_ms=5)


def chosen(one, snap, count=1):
    found = islice(load("placement", "diktyo").candidates(asked(one), snap).candidates, count)
    return [c.placement.hosts for c in found]


def cluster(**bad):
    hosts = [host(n, cpus=4, gpus=2) for n in "abc"]
    return snapshot(*hosts, net=full_mesh("abc", NEAR, **bad))


def test_tasks_stay_together_where_they_may():
    assert chosen(job(1, ntasks=2, gpus_per_task=1), cluster()) == [("a",)]


def test_later_tasks_avoid_the_host_of_high_latency():
    one = job(1, ntasks=2, tasks_per_host=1, gpus_per_task=1)
    assert chosen(one, cluster(b=FAR)) == [("a", "c")]


def test_the_first_task_does_not():
    """Metronome Sec. IV-B1: it "fails to detect the dependencies of the job's first pod"."""
    one = job(1, ntasks=2, tasks_per_host=1, gpus_per_task=1)
    assert chosen(one, cluster(a=FAR)) == [("a", "b")]


def test_it_does_not_know_when_links_are_in_use():
    loud = profile(200, (0, 180, 1_000))
    one = job(1, ntasks=2, tasks_per_host=1, gpus_per_task=1, traffic=loud)
    snap = snapshot(
        *(host(n, cpus=4, gpus=2) for n in "abcd"),
        net=full_mesh("abcd", NEAR, d=FAR),
        placed=[placed(9, "a", "b", traffic=loud)],
    )
    assert chosen(one, snap) == [("a", "b")]


def test_equal_costs_go_to_the_least_loaded_host():
    hosts = [host(n, cpus=4, gpus=2) for n in "abc"]
    snap = snapshot(*hosts, net=full_mesh("abc", NEAR))
    busy = dict(snap.free)
    busy["a"] = type(busy["a"])(1, busy["a"].mem_bytes, (1,))
    snap = snapshot(*hosts, net=full_mesh("abc", NEAR), free=busy)
    assert chosen(job(1, ntasks=2, tasks_per_host=1, gpus_per_task=1), snap) == [("b", "c")]
