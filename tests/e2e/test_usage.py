"""What jobs used, on real hosts: measured, kept over a killed daemon, shown and added up."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rm.demo.training import traffic_file
from tests import builders
from tests.cluster import WAIT_S, Cluster, until
from tests.stand_in_gpus import nvidia_smi

pytestmark = pytest.mark.lab
EXAMPLE = Path(__file__).parents[2] / "examples" / "allreduce.py"
CPU_S, SPARE_S = 1.0, 3.0  # starting Python counts too, on a machine that is busy
MIB = 1 << 20
MEM = (200 * MIB, 400 * MIB)
# it has used what it is to use before it says so, and then waits until it is told to go on
BURN = f"""cat > /var/tmp/burn.$SLURM_JOB_ID.$SLURM_PROCID.py <<'END'
import os, time
kept = bytearray({MEM[0]})
while time.process_time() < {CPU_S}:
    pass
print("burnt", flush=True)
while not os.path.exists("/var/tmp/go." + os.environ["SLURM_JOB_ID"]):
    time.sleep(0.05)
END
python3 -S -E /var/tmp/burn.$SLURM_JOB_ID.$SLURM_PROCID.py
"""


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.tidy()


def go(cluster: Cluster, job: int) -> None:
    for host in cluster.job(job)["hosts"]:
        cluster.write(host, f"/var/tmp/go.{job}", "")


def cpu_s(used: dict[str, int]) -> float:
    return (used["user_us"] + used["system_us"]) / 1e6


def wholes(job: Any) -> dict[str, dict[str, int]]:
    return {line["host"]: line["used"] for line in job["used"] if line["rank"] == -1}


def sacct(cluster: Cluster, directory: Path, *words: str, program: str = "sacct") -> list[list[str]]:
    cluster.rmx("slurm-shims", str(directory))
    done = subprocess.run(
        [directory / program, "-n", "-P", *words],
        env={**os.environ, "RM_DAEMON__SOCKET": str(cluster.socket)},
        capture_output=True, text=True, timeout=WAIT_S, check=True,
    )  # fmt: skip
    return [line.split("|") for line in done.stdout.splitlines()]


def seconds(text: str) -> float:
    """Of `01:02.345`, as sacct writes a time."""
    minutes, _, rest = text.partition(":")
    return 60 * int(minutes) + float(rest)


def test_what_a_job_used_is_known_though_it_ended_without_a_daemon(cluster: Cluster, tmp_path: Path) -> None:
    job_id = cluster.post_job(BURN, mem_bytes_per_task=1 << 30, cpus_per_task=1)
    cluster.until_said(job_id, "burnt\n")
    assert cluster.job(job_id)["used"] == []  # as long as it runs
    (host,) = cluster.job(job_id)["hosts"]
    cluster.kill()
    cluster.write(host, f"/var/tmp/go.{job_id}", "")
    until(lambda: not cluster.alive(host, f"jobs/{job_id}.1/script"), "it has ended")
    cluster.start()
    job = cluster.wait(job_id)
    assert (job["state"], job["exit"]) == ("COMPLETED", "0:0")
    used = wholes(job)[host]
    assert CPU_S <= cpu_s(used) <= CPU_S + SPARE_S
    assert MEM[0] <= used["mem_bytes"] <= MEM[1]
    assert used["mem_bytes"] <= used["peak_bytes"]
    fields = "JobID,TotalCPU,MaxRSS,MaxRSSNode,CPUTimeRAW,ReqMem"
    of_job, of_script = sacct(cluster, tmp_path / "bin", "-j", str(job_id), "-o", fields)
    assert of_job[2:4] == ["", ""]
    assert of_job[5] == "1G"
    assert CPU_S <= seconds(of_job[1]) <= CPU_S + SPARE_S
    ran_s = (job["ended_us"] - job["started_us"]) / 1e6
    assert abs(int(of_job[4]) - ran_s) <= 1  # one processor for as long as it ran
    assert of_script[0] == f"{job_id}.batch"
    assert of_script[3] == host
    # the whole again: what the store has is what is told after another restart
    cluster.restart()
    assert wholes(cluster.job(job_id)) == {host: used}
    (line,) = [line for line in cluster.rmx("show", job_id).splitlines() if line.startswith("Used:")]
    assert "of 1 GiB of memory, processors busy" in line


def test_what_a_gang_used_is_told_by_host_and_by_task_and_added_up(cluster: Cluster) -> None:
    before = usage(cluster, "--by=user")
    by_host = usage(cluster, "--by=host")
    spec = {"ntasks": 4, "hosts_min": 2, "hosts_max": 2, "tasks_per_host": 2, "cpus_per_task": 1}
    job_id = cluster.post_job(BURN, **spec)
    for rank in range(4):
        cluster.until_said(job_id, "burnt\n", rank)
    go(cluster, job_id)
    job = cluster.wait(job_id)
    hosts = job["hosts"]
    assert sorted(wholes(job)) == sorted(hosts)
    of_tasks = {line["rank"]: line["used"] for line in job["used"] if line["rank"] >= 0}
    assert sorted(of_tasks) == [0, 1, 2, 3]
    assert all(CPU_S <= cpu_s(used) <= CPU_S + SPARE_S for used in of_tasks.values())
    for host, used in wholes(job).items():
        own = [of_tasks[task["rank"]] for task in job["tasks"] if task["host"] == host]
        assert sum(map(cpu_s, own)) <= 1.05 * cpu_s(used)
        assert 2 * CPU_S <= cpu_s(used) <= 2 * (CPU_S + SPARE_S)
    elapsed_us = job["ended_us"] - job["started_us"]
    after = usage(cluster, "--by=user")
    grown = {name: int(after["root"][name]) - int(before.get("root", {}).get(name, 0)) for name in NUMBERS}
    assert (grown["jobs"], grown["failed"]) == (1, 0)
    assert grown["cpu_us"] == grown["cpu_watched_us"] == 4 * elapsed_us
    busy_us = sum(used["user_us"] + used["system_us"] for used in wholes(job).values())
    assert grown["cpu_busy_us"] == busy_us
    for host in hosts:
        grown_us = int(usage(cluster, "--by=host")[host]["cpu_us"]) - int(
            by_host.get(host, {}).get("cpu_us", 0)
        )
        assert grown_us == 2 * elapsed_us


WORKS = {"memory.used": "2048", "utilization.gpu": "31", "power.draw": "360.00"}


def test_how_busy_the_gpus_of_a_job_were_is_told(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster(zones=1, hosts=1, gpus_per_host=0)
    (host,) = cluster.hosts()
    cluster.write(host, "/usr/local/bin/nvidia-smi", nvidia_smi(WORKS), "755")
    cluster.restart()
    cluster.all_up()
    until(lambda: len(cluster.hosts()[host]["gpus"]) == 2, "the agent has told of its GPUs")
    job_id = cluster.post_job("while [ ! -e /var/tmp/go.$SLURM_JOB_ID ]; do sleep 0.1; done", gpus_per_task=2)
    watched = f"/var/lib/rm/jobs/{job_id}.1/gpus.used"
    until(lambda: json.loads(cluster.read(host, watched) or "[0]")[0] > 10_000_000, "its GPUs were looked at")
    go(cluster, job_id)
    job = cluster.wait(job_id)
    used = wholes(job)[host]
    held_us = 2 * (job["ended_us"] - job["started_us"])
    assert 10_000_000 < used["gpu_us"] <= held_us + 100_000  # by two clocks
    assert used["gpu_busy_us"] == pytest.approx(0.31 * used["gpu_us"], rel=0.01)
    assert used["gpu_mem_bytes"] == 2 << 30
    assert used["energy_mj"] == pytest.approx(0.36 * used["gpu_us"], rel=0.01)  # 360 W
    assert "GPUs busy 31 %" in cluster.rmx("show", job_id)
    fields = "TRESUsageInMax%99,ConsumedEnergyRaw"
    _, (usage, energy) = sacct(cluster, tmp_path / "bin", "-j", str(job_id), "-o", fields)
    assert "gres/gpumem=2G,gres/gpuutil=31" in usage
    assert int(energy) == used["energy_mj"] // 1000
    unlike = nvidia_smi({**WORKS, "utilization.gpu": "$((30 + 40 * gpu))"})
    cluster.write(host, "/usr/local/bin/nvidia-smi", unlike, "755")
    assert_each_step_has_its_gpus(cluster, host, tmp_path)


GPU_STEPS = """#!/bin/bash
waits='until [ -e /var/tmp/go.$SLURM_JOB_ID ]; do sleep 0.1; done'
srun -n1 --gpus-per-task=1 --exact sh -c "$waits" &
srun -n1 --gpus-per-task=1 --exact sh -c "$waits" &
wait
srun -n1 true
"""


def assert_each_step_has_its_gpus(cluster: Cluster, host: str, directory: Path) -> None:
    """Two steps at once, each with a GPU of its own, and a third that no look met."""
    script = directory / "gpus.sh"
    script.write_text(GPU_STEPS)
    job_id = cluster.submit("--launch=batch", "--ntasks=2", "--gpus-per-task=1", str(script))
    seen = f"/var/lib/rm/jobs/{job_id}.1/gpus.seen"

    def begun_us() -> int:
        """When the second of the steps that wait began; 0 before."""
        steps = cluster.client.get("jobs", "steps", jobs=str(job_id))["steps"]
        return max(one["started_us"] or 0 for one in steps) if len(steps) == 2 else 0

    later_us = until(begun_us, "both steps run") + 1_000_000
    looked = "their GPUs were looked at, each for a second at least"
    until(lambda: json.loads(cluster.read(host, seen) or '{"at_us": 0}')["at_us"] > later_us, looked)
    go(cluster, job_id)
    assert cluster.wait(job_id)["state"] == "COMPLETED", cluster.log(job_id)

    def told() -> list[Any] | None:
        steps = cluster.client.get("jobs", "steps", jobs=str(job_id))["steps"]
        return steps if len(steps) == 3 and all(one["used"] for one in steps) else None

    steps = until(told, "each step has its numbers")
    for one in steps[:2]:
        used = one["used"]
        held_us = one["ended_us"] - one["started_us"]
        assert 0 < used["gpu_us"] <= held_us + 100_000
        assert used["gpu_mem_bytes"] == 2 << 30
        assert used["energy_mj"] == pytest.approx(0.36 * used["gpu_us"], rel=0.01)
    busy = sorted(round(100 * one["used"]["gpu_busy_us"] / one["used"]["gpu_us"]) for one in steps[:2])
    assert busy == [30, 70]
    assert steps[2]["used"]["gpu_us"] == 0
    shown = cluster.rmx("show", job_id)
    assert "30 %" in shown
    assert "70 %" in shown
    lines = sacct(cluster, directory / "bin", "-j", str(job_id), "-o", "JobID,TRESUsageInMax%99")
    assert sorted(line[1].count("gres/gpuutil=") for line in lines) == [0, 0, 0, 1, 1]


# without communication that could be kept apart: its iterations take half as long again as its profile says
SLOWED = """#!/usr/bin/python3
import os, time
from rm_iteration import Iterations
iterations = Iterations()
while not os.path.exists("/var/tmp/go." + os.environ["SLURM_JOB_ID"]):
    iterations.start()
    time.sleep(0.15)
    iterations.end()
