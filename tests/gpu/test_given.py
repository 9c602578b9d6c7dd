"""The ways to ask for GPUs, and which of them a task takes on a real driver."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.cluster import WAIT_S, Cluster, until
from tests.e2e.test_sessions import terminal
from tests.gpu.conftest import Gpu
from tests.gpu.jobs import submit, task, told
from tests.this_machine import NAME

pytestmark = pytest.mark.gpu
# what is asked for, and how many tasks there are
WAYS = [
    (("--gpus-per-node=1",), 1),
    (("--gpus-per-task=1",), 1),
    (("--gpus=1",), 1),
    (("--gres=gpu:1",), 1),
    (("--gpus-per-node=1", "--gpu-bind=closest"), 1),
    (("--gpus-per-node=1", "--ntasks=2"), 2),
    (("--ntasks-per-gpu=2", "--ntasks=2"), 2),
    (("--gpus-per-node=1", "--ntasks=2", "--gpu-bind=single:2"), 2),
    (("--gpu-mem=1G", "--gpus=1"), 1),
]
STEPS = ["", "--gpus-per-node=1", "--gpu-bind=none", "-n2 --ntasks-per-gpu=2", "--gpu-bind=single:2"]


@pytest.fixture(params=["uuid", "index"])
def named_by(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    """What CUDA_VISIBLE_DEVICES names GPUs by."""
    cluster.configure({"jobs": {"gpu_ids": request.param}})
    cluster.restart()
    cluster.all_up()
    yield request.param
    cluster.configure({"jobs": {"gpu_ids": "uuid"}})
    cluster.restart()
    cluster.all_up()


def test_a_task_takes_the_gpu_of_its_local_rank(cluster: Cluster, gpus: list[Gpu], named_by: str) -> None:
    jobs = [submit(cluster, "--launch=tasks", *way, script=task(cluster, "--take")) for way, _ in WAYS]
    for job, (way, tasks) in zip(jobs, WAYS, strict=True):
        ended = cluster.wait(job)
        assert len(ended["tasks"]) == tasks
        for one in ended["tasks"]:
            (said,) = told(cluster, job, one["rank"])
            own = gpus[int(said["SLURM_JOB_GPUS"])].uuid
            assert said.get("own") == own, (way, said)
            assert said["CUDA_VISIBLE_DEVICES"] == (own if named_by == "uuid" else "0")
            assert said["SLURM_GPUS_ON_NODE"] == "1"


def test_so_do_tasks_of_steps(cluster: Cluster, gpus: list[Gpu], named_by: str) -> None:
    mark = "sed 's/^{/{\"way\": %d, /'"
    lines = [f"srun {words} {task(cluster, '--take')} | {mark % n}" for n, words in enumerate(STEPS)]
    options = ("--gpus-per-node=1", "--nodes=1", "--ntasks=2")
    job = cluster.wait(submit(cluster, *options, script="\n".join(lines)))
    assert job["state"] == "COMPLETED", cluster.log(job["id"], stream="err")
    said = told(cluster, job["id"])  # a script that starts steps has one log
    assert [one["way"] for one in said] == sorted(list(range(len(STEPS))) * 2)
    for one in said:
        assert one.get("own") == gpus[0].uuid, (STEPS[one["way"]], one)


def test_a_command_and_a_terminal_have_the_gpu(cluster: Cluster, gpus: list[Gpu]) -> None:
    said = cluster.rmx("run", "--gpus=1", "/usr/bin/python3", f"{cluster.directory}/gpu_task.py", "--take")
    assert json.loads(said)["own"] == gpus[0].uuid
    with terminal(cluster, "run", "--gpus=1", "--pty", "nvidia-smi", "-L") as at:
        at.until_said(gpus[0].uuid.encode())
        assert at.process.wait(WAIT_S) == 0  # whoever leaves keeps the GPU for a while
    for options, seen in ((("--gpus=1",), [gpus[0].uuid]), ((), [])):
        job = submit(cluster, *options, "--launch=batch", script=task(cluster, "--wait", "/dev/shm/never"))
        until(lambda job=job: told(cluster, job), "it runs")
        entered = cluster.run("shell", job, "nvidia-smi", "-L")
        assert re.findall("GPU-[0-9a-f-]+", entered.stdout) == seen, entered
        cluster.rmx("cancel", job)
        cluster.wait(job)


def test_whoever_wants_a_gpu_waits_for_it(cluster: Cluster, gpus: list[Gpu]) -> None:
    everything = f"--gpus={len(gpus)}"
    first = submit(cluster, everything, script=task(cluster, "--wait", "/dev/shm/never"))
    cluster.all_started(first)
    second = submit(cluster, everything, script=task(cluster))
    until(lambda: (cluster.job(second)["reason"] or {}).get("code") == "Resources", "it waits for the GPUs")
    assert f"0/{len(gpus)}" in cluster.rmx("hosts")
    assert "GPU" in cluster.rmx("why", second)
    without = cluster.wait(submit(cluster, script=task(cluster)))
    assert "error" in told(cluster, without["id"])[0]
    cluster.rmx("cancel", first)
    assert cluster.wait(second)["state"] == "COMPLETED"
    assert told(cluster, second)[0]["gpus"] == [gpu.uuid for gpu in gpus]


def test_jobs_share_the_memory_of_a_gpu(cluster: Cluster, gpus: list[Gpu]) -> None:
    size = gpus[0].mem_bytes >> 30
    options = (f"--gpus={len(gpus)}", f"--gpu-mem={size * 2 // 5}G")
    wait = task(cluster, "--take", "--mib=1024", "--wait", "/dev/shm/never")
    sharing = [submit(cluster, *options, "--launch=tasks", script=wait) for _ in range(2)]
    for job in sharing:
        until(lambda job=job: told(cluster, job), "it has its part")
        assert told(cluster, job)[0]["own"] == gpus[0].uuid
    third = submit(cluster, *options, script=task(cluster))
    until(lambda: (cluster.job(third)["reason"] or {}).get("code") == "Resources", "there is no room for it")
    assert cluster.hosts()[NAME]["jobs"] == sharing
    cluster.rmx("cancel", sharing[0])
    assert cluster.wait(third)["state"] == "COMPLETED"
