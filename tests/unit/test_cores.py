"""Which processors of a host a job gets for itself."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent_process import AGENTS, Agent, agents, launch_request, until
from tests.stand_in_gpus import nvidia

sys.path.insert(0, str(AGENTS))
try:
    import rm_cores
    import rm_cpu_bind
    import rm_gpu_near
    import rm_srun_options
    from rm_cgroup import Hierarchy
    from rm_fence import Fences, checked_settings
finally:
    sys.path.remove(str(AGENTS))

Start = Callable[..., Agent]
SH = "#!/bin/sh\n"
LONG_US = 600_000_000
PINNED = {"cpus": "cores"}


@st.composite
def hosts(draw: st.DrawFn) -> tuple[Any, set[int]]:
    """A host of up to 8 processors on up to 2 nodes, and those that are held."""
    cpus = range(draw(st.integers(1, 8)))
    threads = draw(st.sampled_from((1, 2)))
    nodes = draw(st.sampled_from((1, 2)))
    core = {cpu: cpu // threads * threads for cpu in cpus}
    node = {cpu: core[cpu] // threads % nodes for cpu in cpus}
    return rm_cores.Where(cpus, core, node), draw(st.sets(st.sampled_from(list(cpus))))


@given(hosts(), st.integers(1, 8))
def test_a_job_gets_as_many_as_it_asks_for_or_none(host: tuple[Any, set[int]], count: int) -> None:
    where, held = host
    found = rm_cores.chosen(count, held, where)
    free = set(where.usable) - held
    if count > len(free):
        assert found is None
        return
    assert len(found) == len(set(found)) == count
    assert set(found) <= free


@given(hosts(), st.integers(1, 8))
def test_no_choice_is_on_fewer_nodes(host: tuple[Any, set[int]], count: int) -> None:
    """Against every set of processors that would do."""
    where, held = host
    found = rm_cores.chosen(count, held, where)
    if found is None:
        return

    def nodes(cpus: Any) -> int:
        return len({where.node[cpu] for cpu in cpus})

    free = [cpu for cpu in where.usable if cpu not in held]
    assert nodes(found) == min(nodes(others) for others in combinations(free, count))


@given(hosts(), st.integers(1, 8), st.sampled_from((0, 1)))
def test_the_node_of_the_gpus_is_used_up_first(host: tuple[Any, set[int]], count: int, near: int) -> None:
    where, held = host
    found = rm_cores.chosen(count, held, where, {near})
    if found is None:
        return
    there = [cpu for cpu in where.usable if cpu not in held and where.node[cpu] == near]
    assert sum(where.node[cpu] == near for cpu in found) == min(count, len(there))


def test_threads_of_a_core_stay_together() -> None:
    """As the kernel of a machine with two threads a core numbers them: 0 and 4 are one core."""
    where = rm_cores.Where(range(8), {cpu: cpu % 4 for cpu in range(8)})
    assert rm_cores.chosen(4, {1}, where) == [0, 4, 2, 6]
    assert rm_cores.chosen(1, {1}, where) == [5]  # no other core is split for it
    assert [rm_cores.share([0, 4, 2, 6], at, 2) for at in (0, 1)] == [[0, 4], [2, 6]]
    assert rm_cores.share([3], 1, 2) == [3]


def test_what_the_kernel_says(tmp_path: Path) -> None:
    for cpu in range(4):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 2},{cpu % 2 + 2}\n")
    for node, cpus in enumerate(("0,2", "1,3")):
        folder = tmp_path / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
    gpu = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    gpu.mkdir(parents=True)
    (gpu / "numa_node").write_text("1\n")
    where = rm_cores.found(str(tmp_path), {0, 1, 2, 3})
    assert (where.core, where.node) == ({0: 0, 1: 1, 2: 0, 3: 1}, {0: 0, 1: 1, 2: 0, 3: 1})
    assert rm_cores.node_of_bus("0000:3B:00.0", str(tmp_path)) == 1
    assert rm_cores.node_of_bus("0000:5e:00.0", str(tmp_path)) is None
    assert rm_cores.listed("0-2,8\n") == [0, 1, 2, 8]


def test_the_control_group_is_kept_to_them_where_it_can_be(tmp_path: Path) -> None:
    """On a stand-in tree of version 2, which this kernel may not have."""
    state = "/somewhere"
    for folder in (tmp_path, tmp_path / Hierarchy(state, str(tmp_path / "none")).parent):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.controllers").write_text("cpuset\n")
        (folder / "cgroup.subtree_control").write_text("cpuset\n")
    fences = Fences(Hierarchy(state, str(tmp_path)))
    settings = checked_settings({**PINNED, "login_limits": False, "gpus": False, "processes": 0})
    request = {"tasks": [{"gpus": []}], "mem_bytes": 0, "mem_bytes_per_task": 0, "cpus_per_task": 1,
               "cpus": 0, "fence": settings}  # fmt: skip
    fence = fences.of(request, None)
    assert fence.limits == [("cpuset", "cpuset.cpus", str(fence.cores[0]), True)]
    assert not fence.binds_tasks  # a single task needs nothing else


@pytest.fixture
def start() -> Iterator[Start]:
    with agents("/var/tmp") as starter:
        yield starter


SAYS = "grep Cpus_allowed_list /proc/self/status\necho said\n"
two = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two processors are needed for two jobs")


def allowed(agent: Agent, job: int, rank: int = 0) -> set[int]:
    """The processors that the task says that it may use."""
    until(lambda: "said" in agent.log(job, rank), f"job {job} said on which processors it runs")
    line = next(line for line in agent.log(job, rank).splitlines() if "Cpus_allowed_list" in line)
    return set(rm_cores.listed(line.partition(":")[2]))


def bound(agent: Agent, job: int, **more: Any) -> set[int]:
    """The processors of the first task of a job that stays."""
    reply = agent.launch(SH + SAYS + "exec sleep 600\n", job=job, **{"fence": PINNED, **more})
    assert reply["ok"], reply
    found = allowed(agent, job)
    assert found <= set(reply["result"]["cores"] or found)
    return found


def end(agent: Agent, job: int, tasks: int = 1) -> None:
    agent.call("stop", job=job, attempt=1, why="cancel", grace_us=0)
    for rank in range(tasks):
        agent.event("exit", job=job, rank=rank)


@two
def test_jobs_have_processors_of_their_own_as_long_as_they_run(start: Start) -> None:
    usable = os.sched_getaffinity(0)
    agent = start()
    rest = len(usable) - 1
    one = agent.launch(SH + SAYS + "exec sleep 600\n", job=1, fence=PINNED)["result"]["cores"]
    first, second = allowed(agent, 1), bound(agent, 2, cpus_per_task=rest)
    assert first == set(one)
    assert (len(first), len(second)) == (1, rest)
    assert first | second == usable
    agent.kill()
    agent = start()
    reply = agent.launch(SH + SAYS, job=3, fence=PINNED)
    assert "processors of its own: it asks for 1, and 0 are free" in reply["result"]["note"]
    assert allowed(agent, 3) == usable
    assert reply["result"]["cores"] == []
    refused = agent.launch(SH, job=4, fence={**PINNED, "unenforced": "refuse"})
    assert (refused["ok"], refused["code"]) == (False, "not-enforced")
    end(agent, 1)
    assert bound(agent, 5) == first
    end(agent, 2)
    end(agent, 5)


@two
def test_what_stands_still_for_others_lends_its_processors_also_when_the_agent_was_killed(
    start: Start,
) -> None:
    count = len(os.sched_getaffinity(0))
    agent = start()
    bound(agent, 1, cpus_per_task=count)
    agent.call("freeze", job=1, attempt=1, frozen=True, order=1, lends=True)
    agent.kill()
    agent = start()
    alone = {**PINNED, "unenforced": "refuse"}
    assert len(bound(agent, 2, cpus_per_task=count, fence=alone)) == count
    end(agent, 2)
    agent.call("freeze", job=1, attempt=1, frozen=False, order=2)
    agent.kill()
    agent = start()
    agent.call("freeze", job=1, attempt=1, frozen=True, order=1, lends=True)  # once more, too late
    refused = agent.launch(SH, job=3, fence=alone)
    assert (refused["ok"], refused["code"]) == (False, "not-enforced")
    end(agent, 1)


@two
def test_tasks_of_a_job_divide_its_processors(start: Start) -> None:
    agent = start()
    first = bound(agent, 1, tasks=[{"rank": rank, "gpus": [], "env": {}} for rank in (0, 1)])
    other = allowed(agent, 1, rank=1)
    assert (len(first), len(other)) == (1, 1)
    assert not first & other
    end(agent, 1, tasks=2)
    usable = os.sched_getaffinity(0)
    # --exclusive; refused, were some of them not free: a task that has none of its own runs on all, too
    assert bound(agent, 2, cpus=len(usable), fence={**PINNED, "unenforced": "refuse"}) == usable
    end(agent, 2)


@two
def test_the_elements_of_a_slice_hold_theirs_also_when_the_agent_was_killed(start: Start) -> None:
    agent = start()
    script = SH + SAYS + "exec sleep 600\n"
    first = launch_request(script, not_after_us=time.time_ns() // 1000 + LONG_US, fence=PINNED)
    follower = {"job": 2, "attempt": 1, "env": {}}
    assert agent.ask("slice", first=first, followers=[follower], within_us=LONG_US)["ok"]
    theirs = allowed(agent, 1)
    end(agent, 1)
    agent.kill()
    agent = start()
    assert allowed(agent, 2) == theirs
    assert not bound(agent, 3) & theirs
    end(agent, 2)
    end(agent, 3)


def test_tasks_of_a_step_are_bound_as_asked() -> None:
    def of(text: str, at: int, cores: Any = (0, 4, 1, 5), tasks: int = 2) -> tuple[list[int], str]:
        found: tuple[list[int], str] = rm_cpu_bind.chosen(
            rm_cpu_bind.asked_of(text, True), at, tasks, list(cores), set(range(8))
        )
        return found

    assert of("", 1) == of("none", 1) == of("verbose,none", 1) == ([0, 4, 1, 5], "")
    assert [of("verbose,cores", at)[0] for at in (0, 1)] == [[0, 4], [1, 5]]
    assert [of("rank", at)[0] for at in (1, 4)] == [[4], [0]]
    assert [of("map_cpu:5*2,0x0", at)[0] for at in range(4)] == [[5], [5], [0], [5]]
    assert [of("mask_cpu:0x30,3", at, ())[0] for at in (0, 1)] == [[4, 5], [0, 1]]
    assert of("threads", 1, ())[1].startswith("--cpu-bind=threads has no effect")
    with pytest.raises(ValueError, match="names processor 7, and the job has 0,1,4,5"):
        of("map_cpu:7", 0)


@pytest.mark.parametrize(
    "text",
    ["sockets", "map_cpu:", "map_cpu:f", "mask_cpu:0", "mask_cpu:x", "map_cpu:1*9999", "cores:2", "mask_cpu"],
)
def test_other_bindings_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--cpu-bind="):
        rm_cpu_bind.asked_of(text, True)


def test_steps_beside_others_do_not_divide_the_jobs_processors() -> None:
    for words in (["--exact"], ["--overlap"]):
        values, _ = rm_srun_options.parsed([*words, "--cpu-bind=cores", "true"], {}, print)
        with pytest.raises(rm_srun_options.Wrong, match="--exact or --overlap"):
            rm_srun_options.cpu_bind_of(values)
    values, _ = rm_srun_options.parsed(["true"], {"SLURM_CPU_BIND": "rank"}, print)
    assert rm_srun_options.cpu_bind_of(values)["how"] == "rank"


@two
def test_a_step_runs_on_the_jobs_processors(start: Start) -> None:
    agent = start()
    other = bound(agent, 2)
    agent.kill()
    agent = start()
    usable = os.sched_getaffinity(0)
    step = "srun -n1 %s grep Cpus_allowed_list /proc/self/status; echo $?\n"
    wrong = min(other)
    lines = step % "" + step % "--cpu-bind=cores,verbose" + step % f"--cpu-bind=map_cpu:{wrong}"
    host = {"host": "h1", "address": "10.0.0.1", "tasks": 1, "cpus": 1, "gpus": 0}
    request = {
        **launch_request("", 1), "script": None, "batch": "#!/bin/bash\nexec 2>&1\n" + lines, "place": 0,
        "allocation": [host], "env": {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "h1"}, "fence": PINNED,
        "cpus_per_task": len(usable) - 1,
    }  # fmt: skip
    assert agent.ask("launch", **request)["ok"]
    agent.event("exit", job=1)
    said = agent.log(1)
    masks = [set(rm_cores.listed(line.partition(":")[2])) for line in said.splitlines() if "allowed" in line]
    assert masks == [usable - other] * 2, said
    assert f"mask 0x{sum(1 << cpu for cpu in usable - other):x} set" in said
    assert f"--cpu-bind=map_cpu names processor {wrong}, and the job has" in said
    end(agent, 2)


def test_the_closest_gpus_are_those_of_a_tasks_numa_nodes(tmp_path: Path) -> None:
    nvidia(tmp_path, [0, 1, 2, 3])
    for node, cpus in enumerate(("0-1", "2-3", "4-5")):
        folder = tmp_path / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
    for index, node in enumerate((0, 0, 1, -1)):  # of the last one the kernel does not know
        gpu = tmp_path / f"sys/bus/pci/devices/0000:{0x1B + index:02x}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "numa_node").write_text(f"{node}\n")
    everything = ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    seen = rm_gpu_near.narrowed([everything] * 3, [{0}, {3}, {1, 2}], str(tmp_path))
    assert seen == [["GPU-0", "GPU-1", "GPU-3"], ["GPU-2", "GPU-3"], everything]
    assert rm_gpu_near.narrowed([["0", "2"], ["1"]], [{2}, {2}], str(tmp_path)) == [
        ["2"],
        ["1"],
    ]  # none is near
    alike = [*seen[:1] * 2, seen[1]]
    assert [rm_gpu_near.local_rank(alike, at) for at in range(3)] == [(0, 2), (1, 2), (0, 1)]
    shared = [["0"], ["0"], []]  # an index of 1 would be one of no GPU that the second task sees
    assert [rm_gpu_near.local_rank(shared, at) for at in range(3)] == [(0, 2), (0, 2), (0, 1)]
    assert [rm_gpu_near.local_rank([[], []], at) for at in range(2)] == [(0, 2), (1, 2)]
    assert rm_gpu_near.narrowed([["0"]], [{4}], str(tmp_path / "bare")) == [["0"]]  # no driver says anything
    assert rm_gpu_near.is_asked({"SLURM_GPU_BIND": "verbose,closest"})
    assert not rm_gpu_near.is_asked({"SLURM_GPU_BIND": "single:1"})
