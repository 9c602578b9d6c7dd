"""What each task finds in its environment, and the names of its files."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.core.jobs.actions import Launch
from rm.core.jobs.state import ClusterState
from rm.core.model.host import Nic
from rm.core.model.job import Job, JobState, Placement, Task, TaskPlacement
from rm.daemon.execution.environment import counted, expand, job_environment, task_environment
from rm.daemon.execution.launch import LaunchRules, launch_request, open_mode
from rm.protocol.attempts import Fence
from rm.units import parse_hosts
from tests import builders
from tests.agent_process import AGENTS

sys.path.insert(0, str(AGENTS))
import rm_job_program

HOSTS = {
    n: builders.host(n, zone, gpus=2, address=f"10.0.0.{i}", interface="eth1", partitions=("long",))
    for i, (n, zone) in enumerate((("gpu01", "north"), ("gpu02", "south")), 1)
}
PLACES = (("gpu01", (0,)), ("gpu01", (1,)), ("gpu02", (1,)))


def placed(places: Sequence[tuple[str, tuple[int, ...]]] = PLACES, **fields: Any) -> Job:
    tasks = tuple(Task(rank, host, gpus) for rank, (host, gpus) in enumerate(places))
    given = {
        "ntasks": len(places),
        "cpus_per_task": 2,
        "gpus_per_task": 1,
        "partition": "long",
        "chdir": "/home/alice",
    }
    job = builders.job(
        42,
        state=JobState.CONFIGURING,
        **{**given, "submit_host": "login", "name": "train", **fields},
        tasks=tasks,
    )
    return replace(job, attempt=1, history=((5, "submitted by alice"), (7_000_000, "placed on gpu01, gpu02")))


def of(job: Job, rank: int) -> dict[str, str]:
    assert job.placement is not None
    task = job.placement.tasks[rank]
    return job_environment(job, HOSTS, "/opt/rm/agents") | task_environment(
        job, task, HOSTS[task.host], HOSTS
    )


def test_every_task_finds_what_slurm_and_distributed_training_name() -> None:
    wanted = {
        "SLURM_JOB_ID": "42",
        "SLURM_JOB_NAME": "train",
        "SLURM_JOB_NODELIST": "gpu[01-02]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NTASKS": "3",
        "SLURM_PROCID": "2",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "1",
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_GPUS": "3",
        "SLURM_GPUS_ON_NODE": "1",
        "SLURM_SUBMIT_DIR": "/home/alice",
        "SLURM_SUBMIT_HOST": "login",
        "SLURM_JOB_PARTITION": "long",
        "MASTER_ADDR": "10.0.0.1",
        "WORLD_SIZE": "3",
        "RANK": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "SLURM_CLUSTER_NAME": "rm",
        "SLURM_JOB_CPUS_PER_NODE": "4,2",
        "SLURM_CPUS_ON_NODE": "2",
        "SLURM_TASKS_PER_NODE": "2,1",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "gpu[01-02]",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NUM_TASKS": "3",
        "SLURM_STEP_TASKS_PER_NODE": "2,1",
        "SLURM_GPUS_PER_TASK": "1",
        "SLURM_JOB_GPUS": "1",
        "SLURM_GTIDS": "2",
        "SLURM_DISTRIBUTION": "block",
        "SLURM_JOB_START_TIME": "7",
        "SLURM_TOPOLOGY_ADDR": "gpu02",
        "ENVIRONMENT": "BATCH",
        "NODE_RANK": "1",
        "NCCL_SOCKET_IFNAME": "eth1",
        "GLOO_SOCKET_IFNAME": "eth1",
        "RM_JOB_ID": "42",
        "RM_RANK": "2",
        "RM_HOST": "gpu02",
        "RM_ZONE": "north",
        "RM_GPUS": "1",
    }
    assert of(placed(), 2).items() >= wanted.items()


def test_ranks_of_one_host_are_told_apart_and_share_the_rest() -> None:
    job = placed()
    first, second = of(job, 0), of(job, 1)
    different = {k for k in first.keys() | second.keys() if first.get(k) != second.get(k)}
    assert different == {"SLURM_PROCID", "SLURM_LOCALID", "RANK", "RM_RANK", "RM_GPUS"}
    assert second["SLURM_GPUS_ON_NODE"] == "2"


BOTH = (("gpu01", (0, 1)), ("gpu01", (0, 1)), ("gpu02", (0, 1)), ("gpu02", (0, 1)))
ONE = (("gpu01", (0,)), ("gpu01", (0,)), ("gpu02", (0,)), ("gpu02", (0,)))
SHARED = {
    "gpus_per_task": 0, "gpus_per_host": 1, "ntasks_per_gpu": 2, "hosts_min": 2, "hosts_max": 2,
    "tasks_per_host": 2,
}  # fmt: skip
OWN = (("gpu01", (0,)), ("gpu01", (1,)), ("gpu02", (0,)), ("gpu02", (1,)))


@pytest.mark.parametrize(
    ("places", "asked", "local_ranks"),
    [
        (BOTH, {"gpus_per_task": 0, "gpus_per_host": 2}, ["0", "1", "0", "1"]),
        (OWN, {}, ["0", "0", "0", "0"]),
        (ONE, SHARED, ["0", "0", "0", "0"]),
        (ONE, {"gpus_per_task": 0, "gpus_per_host": 1}, ["0", "0", "0", "0"]),
        ([(host, ()) for host, _ in BOTH], {"gpus_per_task": 0}, ["0", "1", "0", "1"]),
    ],
)
def test_the_local_rank_is_the_index_of_a_gpu_that_the_task_sees(
    places: Any, asked: Any, local_ranks: list[str]
) -> None:
    job = placed(places, **asked)
    tasks = [of(job, rank) for rank in range(4)]
    assert [task["LOCAL_RANK"] for task in tasks] == local_ranks
    assert [task["SLURM_LOCALID"] for task in tasks] == ["0", "1", "0", "1"]
    for task, (_, gpus) in zip(tasks, places, strict=True):
        assert not gpus or int(task["LOCAL_RANK"]) < len(gpus)
        on_host = ("0" if places is ONE else "0,1") if gpus else None
        assert task.get("SLURM_JOB_GPUS") == on_host
        assert task.get("SLURM_GPUS_ON_NODE") == (str(len(on_host.split(","))) if on_host else None)
        assert task.get("SLURM_GPUS") == (("2" if places is ONE else "4") if gpus else None)


@pytest.mark.parametrize(
    ("address", "told"),
    [("10.0.0.1", "10.0.0.1"), ("fd00::1", "fd00::1"), ("gpu01.example", "10.9.0.1"), ("fade", "10.9.0.1")],
)
def test_tasks_meet_at_an_address_though_the_inventory_has_names(address: str, told: str) -> None:
    host = builders.host("gpu01", address=address, nics=(Nic("eth1", "10.9.0.1"), Nic("eth0", "10.8.0.1")))
    assert host.literal_address == told
    assert replace(host, nics=()).literal_address == address
    assert replace(host, nics=(Nic("ib0"), Nic("eth0", "10.8.0.1"))).literal_address == address


def test_the_list_of_hosts_is_in_the_order_of_the_ranks() -> None:
    job = placed((("gpu02", ()), ("gpu02", ()), ("gpu01", ())), gpus_per_task=0)
    env = of(job, 0)
    assert env["SLURM_JOB_NODELIST"] == env["SLURM_NODELIST"] == env["SLURM_STEP_NODELIST"] == "gpu[02,01]"
    assert parse_hosts(env["SLURM_JOB_NODELIST"])[0] == env["SLURMD_NODENAME"] == "gpu02"
    assert env["MASTER_ADDR"] == "10.0.0.2"
    assert (env["SLURM_TASKS_PER_NODE"], env["SLURM_JOB_CPUS_PER_NODE"]) == ("2,1", "4,2")
    assert [of(job, rank)["SLURM_NODEID"] for rank in range(3)] == ["0", "0", "1"]


def test_ranks_that_go_round_are_numbered_host_by_host() -> None:
    job = placed([("gpu01", ()), ("gpu02", ()), ("gpu01", ())], gpus_per_task=0, distribution="cyclic")
    assert [of(job, rank)["SLURM_GTIDS"] for rank in range(3)] == ["0,2", "1", "0,2"]
    assert [of(job, rank)["SLURM_LOCALID"] for rank in range(3)] == ["0", "0", "1"]
    assert of(job, 0)["SLURM_DISTRIBUTION"] == "cyclic"


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"mem_bytes_per_host": 8 << 30}, {"SLURM_MEM_PER_NODE": "8192"}),
        ({"mem_all": True}, {"SLURM_MEM_PER_NODE": "32768"}),
        ({"mem_bytes_per_task": 4 << 30}, {"SLURM_MEM_PER_CPU": "2048"}),
        ({"gpus_per_task": 0, "gpus_per_host": 2, "gpu_type": "a100"}, {"SLURM_GPUS_PER_NODE": "a100:2"}),
        ({"tasks_per_host": 2}, {"SLURM_NTASKS_PER_NODE": "2"}),
        ({"distribution": "plane=4"}, {"SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": "4"}),
        ({"exclusive": True}, {"SLURM_JOB_CPUS_PER_NODE": "8(x2)", "SLURM_CPUS_ON_NODE": "8"}),
        ({"partition": "short,long"}, {"SLURM_JOB_PARTITION": "long"}),
        ({"env": (("SLURM_SUBMIT_DIR", "/sub"),)}, {"SLURM_SUBMIT_DIR": "/sub"}),
    ],
)
def test_what_was_asked_for_is_told_as_slurm_tells_it(asked: Any, found: dict[str, str]) -> None:
    assert of(placed(**asked), 0).items() >= found.items()


@given(st.lists(st.integers(1, 3), min_size=1, max_size=9))
def test_numbers_for_each_host_are_read_back_as_they_were(numbers: list[int]) -> None:
    read = []
    for part in counted(numbers).split(","):
        number, _, times = part.rstrip(")").partition("(x")
        read += [int(number)] * int(times or 1)
    assert read == numbers
    assert counted([2, 2, 1]) == "2(x2),1"


def test_the_first_run_has_no_restart_count_and_no_limit_no_end() -> None:
    once, again = placed(), replace(placed(time_limit_us=60_000_000), attempt=3)
    assert not {"SLURM_RESTART_COUNT", "SLURM_JOB_END_TIME"} & of(once, 0).keys()
    assert of(again, 0)["SLURM_RESTART_COUNT"] == "2"
    assert of(again, 0)["SLURM_JOB_END_TIME"] == "67"


def test_a_job_that_shares_gpus_is_told_how_much_of_each_is_its_own() -> None:
    assert "RM_GPU_MEM_BYTES" not in of(placed(), 0)
    assert of(placed(gpu_mem_bytes=16 << 30), 0)["RM_GPU_MEM_BYTES"] == str(16 << 30)


def test_what_was_submitted_is_kept_but_not_over_what_is_ours() -> None:
    assert of(placed(), 0)["TMPDIR"] == "/tmp"
    assert of(placed(env=(("TMPDIR", "/scratch"),)), 0)["TMPDIR"] == "/scratch"
    env = of(placed(env=(("PYTHONPATH", "/lib"), ("PYTHONUNBUFFERED", "0"), ("RANK", "9"), ("A", "b"))), 0)
    assert (env["A"], env["RANK"], env["PYTHONUNBUFFERED"]) == ("b", "0", "0")
    assert env["PYTHONPATH"] == "/opt/rm/agents:/lib"


def test_nothing_that_root_reads_around_a_job_comes_from_what_was_submitted() -> None:
    """Else a job says that it is an element of another's array, and an epilog removes that one's files."""
    names = (*rm_job_program.LET_THROUGH, "SLURM_ARRAY_TASK_COUNT")
    env = of(placed(env=tuple((name, "../mine") for name in names)), 0)
    assert "../mine" not in env.values()


def file_name(pattern: str, rank: int = 2) -> str:
    host, gpus = PLACES[rank]
    return expand(pattern, placed(), TaskPlacement(rank, host, gpus), HOSTS[host])


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("rm-%j.out", "rm-42.out"),
        ("%A_%x_%u_%N_%n_%t", "42_train_alice_gpu02_1_2"),
        ("%4t.%6j.%4x", "0002.000042.train"),
        ("100%%", "100%"),
        ("%z %5z % %", "%z %5z % %"),
        ("%99t", "0000000002"),
        ("%A_%a", "42_4294967294"),
        ("%j.%s", "42.batch"),
        (r"o/\%j-%x.txt", "o/%j-%x.txt"),
        (r"a\\b%j", r"a\b%j"),
        ("%²t", "%²t"),
        ("%" + "9" * 5_000 + "t", "0000000002"),
        ("", ""),
    ],
)
def test_file_name_patterns(pattern: str, wanted: str) -> None:
    assert file_name(pattern) == wanted


@given(st.text(alphabet="%0129jJAxuNntz²٣/", max_size=20))
def test_no_pattern_breaks(pattern: str) -> None:
    expanded = file_name(pattern)
    assert "%" in pattern or expanded == pattern


@pytest.mark.parametrize(
    ("asked", "attempt", "mode"),
    [("", 1, "truncate"), ("", 2, "append"), ("truncate", 2, "truncate"), ("append", 1, "append")],
)
def test_no_attempt_takes_away_unasked_what_another_wrote(asked: str, attempt: int, mode: str) -> None:
    assert (
        open_mode(replace(builders.job(1, state=JobState.CONFIGURING, open_mode=asked), attempt=attempt))
        == mode
    )


def test_a_placement_without_an_interface_leaves_the_choice_to_the_library() -> None:
    bare = replace(HOSTS["gpu01"], interface="")
    env = task_environment(placed(), TaskPlacement(0, "gpu01", (0,)), bare, HOSTS)
    assert not {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"} & env.keys()
    assert Placement(()).hosts == ()


def test_an_interface_that_the_user_names_is_left() -> None:
    env = of(placed(env=(("NCCL_SOCKET_IFNAME", "ib0"),)), 0)
    assert (env["NCCL_SOCKET_IFNAME"], env["GLOO_SOCKET_IFNAME"]) == ("ib0", "eth1")


@pytest.mark.parametrize(
    ("asked", "together"), [({"mem_bytes_per_host": 7}, 7), ({"mem_all": True}, 32 << 30), ({}, 0)]
)
def test_memory_of_a_host_is_told_to_agents_that_know_it_only_for_each_task(
    asked: Any, together: int
) -> None:
    job = placed(**asked)
    assert job.placement is not None
    state = ClusterState(hosts=dict(HOSTS), jobs={job.id: job})
    rules = LaunchRules(0, False, "", "rm", False, "/opt/rm", Fence(), 1, 0, lambda user: None)
    tasks = job.placement.on("gpu01")
    launch = launch_request(state, rules, 1)(Launch(job.id, 1, "gpu01", tasks, hold=True))
    assert launch.mem_bytes == together
    assert together <= launch.mem_bytes_per_task * len(tasks) < together + len(tasks)


@pytest.mark.parametrize(
    ("gpu_indices", "asked", "named"),
    [
        (False, {}, [["GPU-gpu01-0"], ["GPU-gpu01-1"]]),
        (True, {}, [["0"], ["1"]]),
        (False, {"launch": "batch"}, [["GPU-gpu01-0", "GPU-gpu01-1"]] * 2),
        (True, {"launch": "batch"}, [["0", "1"]] * 2),  # the script sees all of its host
    ],
)
def test_tasks_have_their_gpus_by_uuid_or_by_index(gpu_indices: bool, asked: Any, named: Any) -> None:
    job = placed(**asked)
    assert job.placement is not None
    state = ClusterState(hosts=dict(HOSTS), jobs={job.id: job})
    rules = LaunchRules(0, False, "", "rm", gpu_indices, "/opt/rm", Fence(), 1, 0, lambda user: None)
    tasks = job.placement.on("gpu01")
    launch = launch_request(state, rules, 1)(Launch(job.id, 1, "gpu01", tasks, hold=True))
    assert [task.gpus for task in launch.tasks] == named