"""


def test_what_a_job_loses_beside_another_on_its_links_is_told_and_added_up(cluster: Cluster) -> None:
    profile, script = cluster.directory / "profile.json", cluster.directory / "slowed.py"
    rate_mbps = 0.9 * cluster.client.get("hosts")["hosts"][0]["nic_bps"] / 1e6
    profile.write_text(traffic_file(builders.profile(100, (0, 30, rate_mbps))))
    script.write_text(SLOWED)
    hosts = ",".join(sorted(cluster.hosts())[:2])
    words = ("--nodes=2", "--ntasks-per-node=1", f"--traffic={profile}", f"--nodelist={hosts}")
    jobs = [cluster.submit(*words, str(script)) for _ in range(2)]
    before = usage(cluster, "--by=user").get("root", {}).get("slowed_us", "0")
    until(lambda: all(cluster.job(job)["slowed"] for job in jobs), "they are slower together")
    for job, other in (jobs, jobs[::-1]):
        go(cluster, job)
        ended = cluster.wait(job)
        ((beside, us),) = ended["slowed"]
        assert beside == other
        assert 0 < us < 0.5 * (ended["ended_us"] - ended["started_us"])
        assert f"job {other}" in cluster.rmx("show", job)
    lost_us = sum(us for job in jobs for _, us in cluster.job(job)["slowed"])
    assert int(usage(cluster, "--by=user")["root"]["slowed_us"]) - int(before) == lost_us


NUMBERS = ("jobs", "failed", "cpu_us", "cpu_watched_us", "cpu_busy_us")


# 1.4 s of computing and 1 s of an all-reduce over 100 Mbit/s: by chance two of them lose a sixth, which is
# more than what a busy machine is late in such a time
TRAINS = """#!/bin/sh
#RM --launch=tasks --nodes=2 --ntasks-per-node=1 --time=15
exec python3 - --iterations=1000 --compute-ms=1400 --bytes=12500000 <<'END'
{program}
END
"""
TRAINS_US, SENDS_US = 2_420_000, 1_020_000


def test_what_interleaving_saves_two_jobs_is_estimated_and_a_lone_job_saves_nothing(cluster: Cluster) -> None:
    # on a machine without a free core interleaving may bring nothing at first, and would be left off for long
    cluster.configure({"regulate": {"verify": False}})
    cluster.restart()
    script, profile = cluster.directory / "trains.sh", cluster.directory / "trains.json"
    script.write_text(TRAINS.format(program=EXAMPLE.read_text()))
    profile.write_text(traffic_file(builders.profile(TRAINS_US / 1e3, (1400, SENDS_US / 1e3, 99))))
    names = sorted(cluster.hosts())
    before = usage(cluster, "--by=user").get("root", {}).get("saved_us", "0")
    words = (f"--traffic={profile}", str(script))
    jobs = [cluster.submit(f"--nodelist={','.join(names[:2])}", *words) for _ in range(2)]
    lone = cluster.submit(f"--nodelist={','.join(names[2:])}", *words)
    until(lambda: all(cluster.job(job)["saved_us"] for job in jobs), "they save time", 8 * WAIT_S)
    assert cluster.client.get("jobs", lone, "iterations")["count"] > 0
    for job in (*jobs, lone):
        cluster.rmx("cancel", job)
    for job in jobs:
        ended = cluster.wait(job)
        assert 0 < ended["saved_us"] < 0.2 * (ended["ended_us"] - ended["started_us"])
        assert "by interleaving, as estimated" in cluster.rmx("show", job)
    assert cluster.wait(lone)["saved_us"] == 0
    assert "Saved:" not in cluster.rmx("show", lone)
    saved_us = sum(cluster.job(job)["saved_us"] for job in jobs)
    assert int(usage(cluster, "--by=user")["root"]["saved_us"]) - int(before) == saved_us
    assert "SAVED" in cluster.rmx("usage")


def usage(cluster: Cluster, *words: str) -> dict[str, dict[str, str]]:
    """The lines of `rmx usage`, by the first name."""
    rows = csv.DictReader(io.StringIO(cluster.rmx("usage", "--csv", *words)))
    return {next(iter(row.values())): row for row in rows}


STEPS = f"""#SBATCH --nodes=2 --ntasks-per-node=1
cat > $HOME/burn.sh <<'END'
[ $SLURM_PROCID = 1 ] || exit 0
exec {{burn}}
END
srun sh -c "$(cat $HOME/burn.sh)"
srun -N1 -n1 true
srun -N1 -n1 -w $(scontrol show hostnames | tail -n 1) python3 -S -E -c '
import time
kept = bytearray({MEM[0]})
print("kept", flush=True)
time.sleep(600)' &
until [ -e /var/tmp/go.$SLURM_JOB_ID ]; do sleep 0.05; done
kill %1
wait
"""


def test_each_step_is_accounted_for_over_two_hosts_and_shown_while_it_runs(
    cluster: Cluster, tmp_path: Path
) -> None:
    program = f"import time\nkept = bytearray({MEM[0]})\nwhile time.process_time() < {CPU_S}: pass"
    burn = f"python3 -S -E -c '{program}'"
    script = tmp_path / "steps.sh"
    script.write_text("#!/bin/bash\n" + STEPS.format(burn=burn))
    job_id = cluster.submit("--time=10", str(script))
    cluster.until_said(job_id, "kept\n")
    hosts = cluster.job(job_id)["hosts"]
    fields = "JobID,MaxRSS,MaxRSSNode,MaxRSSTask,NTasks,Nodelist"

    def of_the_step() -> list[str] | None:
        """The script's line is there until the host has told that the step began."""
        (line,) = sacct(cluster, tmp_path / "bin", "-j", str(job_id), "-o", fields, program="sstat")
        return line if line[0] == f"{job_id}.2" else None

    runs = until(of_the_step, "sstat shows the step")
    assert MEM[0] <= int(runs[1].rstrip("K")) << 10 <= MEM[1]
    assert runs[2:] == [hosts[1], "0", "1", hosts[1]]
    (script_line,) = sacct(cluster, tmp_path / "bin", "-j", f"{job_id}.batch", "-o", fields, program="sstat")
    assert script_line[2] == hosts[0]
    cluster.kill()  # what was measured is on the hosts
    go_on = f"/var/tmp/go.{job_id}"
    for host in hosts:
        cluster.write(host, go_on, "")
    cluster.start()
    job = cluster.wait(job_id)
    assert job["state"] == "COMPLETED", cluster.log(job_id)
    fields = "JobID,TotalCPU,MaxRSS,MaxRSSNode,MaxRSSTask,MinCPUNode,AveCPU,ExitCode"

    def told() -> bool:
        lines = sacct(cluster, tmp_path / "bin", "-j", str(job_id), "-o", fields)
        return len(lines) == 5 and all(line[2] for line in lines[1:])

    until(told, "each step has its numbers")
    _, _, first, second, third = sacct(cluster, tmp_path / "bin", "-j", str(job_id), "-o", fields)
    assert first[0] == f"{job_id}.0"
    assert CPU_S <= seconds(first[1]) <= CPU_S + SPARE_S
    assert MEM[0] <= int(first[2].rstrip("K")) << 10 <= MEM[1]
    assert first[3:6] == [hosts[1], "1", hosts[0]]
    assert seconds(second[1]) < CPU_S
    assert MEM[0] <= int(third[2].rstrip("K")) << 10
    shown = cluster.rmx("show", job_id)
    assert f"{job_id}.0" in shown


