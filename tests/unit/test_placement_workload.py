"""LWF-κ, LS, FF and the other policies that know no network: what they choose, and by what."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.jobs.free import all_of, take
from rm.core.jobs.state import placed_view
from rm.core.model.host import Gpu
from rm.core.model.job import Job, JobState, Placement, Task, TaskPlacement
from rm.core.model.progress import Progress, gpus_of, remaining_us
from rm.core.model.snapshot import Snapshot, TrackedDict
from rm.core.registry import load
from rm.errors import ConfigError
from rm.policies.placement.steps.capacity import LatestCapacities
from rm.policies.placement.steps.workload import LatestWorkload
from tests.builders import GIB, asked, host, job, snapshot
from tests.examples import examples

SETTINGS = settings(max_examples=examples(60))
SECOND_US = 1_000_000
SHARED = 2 * GIB  # of each GPU's 16


def running(id: int, *gpus: tuple[str, int], left_s: float = 0, mem: int = SHARED) -> Job:
    """A job with one task on each of these GPUs that declared to take so long, just started."""
    tasks = tuple(Task(rank, name, (gpu,)) for rank, (name, gpu) in enumerate(gpus))
    one = job(
        id,
        ntasks=len(tasks),
        gpus_per_task=1,
        gpu_mem_bytes=mem,
        expected_us=round(left_s * SECOND_US) or None,
        tasks=tasks,
        state=JobState.RUNNING,
    )
    return replace(one, started_us=0)


def cluster(*jobs: Job, hosts: int = 2, gpus: int = 2, now_us: int = 0) -> Snapshot:
    """Hosts a, b, ... with so many GPUs, and these jobs running there."""
    names = "abcdefgh"[:hosts]
    snap = snapshot(*(host(n, cpus=64, gpus=gpus) for n in names), now_us=now_us, jobs=jobs)
    free, placed = TrackedDict(snap.free), TrackedDict(snap.placed)
    for one in jobs:
        placement = one.placement
        assert placement is not None
        for name in placement.hosts:
            free[name] = take(free[name], one.spec, placement.on(name))
        placed[one.id] = placed_view(one, placement, one.id)
    return replace(snap, free=free, placed=placed)


def chosen(policy: str, one: Job, snap: Snapshot, **options: object) -> list[tuple[str, int]]:
    """The GPUs of the best placement, in the order of the ranks."""
    best = next(load("placement", policy, options).candidates(asked(one), snap).candidates)
    return [(t.host, g) for t in best.placement.tasks for g in t.gpus]


def asking(gpus: int, **fields: object) -> Job:
    return job(99, ntasks=gpus, gpus_per_task=1, **{"gpu_mem_bytes": SHARED} | fields)


# Workloads of 5 and 9 seconds on the GPUs of host a, of 6 and 6 on those of host b.
LOADED = cluster(
    running(1, ("a", 0), left_s=5),
    running(2, ("a", 1), left_s=9),
    running(3, ("b", 0), left_s=6),
    running(4, ("b", 1), left_s=6),
)
A0, A1, B0, B1 = ("a", 0), ("a", 1), ("b", 0), ("b", 1)


@pytest.mark.parametrize(
    ("policy", "kappa", "gpus", "expected"),
    [
        ("lwf", 1, 1, [A0]),
        ("lwf", 1, 2, [B0, B1]),  # b has 12 ahead of it, a 14
        ("lwf", 1, 3, [B0, B1, A0]),
        ("lwf", 2, 2, [A0, B0]),  # κ lets it scatter
        ("lwf", 0, 1, [B0]),
        ("list", None, 1, [A0]),
        ("list", None, 2, [A0, B0]),
        ("list", None, 3, [A0, B0, B1]),
        ("first-fit", None, 1, [A0]),
        ("first-fit", None, 2, [A0, A1]),
        ("first-fit", None, 3, [A0, A1, B0]),
    ],
)
def test_the_gpus_of_the_least_workload(policy, kappa, gpus, expected):
    options = {} if kappa is None else {"kappa": kappa}
    assert chosen(policy, asking(gpus), LOADED, **options) == expected


def test_the_workload_of_a_job_counts_on_each_of_its_gpus_times_their_number():
    both = running(1, A0, A1, left_s=4)  # 8 on each of its two GPUs
    alone = running(2, B0, left_s=7)
    assert chosen("list", asking(3), cluster(both, alone)) == [B0, B1, A0]
    assert chosen("list", asking(2), cluster(both, alone)) == [B0, B1]
    assert chosen("list", asking(1), cluster(both, alone)) == [B1]


def test_workload_shrinks_as_time_passes_and_as_reports_say():
    jobs = [
        running(1, A0, left_s=5),
        running(2, A1, left_s=50),
        running(3, B0, left_s=6),
        running(4, B1, left_s=60),
    ]
    later = cluster(*jobs, now_us=3 * SECOND_US)
    assert chosen("lwf", asking(1), later) == [A0]
    told = replace(later, progress={3: Progress(3, jobs[2].attempt, 3 * SECOND_US, SECOND_US)})
    assert chosen("lwf", asking(1), told) == [B0]
    stale = replace(later, progress={3: Progress(3, jobs[2].attempt - 1, 3 * SECOND_US, SECOND_US)})
    assert chosen("lwf", asking(1), stale) == [A0]


def test_a_job_of_which_nothing_is_known_counts_a_day_or_what_is_configured():
    unknown, short = running(1, A0), running(2, A1, left_s=3_600)
    snap = cluster(unknown, short, hosts=1)
    assert chosen("lwf", asking(1), snap) == [A1]
    assert chosen("lwf", asking(1), snap, unknown_us=60 * SECOND_US) == [A0]


def test_memory_or_an_exclusive_holder_makes_a_job_spill_on_to_the_next_host():
    full = running(1, B0, left_s=1, mem=15 * GIB)
    whole = running(2, ("c", 0), left_s=1, mem=0)
    snap = cluster(full, whole, running(3, A0, left_s=9), hosts=3)
    # b and c come before a, but only one GPU of each can be had
    assert chosen("lwf", asking(3), snap) == [B1, ("c", 1), A1]
    assert chosen("first-fit", asking(4), snap) == [A0, A1, B1, ("c", 1)]
    assert chosen("lwf", asking(2, gpu_mem_bytes=0), snap) == [B1, ("c", 1)]


def test_gpus_of_one_task_stay_together():
    two_each = job(99, ntasks=2, gpus_per_task=2, gpu_mem_bytes=SHARED)
    assert chosen("list", two_each, LOADED) == [B0, B1, A0, A1]
    assert chosen("list", replace(two_each, spec=replace(two_each.spec, ntasks=1)), LOADED) == [B0, B1]


def test_jobs_without_gpus_go_where_hosts_have_least_to_do():
    busy = replace(running(1, A0, left_s=5), spec=job(1, ntasks=1, expected_us=5 * SECOND_US).spec)
    busy = replace(busy, tasks=(Task(0, "a"),))
    snap = cluster(busy, gpus=0)
    for policy in ("lwf", "list"):
        best = next(load("placement", policy).candidates(asked(job(9)), snap).candidates)
        assert best.placement.hosts == ("b",)
    three = job(9, ntasks=3, expected_us=SECOND_US)  # 3 more on b with each task
    best = next(load("placement", "list").candidates(asked(three), snap).candidates)
    assert Counter(t.host for t in best.placement.tasks) == {"b": 2, "a": 1}


def test_lwf_refuses_options_that_mean_nothing():
    for options in ({"kappa": -1}, {"unknown_us": 0}):
        with pytest.raises(ConfigError, match="lwf cannot work"):
            load("placement", "lwf", options)
    with pytest.raises(ConfigError, match="seed"):
        load("placement", "random", {"seed": -1})


def test_consolidate_takes_the_tightest_host_and_else_the_fewest():
    snap = cluster(
        running(1, ("a", 0), mem=0), running(2, ("b", 0), ("b", 1), mem=0), running(3, ("c", 0), mem=0),
        hosts=4, gpus=4,
    )  # free GPUs: a 3, b 2, c 3, d 4  # fmt: skip
    expected = {
        1: {"b": 1},
        2: {"b": 2},
        3: {"a": 3},
        4: {"d": 4},
        6: {"d": 4, "b": 2},
        7: {"d": 4, "a": 3},
        10: {"d": 4, "a": 3, "c": 3},
    }
    for gpus, counts in expected.items():
        one = asking(gpus, gpu_mem_bytes=0)
        assert Counter(h for h, _ in chosen("consolidate", one, snap)) == counts


def test_consolidate_shares_the_gpu_that_is_fullest():
    snap = cluster(running(1, A1, mem=10 * GIB), hosts=1)
    assert chosen("consolidate", asking(1), snap) == [A1]
    assert chosen("consolidate", asking(1, gpu_mem_bytes=8 * GIB), snap) == [A0]


def test_least_loaded_spreads_by_what_is_taken():
    empty = cluster(hosts=3)
    assert [h for h, _ in chosen("least-loaded", asking(3, gpu_mem_bytes=0), empty)] == ["a", "b", "c"]
    half = cluster(running(1, A0, mem=0), running(2, B0), hosts=2)
    assert chosen("least-loaded", asking(1), half) == [B1]  # 2 of 16 GiB of b are taken, and all of a's first
    assert chosen("least-loaded", asking(3, gpu_mem_bytes=14 * GIB), half) == [B0, B1, A1]


def test_random_depends_on_the_seed_and_the_job_and_on_nothing_else():
    empty = cluster(hosts=4, gpus=4)
    one, other = asking(4), replace(asking(4), id=100)
    first = chosen("random", one, empty)
    assert chosen("random", one, cluster(hosts=4, gpus=4)) == first
    assert chosen("random", other, empty) != first or chosen("random", one, empty, seed=1) != first


def test_random_takes_every_slot_with_the_same_chance():
    snap = cluster(hosts=4, gpus=4)
    taken: Counter[tuple[str, int]] = Counter()
    policy = load("placement", "random")
    for id in range(2_000):
        one = replace(asking(4), id=id)
        best = next(policy.candidates(asked(one), snap).candidates)
        taken.update((t.host, g) for t in best.placement.tasks for g in t.gpus)
    assert len(taken) == 16
    assert all(440 < count < 560 for count in taken.values())  # 500 expected, deviation 19


def test_further_candidates_do_without_the_hosts_that_came_first():
    found = [
        c.placement.hosts
        for c in load("placement", "lwf").candidates(asked(asking(2)), cluster(hosts=3)).candidates
    ]
    assert found == [("a",), ("b",), ("c",)]


def test_the_bounds_on_hosts_hold_for_scattered_jobs_too():
    snap = cluster(hosts=4, gpus=2)
    for policy in ("list", "random", "least-loaded", "lwf", "consolidate", "first-fit"):
        one = asking(4, hosts_min=2, hosts_max=2)
        assert len({h for h, _ in chosen(policy, one, snap)}) == 2
        assert len({h for h, _ in chosen(policy, asking(4, hosts_min=4), snap)}) == 4


@SETTINGS
@given(data=st.data())
def test_the_workload_table_is_the_sum_over_the_jobs_whatever_it_was_shown_before(data):
    """Jobs begin, end, are heard of and requeued; each time the table equals a fresh count."""
    hosts = [host(n, cpus=64, gpus=3) for n in "abc"]
    latest, capacities = LatestWorkload(unknown_us=7 * SECOND_US), LatestCapacities()
    jobs: dict[int, Job] = {}
    progress: dict[int, Progress] = {}
    placed: dict[int, object] = {}
    now = 0
    for step in range(data.draw(st.integers(1, 8))):
        now += data.draw(st.integers(0, 3)) * SECOND_US
        for id in data.draw(st.lists(st.integers(1, 5), max_size=3)):
            what = data.draw(st.sampled_from(("begin", "begin", "end", "start", "tell")))
            if what == "begin":
                places = data.draw(
                    st.lists(st.tuples(st.sampled_from("abcx"), st.integers(0, 3)), min_size=1, max_size=4)
                )
                one = running(id, *places, left_s=data.draw(st.sampled_from((0, 4, 9))))
                gpus = data.draw(st.booleans())
                tasks = tuple(replace(t, gpus=t.gpus if gpus else ()) for t in one.tasks)
                jobs[id] = replace(one, attempt=step, started_us=None, tasks=tasks)
                placed[id] = placed_view(jobs[id], jobs[id].placement, id)
            elif id in jobs:
                if what == "end":
                    placed.pop(id, None)
                elif what == "start":
                    jobs[id] = replace(jobs[id], started_us=now)
                else:
                    left = data.draw(st.sampled_from((None, 2 * SECOND_US)))
                    progress[id] = Progress(
                        id, data.draw(st.sampled_from((jobs[id].attempt, 0))), SECOND_US, left
                    )
        snap = snapshot(*hosts, now_us=now, jobs=jobs.values())
        snap = replace(snap, placed=TrackedDict(placed), progress=progress)
        load = latest.under(snap, capacities.under(snap))
        by_gpu = {(h.name, g): 0 for h in hosts for g in range(3)}
        by_host = dict.fromkeys("abc", 0)
        for id in placed:
            left = remaining_us(jobs[id], progress.get(id), now)
            own = (7 * SECOND_US if left is None else left) * gpus_of(jobs[id])
            for at in {(t.host, g) for t in jobs[id].tasks for g in t.gpus}:  # tasks may share one
                if at in by_gpu:
                    by_gpu[at] += own
                    by_host[at[0]] += own
            for task in jobs[id].tasks:
                if not task.gpus and task.host in by_host:
                    by_host[task.host] += own
        assert [[by_gpu[h.name, g] for g in range(3)] for h in hosts] == load.gpus.tolist()
        assert list(by_host.values()) == load.hosts.tolist()


def test_gpus_may_have_any_numbers():
    odd = replace(host("a", gpus=0), gpus=(Gpu(3, "x", "A100", 16 * GIB), Gpu(7, "y", "A100", 16 * GIB)))
    busy = running(1, ("a", 3), left_s=9)
    snap = snapshot(odd, jobs=[busy], free={"a": take(all_of(odd), busy.spec, busy.placement.on("a"))})
    snap = replace(snap, placed={1: placed_view(busy, Placement((TaskPlacement(0, "a", (3,)),)), 1)})
    assert chosen("lwf", asking(1), snap) == [("a", 7)]
    assert chosen("first-fit", asking(1), snap) == [("a", 3)]
