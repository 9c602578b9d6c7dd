"""What jobs do with real GPUs, what is counted of it, and what is left of it when they have ended."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent_process import AGENTS
from tests.cluster import Cluster, until
from tests.e2e.told import told as alerts
from tests.gpu.conftest import IDLE_S, Gpu
from tests.gpu.jobs import run, slurm, submit, task, told
from tests.this_machine import NAME

sys.path.insert(0, str(AGENTS))
import rm_gpus

sys.path.remove(str(AGENTS))

pytestmark = pytest.mark.gpu
MIB = 1 << 20
BUSY_S = 32  # three looks at the GPU, and a part
WORKS_MIB = 4096
PROGRAMS_OWN = {13, 31}  # NVIDIA's Xid: an exception of the engine, an access to memory that is not there


def on_gpu(field: str) -> list[int]:
    """What the driver says now of each GPU."""
    words = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def test_what_a_job_does_is_counted(cluster: Cluster, gpus: list[Gpu]) -> None:
    work = task(cluster, "--take", f"--mib={WORKS_MIB}", f"--busy={BUSY_S}")
    number = submit(cluster, "--gpus=1", "--launch=tasks", "--time=5", script=work)
    cluster.all_started(number)
    until(lambda: max(on_gpu("utilization.gpu")) > 90, "the GPU computes")
    assert f"{number}." in cluster.rmx("sstat", "-a", "-j", number)
    job = cluster.wait(number, wait_s=120)
    (said,) = told(cluster, number)
    (used,) = [line["used"] for line in job["used"] if line["rank"] == -1]
    print("counted:", used, "by the program:", said, "ran:", job["ended_us"] - job["started_us"])
    assert used["gpu_us"] == pytest.approx(job["ended_us"] - job["started_us"], abs=2_000_000)
    assert used["gpu_busy_us"] > 0.9 * used["gpu_us"]
    assert WORKS_MIB * MIB < used["gpu_mem_bytes"] < (WORKS_MIB + 2048) * MIB
    assert used["energy_mj"] == pytest.approx(said["energy_mj"], rel=0.15)  # by the GPU's own counter
    shown = cluster.rmx("show", number)
    assert "GPUs busy 9" in shown
    assert " kWh" in shown
    fields = "ConsumedEnergyRaw,TRESUsageInMax%99,AllocTRES%99"
    whole, step = slurm(cluster, "sacct", "-n", "-P", "-j", str(number), "-o", fields).split()
    print("sacct:", whole, step)
    assert int(whole.split("|")[0]) == int(step.split("|")[0]) == used["energy_mj"] // 1000
    assert re.search(r"gres/gpumem=\d+M,gres/gpuutil=9\d", step)
    assert "gres/gpu=1" in whole


def test_what_jobs_did_is_added_up(cluster: Cluster, gpus: list[Gpu]) -> None:
    """After the test before this one."""
    for words in (("--by", "user"), ("--by", "host")):
        (line,) = [
            one for one in json.loads(cluster.rmx("usage", *words, "--json"))["lines"] if one["gpu_busy_us"]
        ]
        assert 0 < line["gpu_busy_us"] <= line["gpu_watched_us"] <= line["gpu_us"]
        assert line["energy_mj"] > 0
    metrics = subprocess.run(
        ["curl", "-sS", "--unix-socket", cluster.socket, "http://rm/metrics"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    values = {name: float(value) for name, _, value in (one.rpartition(" ") for one in metrics.splitlines())
              if name.startswith("rm_account_gpu")}  # fmt: skip
    print("metrics:", values)
    held, watched, busy, joules = (
        sum(value for name, value in values.items() if name.startswith(f"rm_account_gpu_{kind}_total"))
        for kind in ("held_seconds", "watched_seconds", "busy_seconds", "energy_joules")
    )
    assert 0 < busy <= watched <= held
    assert joules > 0
    assert f'rm_host_gpus{{host="{NAME}"' in metrics


def test_a_job_that_does_nothing_with_its_gpus_is_told_of(
    cluster: Cluster, gpus: list[Gpu], alerts_file: Path
) -> None:
    busy_s = 2 * IDLE_S + 12  # a host is asked each 5 s
    busy = submit(cluster, "--gpus=1", "--launch=tasks", script=task(cluster, "--take", f"--busy={busy_s}"))
    assert cluster.wait(busy, wait_s=busy_s + 60)["state"] == "COMPLETED"
    assert not [one for one in alerts(alerts_file) if f"job {busy} " in one["message"]]
    idle = submit(
        cluster, "--gpus=1", "--launch=tasks", script=task(cluster, "--take", "--wait", "/dev/shm/never")
    )

    def events() -> list[str]:
        return [
            one["event"]
            for one in alerts(alerts_file)
            if f"the GPU of job {idle} did nothing" in one["message"]
        ]

    until(lambda: events() == ["firing"], "the alert fires")
    cluster.rmx("cancel", idle)
    until(lambda: events() == ["firing", "resolved"], "it is over")


def test_a_suspended_job_keeps_the_memory_of_its_gpu_and_goes_on(cluster: Cluster, gpus: list[Gpu]) -> None:
    work = task(cluster, "--take", f"--mib={WORKS_MIB}", "--busy=25")
    job = submit(cluster, "--gpus=1", "--launch=tasks", script=work)
    until(lambda: max(on_gpu("utilization.gpu")) > 90, "the GPU computes")
    cluster.rmx("suspend", job)
    until(lambda: max(on_gpu("utilization.gpu")) == 0, "it computes no more")
    assert max(on_gpu("memory.used")) > WORKS_MIB
    cluster.rmx("resume", job)
    until(lambda: max(on_gpu("utilization.gpu")) > 90, "it goes on")
    ended = cluster.wait(job, wait_s=120)
    assert ended["state"] == "COMPLETED", cluster.log(job)
    assert "error" not in told(cluster, job)[0]


def test_nothing_is_left_on_the_gpu_of_a_job_that_has_ended(cluster: Cluster, gpus: list[Gpu]) -> None:
    before = on_gpu("memory.used")
    stays = task(cluster, "--take", f"--mib={WORKS_MIB}", "--wait", "/dev/shm/never")
    script = f"LOCAL_RANK=0 setsid nohup {stays} >/var/tmp/stays.$SLURM_JOB_ID 2>&1 &\n"
    script += "until grep -q own /var/tmp/stays.$SLURM_JOB_ID; do sleep 0.1; done; echo {}"
    job = cluster.wait(submit(cluster, "--gpus=1", script=script))
    assert job["state"] == "COMPLETED", cluster.log(job["id"])
    assert told(cluster, job["id"]) == [{}]
    until(lambda: on_gpu("memory.used") <= before, "the driver has taken its memory back", wait_s=10)


def test_a_fault_of_a_program_is_no_error_of_its_gpu(
    cluster: Cluster, gpus: list[Gpu], alerts_file: Path
) -> None:
    job = cluster.wait(
        submit(cluster, "--gpus=1", "--launch=tasks", script=task(cluster, "--take", "--wild"))
    )
    (said,) = told(cluster, job["id"])
    assert said["error"] in ("700", "719")  # CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED
    xids = rm_gpus.xids()
    print("Xid:", xids)
    assert {one["bus"] for one in xids} <= {gpu.bus.rpartition(".")[0] for gpu in gpus}
    assert {one["code"] for one in xids} & PROGRAMS_OWN
    assert not [one for one in alerts(alerts_file) if one["condition"] == "gpu"]
    ((after,),) = run(cluster, "--gpus=1", "--launch=tasks", script=task(cluster, "--take"))
    assert after["own"] == gpus[0].uuid
    assert cluster.hosts()[NAME]["state"] == "UP"
