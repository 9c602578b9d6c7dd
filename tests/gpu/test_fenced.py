"""Which device files of GPUs jobs open on a real driver, by each way in which a host can close them."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.agent_process import Agent, agents, agents_without_programs
from tests.cluster import Cluster
from tests.gpu.conftest import Gpu
from tests.gpu.jobs import run, task

pytestmark = pytest.mark.gpu
# instances of GPUs are made and watched by these, which belong to no job
MANAGING = "nvidia-caps"
EVERYTHING = "export CUDA_VISIBLE_DEVICES=0,1,2,3 NVIDIA_VISIBLE_DEVICES=all ROCR_VISIBLE_DEVICES=0\n"
V1 = """
mount -t tmpfs none /sys/fs/cgroup; cd /sys/fs/cgroup; mkdir unified devices
mount -t cgroup2 none unified; mount -t cgroup -o devices none devices; cd /
"""


def files() -> list[str]:
    """Device files of NVIDIA's driver."""
    found = [path for path in Path("/dev").rglob("nvidia*") if stat.S_ISCHR(path.stat().st_mode)]
    return sorted(map(str, found))


def opening(paths: Iterable[str]) -> str:
    """A script that says of each file whether it can be opened."""
    return (
        EVERYTHING + "\n".join(f"(: <{path}) 2>/dev/null && echo opened {path}" for path in paths) + "\ntrue"
    )


def opened(said: str) -> set[str]:
    return {line.partition(" ")[2] for line in said.splitlines() if line.startswith("opened ")}


def own_and_shared(minor: int) -> set[str]:
    """What a job with this GPU may open: besides the GPU what all programs of CUDA use."""
    shared = {path for path in files() if "uvm" in path or path == "/dev/nvidiactl"}
    return {f"/dev/nvidia{minor}", *shared}


def test_the_job_of_a_user_opens_its_own_gpus_only(cluster: Cluster, gpus: list[Gpu]) -> None:
    assert f"/dev/nvidia{gpus[0].minor}" in files()

    def tried(*options: str) -> set[str]:
        path = cluster.directory / "opening.sh"
        path.write_text("#!/bin/sh\n" + opening(files()))
        job = cluster.wait(cluster.submit(*options, path))
        return opened(cluster.log(job["id"]))

    assert tried() == set()
    assert tried("--gpus=1") == own_and_shared(gpus[0].minor)
    everyones = {path for path in files() if MANAGING not in path}
    assert tried(f"--gpus={len(gpus)}") == everyones & (
        own_and_shared(0) | {f"/dev/nvidia{gpu.minor}" for gpu in gpus}
    )


def test_cuda_shows_a_job_what_it_has_whatever_it_says(cluster: Cluster, gpus: list[Gpu]) -> None:
    ((nothing,),) = run(cluster, script=EVERYTHING + task(cluster, "--take"))
    assert "error" in nothing
    assert "gpus" not in nothing
    ((one,),) = run(cluster, "--gpus=1", script=EVERYTHING + f"LOCAL_RANK=0 {task(cluster, '--take')}")
    assert "error" not in one
    assert one["gpus"] == [gpus[0].uuid]


def test_the_drivers_program_shows_a_job_its_own_gpus(cluster: Cluster, gpus: list[Gpu]) -> None:
    job = cluster.wait(cluster.submit("--gpus=1", "--wrap", "nvidia-smi -L"))
    lines = cluster.log(job["id"]).splitlines()
    assert len(lines) == 1
    assert gpus[0].uuid in lines[0]
    job = cluster.wait(cluster.submit("--wrap", "nvidia-smi -L"))
    assert job["state"] == "FAILED"
    assert "GPU-" not in cluster.log(job["id"])


@pytest.mark.parametrize("means", ["bpf", "devices", "cover"])
def test_each_way_closes_the_real_files(gpus: list[Gpu], tmp_path: Path, means: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    how: dict[str, dict[str, Any]] = {
        "bpf": {},
        "devices": {"mounts": V1, "files": agents_without_programs(tmp_path)},
        "cover": {"cgroups": "none"},
    }
    with agents("/var/tmp") as start:
        if means == "devices" and subprocess.run(["unshare", "-m", "sh", "-ec", V1], check=False).returncode:
            pytest.skip("this kernel has no controller of devices of version 1")
        agent: Agent = start(**how[means])
        if agent.hello["features"]["enforced"]["gpus"] != means:
            pytest.skip(f"this kernel does not take {means}")
        script = "#!/bin/sh\n" + opening(files()) + "\nnvidia-smi -L\ntrue"

        def said(job: int, names: list[str]) -> str:
            agent.launch(script, job=job, tasks=[{"rank": 0, "gpus": names, "env": {}}])
            assert agent.event("exit", job=job)["code"] == 0
            return agent.log(job)

        nothing, own, by_index = said(1, []), said(2, [gpus[0].uuid]), said(3, ["0"])
    assert opened(nothing) == set()
    assert "UUID" not in nothing
    for one in (own, by_index):
        assert opened(one) == own_and_shared(gpus[0].minor)
        assert one.count("UUID") == 1
        assert gpus[0].uuid in one
