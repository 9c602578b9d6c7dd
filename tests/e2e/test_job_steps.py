"""Scripts that run once and start their tasks themselves, over three hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster, until
from tests.e2e.conftest import MakeCluster

pytestmark = pytest.mark.lab
HOSTS = 3


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(zones=1, hosts=HOSTS, gpus_per_host=2)


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.tidy()


def submit(cluster: Cluster, directory: Path, lines: str, *words: str) -> int:
    script = directory / "job.sh"
    script.write_text(f"#!/bin/bash\n{lines}\n")
    return cluster.submit(*words, str(script))


def test_the_script_runs_once_while_all_hosts_are_its_own(cluster: Cluster, tmp_path: Path) -> None:
    echo = "echo on $SLURMD_NODENAME of $SLURM_JOB_NODELIST"
    lines = f"{echo}\nuntil [ -e /tmp/steps-go ]; do sleep 0.02; done\nexit 3"
    words = ("--launch=batch", "--nodes=3", "--ntasks-per-node=2", "--gpus-per-node=2")
    job_id = submit(cluster, tmp_path, lines, *words)
    cluster.all_started(job_id)
    first = cluster.job(job_id)["hosts"][0]
    cluster.until_said(job_id, f"on {first} of {first[:-1]}[1-3]\n")
    job = cluster.job(job_id)
    assert len(job["tasks"]) == 6
    assert "once, on the first host" in cluster.rmx("show", job_id)
    waiting = submit(cluster, tmp_path, "true", "--gpus=1")
    assert cluster.job(waiting)["state"] == "PENDING"  # all GPUs are taken
    cluster.write(first, "/tmp/steps-go", "")
    job = cluster.wait(job_id)
    assert (job["state"], job["exit"]) == ("FAILED", "3:0")
    assert cluster.wait(waiting)["state"] == "COMPLETED"


def steps_of(cluster: Cluster, job_id: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.client.get("jobs", "steps", jobs=str(job_id))["steps"]
    return found


TRAINING = Path(__file__).with_name("sbatch") / "train.py"
SCRIPT = f"""
#SBATCH --nodes=3 --ntasks-per-node=2 --gpus-per-node=2
cat > $HOME/train.py <<'END'
{TRAINING.read_text()}END
srun --ntasks-per-node=1 cp /etc/hostname $HOME/here
srun -l python3 -c "$(cat $HOME/train.py)"
srun -N1 -n1 -w $(scontrol show hostnames $SLURM_JOB_NODELIST | tail -n 1) sh -c 'echo last $SLURMD_NODENAME'
echo hello | srun -l -n3 -N3 cat
yes | srun -N1 -n1 -w $(scontrol show hostnames | tail -n 1) head -c 3000000 | wc -c
srun -n1 sh -c 'exit 3'
echo code $?
srun -n6 sh -c '[ $SLURM_PROCID != 5 ] || kill -9 $$'
echo code $?
"""


def test_a_training_script_of_slurm_runs_unchanged_over_three_hosts(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.wait(submit(cluster, tmp_path, SCRIPT))
    said = cluster.log(job["id"])
    assert job["state"] == "COMPLETED", said
    until(lambda: [s["exit_code"] for s in steps_of(cluster, job["id"])][6:] == [0], "the steps came home")
    hosts = job["hosts"]
    lines = said.splitlines()
    assert [line for line in sorted(lines) if "sum" in line] == [
        f"{rank}: rank {rank} local {rank % 2} sum 15 on {hosts[rank // 2]}" for rank in range(6)
    ]
    assert f"last {hosts[2]}" in lines
    assert [line for line in sorted(lines) if "hello" in line] == [f"{rank}: hello" for rank in range(3)]
    assert "3000000" in lines
    assert [line for line in lines if line.startswith("code")] == ["code 3", "code 137"]
    assert f"srun: error: {hosts[2]}: task 5: Killed" in lines
    steps = steps_of(cluster, job["id"])
    assert [step["step"] for step in steps] == list(range(7))
    everywhere = f"{hosts[0][:-1]}[1-3]"
    told = [(step["name"], step["hosts"], step["tasks"], step["exit_code"]) for step in steps]
    assert told[:3] == [
        ("cp", everywhere, 3, 0), ("python3", everywhere, 6, 0), ("sh", hosts[2], 1, 0)
    ]  # fmt: skip
    assert [step["state"] for step in steps] == ["COMPLETED"] * 5 + ["FAILED", "CANCELLED"]
    assert [(step["exit_code"], step["exit_signal"]) for step in steps[5:]] == [(3, 0), (0, 9)]
    assert all(step["started_us"] <= step["ended_us"] <= job["ended_us"] for step in steps)
    assert f"{job['id']}.6" in cluster.rmx("show", job["id"])


LEFT = """#SBATCH --nodes=2 --ntasks-per-node=2
cat > /var/tmp/left <<'END'
[ $SLURM_PROCID != 3 ] || until [ -e /var/tmp/left-said ]; do sleep 0.02; done
[ $SLURM_PROCID = 2 ] || exit 0
(until [ -e /var/tmp/left-go ]; do sleep 0.02; done; echo left; touch /var/tmp/left-said) &
exit 3
END
exec 2>&1
srun -l sh -c "$(cat /var/tmp/left)"
"""


def test_what_a_task_on_another_host_leaves_behind_is_heard_as_long_as_others_run(
    cluster: Cluster, tmp_path: Path
) -> None:
    job_id = submit(cluster, tmp_path, LEFT)
    cluster.all_started(job_id)
    _, other = cluster.job(job_id)["hosts"]
    ended = f"srun: error: {other}: task 2: Exited with exit code 3\n"
    cluster.until_said(job_id, ended)
    cluster.write(other, "/var/tmp/left-go", "")
    assert cluster.wait(job_id)["exit"] == "3:0"
    assert cluster.log(job_id) == ended + "2: left\n"


SBCAST = """#SBATCH --nodes=3 --ntasks-per-node=2
cd /var/tmp
head -c 3000000 /dev/urandom > $HOME/model
chmod 640 $HOME/model
touch -d 2020-01-02 $HOME/model
sbcast --preserve -F4 --compress=lz4 -Clz4 $HOME/model /var/tmp/sbcast-model
cat > $HOME/look <<'END'
echo there $(stat -c "%a %y" /var/tmp/sbcast-model) $(cksum < /var/tmp/sbcast-model)
END
srun --ntasks-per-node=1 -n3 sh -c "$(cat $HOME/look)"
echo sent $(cksum < $HOME/model)
echo more > news
sbcast news /var/tmp/sbcast-model
echo code $?
sbcast --force news sbcast-model
srun --ntasks-per-node=1 -n3 sh -c 'cat /var/tmp/sbcast-model; rm /var/tmp/sbcast-model; ls -a /var/tmp'
sbcast news /nowhere/more
echo code $?
sbcast --send-libs news /var/tmp/more
sbcast news
sbcast -j 9999 news /var/tmp/more
sbcast missing /var/tmp/more
sbcast /dev/zero /var/tmp/more
echo 12345 | sbcast --receive /var/tmp/more 644 create 7
echo code $?, $(ls /var/tmp | grep -c more)
"""


def test_sbcast_brings_a_file_to_each_host_of_the_job(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.wait(submit(cluster, tmp_path, SBCAST))
    said = cluster.log(job["id"])
    lines = said.splitlines()
    (sent,) = [line.split()[1:] for line in lines if line.startswith("sent ")]
    copies = [line.split() for line in lines if line.startswith("there 640 2020-01-02")]
    assert [copy[-2:] for copy in copies] == [sent] * 3, said
    assert not any(line.startswith("sbcast-model") for line in lines), "a part is left"
    there = "/var/tmp/sbcast-model: File exists; --force replaces it."
    assert sorted(x for x in lines if "File exists" in x) == [
        f"sbcast: error on {host}: {there}" for host in job["hosts"]
    ]
    assert lines.count("more") == 3
    assert [x for x in lines if x.startswith("code")] == ["code 1", "code 1", "code 1, 0"]
    assert sum(" /nowhere/more: No such file or directory" in x for x in lines) == 3
    assert [x.removeprefix("sbcast: error: ") for x in lines if x.startswith("sbcast: error: ")] == [
        "--send-libs is not supported: the libraries of a program are not looked up.",
        "Need two file names, have 1 names.",
        f"It sends to the hosts of its own job, {job['id']}, and not to those of job 9999.",
        "missing: No such file or directory",
        "/dev/zero: it is no regular file.",
    ]
    cut_off = "/var/tmp/more: 6 bytes came of 7; the source cannot be read, or was changed."
    assert f"sbcast: error on {job['hosts'][0]}: {cut_off}" in lines


def test_a_step_goes_on_over_the_loss_of_the_daemon(cluster: Cluster, tmp_path: Path) -> None:
    lines = """#SBATCH --nodes=3 --ntasks-per-node=1
say='for n in 1 2 3; do until [ -e /tmp/steps-$n ]; do sleep 0.02; done; echo $n; done; exit $SLURM_PROCID'
srun -l sh -c "$say"
echo code $?
"""
    job_id = submit(cluster, tmp_path, lines)
    cluster.all_started(job_id)
    hosts = cluster.job(job_id)["hosts"]

    def go(number: int) -> None:
        for host in hosts:
            cluster.write(host, f"/tmp/steps-{number}", "")

    go(1)
    until(lambda: cluster.said(job_id).count(": 1\n") == 3, "every task has said 1")
    cluster.kill()
    go(2)
    cluster.start()
    until(lambda: [one["state"] for one in steps_of(cluster, job_id)] == ["RUNNING"], "the step is known")
    go(3)
    job = cluster.wait(job_id)
    until(lambda: [one["exit_code"] for one in steps_of(cluster, job_id)] == [2], "its end is known")
    told = sorted(line for line in cluster.log(job_id).splitlines() if not line.startswith("srun"))
    assert told == sorted([f"{rank}: {n}" for rank in range(3) for n in (1, 2, 3)] + ["code 2"])
    assert job["state"] == "COMPLETED"