SENT = 3_000_000
SENDS = f"""#SBATCH --nodes=2 --ntasks-per-node=1
#RM --launch=tasks
exec python3 -S -E -c '
import os, socket, time
if os.environ["SLURM_PROCID"] == "0":
    with socket.create_server(("", int(os.environ["MASTER_PORT"]))) as door:
        near, _ = door.accept()
    left = {SENT}
    while left:
        left -= len(near.recv(1 << 16))
    near.sendall(b"all")
else:
    while True:
        try:
            far = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
            break
        except OSError:
            time.sleep(0.05)
    far.sendall(bytes({SENT}))
    far.recv(3)
'
"""


def test_bytes_of_the_network_are_told_by_interface_and_added_up(cluster: Cluster, tmp_path: Path) -> None:
    before = usage(cluster, "--by=user").get("root", {})
    script = tmp_path / "sends.sh"
    script.write_text("#!/bin/bash\n" + SENDS)
    job = cluster.wait(cluster.submit("--time=10", str(script)))
    assert job["state"] == "COMPLETED", cluster.log(job["id"])
    receives, sends = (wholes(job)[host]["network"] for host in job["hosts"])
    (far,) = [one for one in sends if one["interface"] != "lo"]
    (near,) = [one for one in receives if one["interface"] == far["interface"]]
    for one, name in ((far, "sent_bytes"), (near, "received_bytes")):
        assert SENT <= one[name] <= 1.2 * SENT
    assert far["received_bytes"] < 0.2 * SENT
    grown = {
        name: int(usage(cluster, "--by=user")["root"][name]) - int(before.get(name, 0))
        for name in ("received_bytes", "sent_bytes")
    }
    assert grown["sent_bytes"] == far["sent_bytes"] + near["sent_bytes"]
    assert grown["received_bytes"] == far["received_bytes"] + near["received_bytes"]
    (line,) = [line for line in cluster.rmx("show", job["id"]).splitlines() if line.startswith("Used:")]
    assert f"MiB by {far['interface']}" in line
    (told,) = sacct(cluster, tmp_path / "bin", "-X", "-j", str(job["id"]), "-o", "NetSent,NetReceived")
    assert told == [str(grown["sent_bytes"]), str(grown["received_bytes"])]
