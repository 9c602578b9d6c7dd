"""What each task finds in its environment, and the names of its files."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.core.job import Job, Placement, Task, TaskPlacement
from rm.daemon.environment import expand, job_environment, task_environment
from rm.daemon.launch import open_mode
from tests import builders

HOSTS = {
    n: builders.host(n, zone, gpus=2, address=f"10.0.0.{i}", interface="eth1")
    for i, (n, zone) in enumerate((("gpu01", "north"), ("gpu02", "south")), 1)
}
PLACES = (("gpu01", (0,)), ("gpu01", (1,)), ("gpu02", (1,)))


def placed(**fields: Any) -> Job:
    tasks = tuple(Task(rank, host, gpus) for rank, (host, gpus) in enumerate(PLACES))
    given = {"ntasks": 3, "cpus_per_task": 2, "gpus_per_task": 1, "partition": "long", "chdir": "/home/alice"}
    job = builders.job(42, **{**given, "submit_host": "login", "name": "train", **fields}, tasks=tasks)
    return replace(job, attempt=1, history=((5, "submitted by alice"), (7_000_000, "placed on gpu01, gpu02")))


def of(job: Job, rank: int) -> dict[str, str]:
    host, gpus = PLACES[rank]
    return job_environment(job, HOSTS, "/opt/rm/agents") | task_environment(
        job, TaskPlacement(rank, host, gpus), HOSTS[host]
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
    assert different == {
        "SLURM_PROCID", "SLURM_LOCALID", "RANK", "LOCAL_RANK", "RM_RANK", "RM_GPUS",
    }  # fmt: skip
    assert second["SLURM_GPUS_ON_NODE"] == "2"


def test_the_first_run_has_no_restart_count_and_no_limit_no_end() -> None:
    once, again = placed(), replace(placed(time_limit_us=60_000_000), attempt=3)
    assert not {"SLURM_RESTART_COUNT", "SLURM_JOB_END_TIME"} & of(once, 0).keys()
    assert of(again, 0)["SLURM_RESTART_COUNT"] == "2"
    assert of(again, 0)["SLURM_JOB_END_TIME"] == "67"


def test_a_job_that_shares_gpus_is_told_how_much_of_each_is_its_own() -> None:
    assert "RM_GPU_MEM_BYTES" not in of(placed(), 0)
    assert of(placed(gpu_mem_bytes=16 << 30), 0)["RM_GPU_MEM_BYTES"] == str(16 << 30)


def test_what_was_submitted_is_kept_but_not_over_what_is_ours() -> None:
    env = of(placed(env=(("PYTHONPATH", "/lib"), ("PYTHONUNBUFFERED", "0"), ("RANK", "9"), ("A", "b"))), 0)
    assert (env["A"], env["RANK"], env["PYTHONUNBUFFERED"]) == ("b", "0", "0")
    assert env["PYTHONPATH"] == "/opt/rm/agents:/lib"


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
    assert open_mode(replace(builders.job(1, open_mode=asked), attempt=attempt)) == mode


def test_a_placement_without_an_interface_leaves_the_choice_to_the_library() -> None:
    bare = replace(HOSTS["gpu01"], interface="")
    env = task_environment(placed(), TaskPlacement(0, "gpu01"), bare)
    assert not {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "RM_GPUS"} & env.keys()
    assert Placement(()).hosts == ()
