"""Batch jobs through the public doors: what goes in, what the tasks get, what comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rm.client import Client, JobRequest, batch_job, exit_code
from rm.errors import TimedOut
from rm.units import parse_hosts
from tests.cluster import RMX, WAIT_S, Cluster, until

pytestmark = pytest.mark.lab


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.tidy()


GANG = """#!/bin/sh
#SBATCH --job-name=gang --nodes=3 --ntasks-per-node=2
#SBATCH --gpus-per-task=1 --cpus-per-task=2
#RM --time=10
env
"""


def environment(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def test_a_gang_gets_its_ranks_gpus_and_environment(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "gang.sh"
    script.write_text(GANG)
    secret = {"FLAVOUR": "sweet sour", "PATH": os.environ["PATH"]}
    job_id = int(cluster.rmx("submit", "--parsable", "--export=FLAVOUR", script, env=secret))
    job = cluster.wait(job_id)
    assert (job["state"], job["exit"], job["spec"]["name"]) == ("COMPLETED", "0:0", "gang")
    assert [t["host"] for t in job["tasks"]] == [h for h in job["hosts"] for _ in range(2)]
    envs = [environment(cluster.log(job_id, rank)) for rank in range(6)]
    hosts = cluster.hosts()
    first = hosts[job["hosts"][0]]
    for rank, env in enumerate(envs):
        node, local = divmod(rank, 2)
        expected = {
            "SLURM_JOB_ID": job_id, "SLURM_JOB_NAME": "gang", "SLURM_JOB_NUM_NODES": 3, "SLURM_NTASKS": 6,
            "SLURM_PROCID": rank, "SLURM_LOCALID": local, "SLURM_NODEID": node, "SLURM_CPUS_PER_TASK": 2,
            "SLURM_GPUS": 6, "SLURM_GPUS_ON_NODE": 2, "SLURM_SUBMIT_DIR": "/", "SLURM_JOB_USER": "root",
            "SLURM_SUBMIT_HOST": os.uname().nodename, "SLURMD_NODENAME": job["hosts"][node],
            "MASTER_ADDR": first["address"], "WORLD_SIZE": 6, "RANK": rank, "LOCAL_RANK": 0,
            "NODE_RANK": node, "NCCL_SOCKET_IFNAME": hosts[job["hosts"][node]]["interface"],
            "GLOO_SOCKET_IFNAME": hosts[job["hosts"][node]]["interface"], "FLAVOUR": "sweet sour",
            "USER": "rmjob", "RM_JOB_ID": job_id, "RM_RANK": rank, "RM_ATTEMPT": 1,
        }  # fmt: skip
        assert {key: env.get(key) for key in expected} == {key: str(v) for key, v in expected.items()}
        assert "SLURM_RESTART_COUNT" not in env  # as Slurm has it on the first run
        ends = int(env["SLURM_JOB_END_TIME"]) - job["started_us"] / 1e6
        assert 590 < ends < 660  # ten minutes after a start that is near
    assert len({env["MASTER_PORT"] for env in envs}) == 1
    assert {parse_hosts(env["SLURM_JOB_NODELIST"]) for env in envs} == {tuple(job["hosts"])}
    uuids = {(job["hosts"][i // 2], env["CUDA_VISIBLE_DEVICES"]) for i, env in enumerate(envs)}
    assert uuids == {(h, gpu["uuid"]) for h in job["hosts"] for gpu in hosts[h]["gpus"]}


def test_a_job_makes_files_by_the_umask_of_its_submitter(cluster: Cluster) -> None:
    tells = "--wrap=umask; srun sh -c umask; echo $SLURM_UMASK"
    secret = cluster.submit(tells, umask=0o077)
    assert cluster.wait(secret)["state"] == "COMPLETED"
    assert cluster.log(secret).split() == ["0077"] * 3
    usual = cluster.post_job("umask; echo $SLURM_UMASK")  # of a client that does not say
    assert cluster.wait(usual)["state"] == "COMPLETED"
    assert cluster.log(usual).split() == ["0022"] * 2


@pytest.mark.parametrize("asked", ["--gpus-per-node=2", "--gres=gpu:2", "--gpus=4"])
def test_tasks_see_all_gpus_of_the_job_on_their_host(cluster: Cluster, asked: str) -> None:
    first, second = list(cluster.hosts())[-2:]
    shape = (f"--nodelist={second},{first}", "--ntasks-per-node=2", asked, "--mem=64M", "--time=10")
    job = cluster.wait(cluster.submit(*shape, '--wrap=env; echo "IDS=$(id -u) $(id -g)"; echo PID=$$'))
    assert job["state"] == "COMPLETED"
    assert sorted(job["hosts"]) == sorted((first, second))
    for rank in range(4):
        env = environment(cluster.log(job["id"], rank))
        host = parse_hosts(env["SLURM_JOB_NODELIST"])[rank // 2]
        gpus = cluster.hosts()[host]["gpus"]
        assert (env["SLURMD_NODENAME"], env["LOCAL_RANK"]) == (host, str(rank % 2))
        assert env["CUDA_VISIBLE_DEVICES"] == ",".join(gpu["uuid"] for gpu in gpus)
        assert (env["SLURM_GPUS_ON_NODE"], env["SLURM_JOB_GPUS"]) == ("2", "0,1")
        assert (env["SLURM_TASKS_PER_NODE"], env["SLURM_MEM_PER_NODE"]) == ("2(x2)", "64")
        assert [env[f"SLURM_JOB_{kind}"] for kind in ("UID", "GID")] == env["IDS"].split()
        assert env["SLURM_TASK_PID"] == env["PID"]


@pytest.mark.parametrize(
    ("command", "state", "told", "code"),
    [
        ("exit 0", "COMPLETED", "0:0", 0),
        ("exit 3", "FAILED", "3:0", 3),
        ("kill -9 $$", "FAILED", "0:9", 137),
        ("kill -TERM $$", "FAILED", "0:15", 143),
    ],
)
def test_exit_codes_come_back(cluster: Cluster, command: str, state: str, told: str, code: int) -> None:
    done = cluster.run("submit", "--wait", "--wrap", command)
    job_id = int(done.stdout.removeprefix("Submitted batch job "))
    assert done.returncode == code
    job = cluster.job(job_id)
    assert (job["state"], job["exit"]) == (state, told)
    assert cluster.run("wait", job_id).returncode == code
    if code:
        assert f"Job {job_id} ended {state} ({told})." in done.stderr


def test_one_failing_task_ends_the_others(cluster: Cluster) -> None:
    job_id = cluster.submit("-N4", "--wrap", "[ $RANK = 2 ] && exit 7; sleep 600.1")
    job = cluster.wait(job_id)
    assert (job["state"], job["exit"]) == ("FAILED", "7:0")
    assert job["reason"]["numbers"] == {"rank": 2, "code": 7, "signal": 0}
    for host in job["hosts"]:
        assert not cluster.alive(host, "sleep 600.1")


def test_logs_are_followed_while_the_job_runs(cluster: Cluster) -> None:
    line = "while [ ! -e /tmp/go.$SLURM_JOB_ID ]; do sleep 0.2; done"
    job_id = cluster.submit("-N2", "--wrap", f'echo "begin $RANK"; {line}; echo "end $RANK"; echo oops >&2')
    with subprocess.Popen(
        [RMX, "--config", cluster.config, "logs", str(job_id), "--task", "1", "--follow"],
        stdout=subprocess.PIPE,
    ) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"begin 1\n"  # while it runs
        assert cluster.job(job_id)["state"] == "RUNNING"
        cluster.until_said(job_id, "begin 0\n")
        assert cluster.rmx("logs", job_id) == "begin 0\n"
        for host in cluster.job(job_id)["hosts"]:
            cluster.lab.exec(host, ["touch", f"/tmp/go.{job_id}"])
        assert follower.stdout.read() == b"end 1\noops\n"  # standard error is merged, as in Slurm
        assert follower.wait(WAIT_S) == 0
    cluster.wait(job_id, "COMPLETED")
    assert cluster.rmx("logs", job_id, "--task", "1") == "begin 1\nend 1\noops\n"
    assert cluster.rmx("logs", job_id, "--task", "1", "--offset", "8") == "end 1\noops\n"
    assert "has no task 9" in cluster.refused(4, "logs", job_id, "--task", "9")


def test_a_requeue_loses_nothing_that_an_attempt_wrote(cluster: Cluster) -> None:
    script = 'echo "attempt $RM_ATTEMPT of $RANK"; [ "$RM_ATTEMPT" = 2 ] || sleep 600.2'
    said = [[f"attempt {n} of {rank}\n" for rank in (0, 1)] for n in (1, 2)]
    own, shared = (
        cluster.submit("-n2", "--ntasks-per-node=2", "-N1", *options, "--wrap", script)
        for options in ((), ("--output=/var/tmp/%x.%j", "-J", "both"))
    )
    for rank in (0, 1):
        cluster.until_said(own, said[0][rank], rank)
    until(lambda: sorted(cluster.said(shared).splitlines(True)) == said[0], "both lines are in the file")
    for job in (own, shared):
        cluster.rmx("requeue", job)
        cluster.wait(job, "COMPLETED")
    for attempt in (1, 2):
        for rank in (0, 1):
            shown = cluster.rmx("logs", own, "--attempt", attempt, "--task", rank)
            assert shown == said[attempt - 1][rank]
        both = cluster.rmx("logs", shared, "--attempt", attempt).splitlines(True)
        assert sorted(both) == said[attempt - 1]
    assert cluster.rmx("logs", own, "-l") == "".join(f"{r}: {line}" for r, line in enumerate(said[1]))
    host = cluster.job(shared)["hosts"][0]
    assert sorted(cluster.read(host, f"/var/tmp/both.{shared}").splitlines(True)) == [*said[0], *said[1]]
    assert "requeued by root" in cluster.rmx("show", own)
    assert [one["attempt"] for one in cluster.job(own)["earlier"]] == [1]


CHECKPOINTS = """#!/bin/bash
#SBATCH --time=1 --signal=B:USR1@52 --requeue --open-mode=append
save() { echo "saved in $((SECONDS < 50)) time"; python3 -m rm_iteration requeue; exit 1; }
trap save USR1
echo "starts ${SLURM_RESTART_COUNT-for the first time}"
[ -z "$SLURM_RESTART_COUNT" ] || exit 0
sleep 300.3 &
wait
"""


def test_a_job_saves_its_state_before_the_time_limit_and_goes_on_after_a_requeue(
    cluster: Cluster, tmp_path: Path
) -> None:
    script = tmp_path / "checkpoints.sh"
    script.write_text(CHECKPOINTS)
    job = int(cluster.rmx("submit", "--parsable", "--output=/var/tmp/saved.%j", script))
    ended = cluster.wait(job, "COMPLETED")
    assert (ended["requeues"], ended["attempt"]) == (1, 2)
    assert "Signal:      B:USR1@52" in cluster.rmx("show", job)
    said = cluster.read(ended["hosts"][0], f"/var/tmp/saved.{job}").splitlines()
    assert said == [
        "starts for the first time", "saved in 1 time", "starts 1",
    ]  # fmt: skip


def test_follow_waits_for_a_pending_job(cluster: Cluster) -> None:
    job_id = cluster.submit("--hold", "--wrap", "echo at last")
    assert "PENDING" in cluster.refused(6, "logs", job_id)
    with subprocess.Popen(
        [RMX, "--config", cluster.config, "logs", str(job_id), "--follow"], stdout=subprocess.PIPE
    ) as follower:
        cluster.rmx("release", job_id)
        assert follower.communicate(timeout=WAIT_S)[0] == b"at last\n"


def test_large_output_is_whole(cluster: Cluster) -> None:
    job_id = cluster.submit("--wrap", "seq 1 400000")
    cluster.wait(job_id)
    expected = "".join(f"{n}\n" for n in range(1, 400_001))
    assert cluster.log(job_id) == expected
    assert cluster.rmx("logs", job_id) == expected


TREE = """
trap 'echo told' TERM
setsid sh -c 'trap "" TERM; while :; do sleep 0.2; done; : escaped.%d' &
sh -c 'trap "" TERM HUP; (setsid sleep 700.%d &) ; while :; do sleep 0.2; done; : child.%d' &
echo ready
while :; do sleep 0.2; done
"""


def test_cancel_ends_the_whole_tree_everywhere(cluster: Cluster) -> None:
    number = 100 + os.getpid() % 800
    job_id = cluster.submit("-N2", "--wrap", TREE % (number, number, number))
    job = cluster.wait(job_id, "RUNNING")
    for rank in range(2):
        cluster.until_said(job_id, "ready\n", rank)
    patterns = (f"escaped.{number}", f"700.{number}", f"child.{number}")
    for host in job["hosts"]:
        until(lambda h=host: all(cluster.alive(h, p) for p in patterns), "the tree stands")
    cluster.rmx("cancel", job_id)
    job = cluster.wait(job_id)
    assert (job["state"], job["reason"]["code"]) == ("CANCELLED", "Cancelled")
    assert "told" in cluster.log(job_id)
    for host in job["hosts"]:
        for pattern in patterns:
            assert not cluster.alive(host, pattern)
    assert "has already ended (CANCELLED)" in cluster.refused(6, "cancel", job_id)
    assert cluster.run("wait", job_id).returncode == 128 + signal.SIGKILL


def test_what_a_finished_task_leaves_behind_is_ended(cluster: Cluster) -> None:
    job_id = cluster.submit("--wrap", "setsid sleep 600.7 & exit 0")
    job = cluster.wait(job_id)
    assert job["state"] == "COMPLETED"
    assert not cluster.alive(job["hosts"][0], "sleep 600.7")


def test_the_time_limit_is_sigterm_grace_sigkill(cluster: Cluster) -> None:
    meek = "trap 'echo term; exit 0' TERM; while :; do sleep 0.2; done"
    stubborn = "trap 'echo term' TERM; while :; do sleep 0.2; done"
    # long enough for the scripts to have set their traps
    jobs = [cluster.submit("--time=0:6", "--wrap", script) for script in (meek, stubborn)]
    for job_id, signalled in zip(jobs, (0, 9), strict=True):
        job = cluster.wait(job_id)
        assert (job["state"], job["reason"]["code"]) == ("TIMEOUT", "TimeLimit")
        assert job["tasks"][0]["exit_signal"] == signalled
        assert "term\n" in cluster.log(job_id)
        assert cluster.run("wait", job_id).returncode != 0


def test_a_signal_reaches_every_task(cluster: Cluster) -> None:
    script = "trap 'echo usr1; exit 5' USR1; echo ready; while :; do sleep 0.2; done"
    job_id = cluster.submit("-N2", "--wrap", script)
    cluster.wait(job_id, "RUNNING")
    for rank in range(2):
        cluster.until_said(job_id, "ready\n", rank)
    cluster.rmx("cancel", "--signal=USR1", job_id)
    job = cluster.wait(job_id)
    assert (job["state"], job["exit"]) == ("FAILED", "5:0")


def test_hold_release_begin_and_requeue(cluster: Cluster) -> None:
    held = cluster.submit("--hold", "--wrap", "true")
    later = cluster.submit("--begin=now+1hour", "--wrap", "true")
    soon = cluster.submit("--begin=now+1second", "--wrap", "true")
    why = cluster.rmx("why", held)
    assert "(JobHeldUser)" in why
    assert "(BeginTime)" in cluster.rmx("why", later)
    assert cluster.wait(soon)["state"] == "COMPLETED"
    assert cluster.job(soon)["started_us"] >= cluster.job(soon)["spec"]["begin_us"]
    assert [cluster.job(j)["state"] for j in (held, later)] == ["PENDING", "PENDING"]
    cluster.rmx("release", held)
    assert cluster.wait(held)["state"] == "COMPLETED"
    cluster.rmx("hold", later)
    assert cluster.job(later)["held"] is True
    cluster.rmx("cancel", later)
    assert cluster.job(later)["state"] == "CANCELLED"

    again = cluster.submit("--wrap", "echo run $RM_ATTEMPT ${SLURM_RESTART_COUNT-unset}; sleep 600")
    cluster.wait(again, "RUNNING")
    cluster.until_said(again, "run 1 unset\n")
    cluster.rmx("requeue", again)
    until(lambda: cluster.job(again)["attempt"] == 2, "it starts again")
    cluster.wait(again, "RUNNING")
    cluster.until_said(again, "run 2 1\n")
    cluster.rmx("cancel", again)
    assert cluster.wait(again)["state"] == "CANCELLED"
    assert cluster.run("wait", "--timeout=1s", cluster.submit("--hold", "--wrap", "true")).returncode == 124


def test_a_program_submits_a_sweep_and_reads_its_results(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "sweep.sh"
    script.write_text('#!/bin/sh\n#SBATCH --ntasks=2\necho "$SLURM_PROCID $1"\nexit "$1"\n')
    with Client(cluster.socket) as client:
        ids = client.submit_many([batch_job(script, code, job_name=f"s{code}", chdir="/") for code in (0, 3)])
        held = client.submit(batch_job(script, 0, hold=True, chdir="/"))
        assert client.why(held).reasons[0].code == "JobHeldUser"
        with pytest.raises(TimedOut, match=f"Job {held} has not ended"):
            client.wait(held, timeout_s=0.1)
        assert not client.release(held).held
        ended = list(client.wait_each([*ids, held], WAIT_S))
        assert [(job.state, exit_code(job)) for job in ended] == [
            ("COMPLETED", 0), ("FAILED", 3), ("COMPLETED", 0),
        ]  # fmt: skip
        assert [b"".join(client.logs(ids[0], rank)) for rank in (0, 1)] == [b"0 0\n", b"1 0\n"]
        request = JobRequest(name="f", script="#!/bin/sh\necho one\nexec sleep 600\n", chdir="/")
        followed = client.submit(request)
        parts = client.logs(followed, follow=True)
        assert next(parts) == b"one\n"
        assert client.cancel(followed).id == followed  # while its output is followed
        assert (b"".join(parts), client.wait(followed, WAIT_S).state) == (b"", "CANCELLED")
        assert [host.state for host in client.hosts()] == ["UP"] * len(cluster.hosts())


def test_every_command_speaks_json(cluster: Cluster) -> None:
    def said(*argv: Any) -> dict[str, Any]:
        answer = json.loads(cluster.rmx(*argv, "--json"))
        assert answer.pop("version") == 1
        return dict(answer)

    job_id = said("submit", "--wrap", "sleep 600")["job"]
    cluster.wait(job_id, "RUNNING")
    assert said("show", job_id)["job"]["state"] == "RUNNING"
    (listed,) = [job for job in said("queue")["jobs"] if job["id"] == job_id]
    assert (listed["state"], listed["short_state"]) == ("RUNNING", "R")
    assert {host["name"] for host in said("hosts")["hosts"]} == set(cluster.hosts())
    assert said("why", job_id)["state"] == "RUNNING"
    assert said("iterations", job_id)["count"] == 0
    assert {link["name"] for link in said("links")["links"]} == set(cluster.hosts())
    assert said("network") == {"pairs": []}
    assert said("status")["jobs"]["RUNNING"] == 1
    assert said("submit", "--test-only", "--wrap", "true")["placement"]["tasks"][0]["rank"] == 0
    held = said("submit", "--hold", "--wrap", "true")["job"]
    assert said("hold", held)["jobs"][0]["held"] is True
    assert said("release", held)["jobs"][0]["held"] is False
    assert said("wait", held)["jobs"][0]["exit"] == "0:0"
    assert said("cancel", job_id)["jobs"][0]["id"] == job_id
    cluster.wait(job_id)


def test_output_patterns(cluster: Cluster) -> None:
    files = ("-o", "/tmp/%x-%j.%3t.%N.log", "-e", "/tmp/%j.%t.err")
    script = "echo out $RANK; echo err $RANK >&2"
    cluster.rmx("submit", "--wait", "-N2", "-J", "na me", *files, "--wrap", script)
    job = cluster.client.get("jobs", name="na me")["jobs"][-1]
    for task in job["tasks"]:
        rank, host = task["rank"], task["host"]
        assert cluster.read(host, f"/tmp/na me-{job['id']}.{rank:03}.{host}.log") == f"out {rank}\n"
        assert cluster.read(host, f"/tmp/{job['id']}.{rank}.err") == f"err {rank}\n"
        assert cluster.rmx("logs", job["id"], "--task", rank) == f"out {rank}\n"
        assert cluster.rmx("logs", job["id"], "--task", rank, "--stderr") == f"err {rank}\n"


def test_an_output_that_cannot_be_written_is_said(cluster: Cluster) -> None:
    job = cluster.wait(cluster.submit("-o", "/nowhere/%j.out", "--wrap", "true"))
    assert job["state"] == "FAILED"
    assert "The output file /nowhere/" in job["reason"]["message"]
    assert "cannot be written" in cluster.rmx("show", job["id"])
    job = cluster.wait(cluster.submit("-D", "/nowhere", "--wrap", "true"))
    assert job["state"] == "FAILED"
    assert "The working directory /nowhere cannot be entered" in job["reason"]["message"]


BAD_SCRIPTS = {
    "crlf": (b"#!/bin/sh\r\necho hi\r\n", "contains DOS line breaks (\\r\\n)"),
    "binary": (bytes(range(256)), "is not a text script"),
    "empty": (b"", "is empty"),
    "nameless": (b"echo hi\n", "does not look like a batch script"),
    "unknown": (b"#!/bin/sh\n#SBATCH --gpusss=2\ntrue\n", "--gpusss"),
    "array": (b"#!/bin/sh\n#SBATCH --array=3-0\ntrue\n", "--array"),
}


def test_bad_input_is_one_sentence_and_a_documented_code(cluster: Cluster, tmp_path: Path) -> None:
    before = cluster.client.get("jobs", all=True)["jobs"]
    for name, (data, sentence) in BAD_SCRIPTS.items():
        (tmp_path / name).write_bytes(data)
        assert sentence in cluster.refused(2, "submit", tmp_path / name)
    typed = cluster.run("submit", input="echo hi\n")
    assert typed.stderr.startswith("rmx: The script on standard input does not look like a batch script.")
    assert "cannot be read: Is a directory" in cluster.refused(2, "submit", tmp_path)
    assert "No such file" in cluster.refused(2, "submit", tmp_path / "missing")
    assert "--gpuss" in cluster.refused(2, "submit", "--gpuss=1", "--wrap", "true")
    assert "'soon' is not a time limit" in cluster.refused(2, "submit", "--time=soon", "--wrap", "true")
    assert "Did you mean `rmx submit`?" in cluster.refused(2, "sumbit")
    assert "There is no job 99999" in cluster.refused(4, "show", "99999")
    assert "'abc' is not a job id" in cluster.refused(2, "cancel", "abc")
    assert cluster.client.get("jobs", all=True)["jobs"] == before


def test_an_impossible_request_is_refused_with_its_numbers(cluster: Cluster) -> None:
    assert "4" in cluster.refused(3, "submit", "-N9", "--wrap", "true")
    said = cluster.refused(3, "submit", "-N2", "--gpus-per-node=3", "--wrap", "true")
    assert "3" in said
    assert "2" in said
    assert "1000" in cluster.refused(3, "submit", "--mem=1000G", "--wrap", "true")
    assert "mars" in cluster.refused(3, "submit", "--zone=mars", "--wrap", "true")
    assert "nohost" in cluster.refused(3, "submit", "-w", "nohost", "--wrap", "true")


def test_a_broken_configuration_is_one_sentence(cluster: Cluster, tmp_path: Path) -> None:
    for text, sentence in (
        ("[daemon\n", "is not valid TOML"),
        ("[daemon]\nsockett = 'x'\n", "Did you mean 'socket'?"),
        ("[hosts]\ndown_after_s = 'soon'\n", "hosts.down_after_s"),
        ("[policies]\nplacement = 'tetris'\n", "tetris"),
    ):
        broken = tmp_path / "rm.toml"
        broken.write_text(text)
        state = ("--state-dir", tmp_path / "state")
        assert sentence in cluster.refused(8, "--config", broken, "daemon", *state)
    assert "No daemon listens on" in cluster.refused(7, "--socket", tmp_path / "none", "queue")


def test_jobs_that_come_at_once_never_share_a_gpu(cluster: Cluster) -> None:
    marks = "d=/tmp/gpus; mkdir -p -m 777 $d; f=$d/$CUDA_VISIBLE_DEVICES; mkdir $f || { echo TAKEN; exit 9; }"
    script = f"#!/bin/sh\n{marks}; sleep 0.1; rmdir $f; echo $CUDA_VISIBLE_DEVICES\n"
    spec = {"name": "one", "script": script, "gpus_per_task": 1}
    jobs = cluster.client.post("jobs", body={"specs": [spec] * 40})["jobs"]
    ended = [cluster.wait(job_id) for job_id in jobs]
    assert Counter(job["exit"] for job in ended) == {"0:0": 40}
    gpus = {gpu["uuid"] for host in cluster.hosts().values() for gpu in host["gpus"]}
    assert {cluster.log(job["id"]).strip() for job in ended} == gpus  # and all of them were used
    check_overlaps(ended)


def check_overlaps(jobs: list[dict[str, Any]]) -> None:
    """No two jobs held the same GPU at the same time, by the daemon's own account."""
    held: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for job in jobs:
        for task in job["tasks"]:
            for gpu in task["gpus"]:
                held.setdefault((task["host"], gpu), []).append((task["started_us"], task["ended_us"]))
    for spans in held.values():
        spans.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_why_names_every_blocker_and_every_host(cluster: Cluster) -> None:
    hog = cluster.submit("-N4", "--gpus-per-node=2", "--wrap", "sleep 600")
    cluster.wait(hog, "RUNNING")
    waits = cluster.submit("--gpus=1", "--wrap", "true")
    why = cluster.client.get("jobs", waits, "why")
    assert why["state"] == "PENDING"
    assert "Resources" in [reason["code"] for reason in why["reasons"]]
    assert any(reason["numbers"] for reason in why["reasons"])
    assert {verdict["host"] for verdict in why["verdicts"]} == set(cluster.hosts())
    for verdict in why["verdicts"]:
        assert verdict["refused"]["code"] == "Resources"
        assert verdict["refused"]["numbers"]
    shown = cluster.rmx("why", waits)
    for host in cluster.hosts():
        assert host in shown
    assert "(Resources)" in cluster.rmx("queue")

    running = cluster.client.get("jobs", hog, "why")
    assert running["state"] == "RUNNING"
    assert {v["host"] for v in running["verdicts"]} == set(cluster.hosts())
    assert all(v["refused"] is None and v["scores"] for v in running["verdicts"])
    assert "accepted" in cluster.rmx("why", hog)

    both = cluster.submit(
        "--gpus=1", "--cpus-per-task=8", "--wrap", "true"
    )  # every blocker, not only the first
    for verdict in cluster.client.get("jobs", both, "why")["verdicts"]:
        assert {"gpus_needed", "cpus_needed"} <= verdict["refused"]["numbers"].keys()
    cluster.rmx("cancel", both)
    drained = min(cluster.hosts())
    cluster.rmx("host", "drain", drained, "--reason", "new cable")
    assert cluster.hosts()[drained]["state"] == "DRAINING"
    verdicts = {v["host"]: v["refused"] for v in cluster.client.get("jobs", waits, "why")["verdicts"]}
    assert verdicts[drained]["code"] == "ReqNodeNotAvail"
    assert "new cable" in verdicts[drained]["message"]
    cluster.rmx("cancel", hog)
    assert cluster.wait(waits)["hosts"] != [drained]
    cluster.rmx("host", "resume", drained)
    cluster.all_up()


def test_all_or_nothing(cluster: Cluster) -> None:
    """A gang that cannot start whole does not start in part, and takes nothing from others."""
    one = cluster.submit("--gpus=2", "--wrap", "sleep 600")
    cluster.wait(one, "RUNNING")
    gang = cluster.submit("-N4", "--gpus-per-node=2", "--wrap", "echo ran")
    other = cluster.submit("--gpus=2", "--wrap", "echo ran")
    assert cluster.wait(other)["state"] == "COMPLETED"
    waiting = cluster.job(gang)
    assert (waiting["state"], waiting["tasks"]) == ("PENDING", [])
    cluster.rmx("cancel", one)
    done = cluster.wait(gang)
    assert done["state"] == "COMPLETED"
    assert [cluster.log(gang, rank) for rank in range(4)] == ["ran\n"] * 4


def test_a_job_is_stopped_while_it_is_being_started(cluster: Cluster) -> None:
    """Cancelled at once, again and again: it ends CANCELLED, or had no time to notice; nothing is left."""
    ids = []
    for _ in range(10):
        job_id = cluster.post_job("exec sleep 600.9", ntasks=2, hosts_min=2)
        cluster.client.delete("jobs", job_id)
        ids.append(job_id)
    assert {cluster.wait(job_id)["state"] for job_id in ids} == {"CANCELLED"}
    for host in cluster.hosts():
        assert not cluster.alive(host, "sleep 600.9")
    until(lambda: all(not host["jobs"] for host in cluster.hosts().values()), "everything is free again")


ARRAY = """#!/bin/sh
#SBATCH --array=0-8:2%2
echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MAX
test $SLURM_ARRAY_TASK_ID != 4 || test -n "$SLURM_RESTART_COUNT"
"""


def test_the_elements_of_an_array_run_and_those_that_failed_run_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    script = tmp_path / "array.sh"
    script.write_text(ARRAY)
    array = cluster.rmx("submit", "--parsable", script).strip()
    ended = subprocess.run(
        [RMX, "--socket", cluster.socket, "wait", array], capture_output=True, text=True, timeout=WAIT_S
    )
    assert ended.returncode == 1, ended.stderr
    told = json.loads(cluster.rmx("show", array, "--json"))["job"]["array"]
    assert (told["completed"], told["failed"]) == ("0,2,6,8", "4")
    for task in range(0, 9, 2):
        assert cluster.rmx("logs", f"{array}_{task}") == f"{array} {task} 5 8\n"
    assert cluster.rmx("requeue", array, "--failed") == f"Job {array} is put back into the queue\n"
    cluster.rmx("wait", array)
    assert f"{array}_4" in cluster.rmx("queue", "--all")
    one = json.loads(cluster.rmx("show", f"{array}_4", "--json"))["job"]
    assert (one["state"], one["attempt"], one["array_task"]) == ("COMPLETED", 2, 4)


def test_short_elements_run_once_each_wherever_they_wait(cluster: Cluster) -> None:
    """In slices, once the first have ended: each is a job of its own, with its log and its exit code."""
    count = 80
    array = cluster.post_job("echo $SLURM_ARRAY_TASK_ID $SLURM_JOB_ID $SLURM_RESTART_COUNT; exit "
                             "$((SLURM_ARRAY_TASK_ID == 70))", array=f"0-{count - 1}")  # fmt: skip
    cluster.wait(array)
    told = json.loads(cluster.rmx("show", str(array), "--json"))["job"]["array"]
    assert (told["completed"], told["failed"]) == ("0-69,71-79", "70")
    for task in (40, 70):
        one = json.loads(cluster.rmx("show", f"{array}_{task}", "--json"))["job"]
        until(lambda task=task: cluster.rmx("logs", f"{array}_{task}"), "its log is home")
        assert cluster.rmx("logs", f"{array}_{task}") == f"{task} {one['id']}\n"
        assert one["tasks"][0]["exit_code"] == int(task == 70)


def test_no_more_short_elements_run_at_once_than_the_limit_allows(cluster: Cluster) -> None:
    """Over all hosts, in slices as well. The lab's hosts have one clock."""
    count, script = 60, "date +%s%N; sleep 0.02; date +%s%N"
    array = cluster.post_job(script, array=f"0-{count - 1}%3", output="/tmp/limited.%a")
    assert cluster.wait(array)["array"]["completed"] == f"0-{count - 1}"
    spans: list[tuple[int, int]] = []
    for host in cluster.hosts():
        found = cluster.lab.exec(host, ["sh", "-c", "cat /tmp/limited.*"])
        instants = [int(word) for word in found.stdout.split()]
        spans += zip(instants[::2], instants[1::2], strict=True)
    assert len(spans) == count, "each has run once"
    assert max(sum(a <= began < b for a, b in spans) for began, _ in spans) <= 3


def test_a_job_is_changed_while_it_waits_and_while_it_runs_and_stands_still(cluster: Cluster) -> None:
    """On real hosts: it starts elsewhere than it was submitted for, reads its input, stands still on all its
    hosts, and goes on."""
    first, second, third = list(cluster.hosts())[:3]
    for host in (second, third):
        cluster.write(host, "/tmp/asked", "read\n")
    ticking = "read word; echo $word; while :; do echo x >> /tmp/ticks.$SLURM_PROCID; sleep 0.05; done"
    job = cluster.post_job(ticking, hosts_only=[first], hold=True, input="/tmp/asked", launch="tasks")
    changed = cluster.rmx("set", str(job), f"nodelist={second},{third}", "nodes=2", "ntasks=2", "name=other")
    assert changed == f"Job {job} is changed\n"
    cluster.rmx("release", str(job))
    cluster.all_started(job)
    placed = cluster.job(job)
    assert (placed["hosts"], placed["spec"]["name"]) == ([second, third], "other")
    for rank in (0, 1):
        cluster.until_said(job, "read\n", rank)

    def ticks() -> list[int]:
        sizes = zip((second, third), (0, 1), strict=True)
        return [len(cluster.read(host, f"/tmp/ticks.{rank}")) for host, rank in sizes]

    until(lambda: all(ticks()), "both tasks run")
    cluster.rmx("suspend", str(job))
    assert cluster.job(job)["state"] == "SUSPENDED"
    cluster.rmx("set", str(job), "time=10")
    cluster.rmx("resume", str(job))
    before = ticks()
    until(lambda: all(now > then for now, then in zip(ticks(), before, strict=True)), "they go on")
    assert cluster.job(job)["spec"]["time_limit_us"] == 600_000_000
    cluster.rmx("cancel", str(job))
    assert cluster.wait(job)["state"] == "CANCELLED"


def test_a_prolog_and_an_epilog_run_around_a_job(cluster: Cluster) -> None:
    host = next(iter(cluster.hosts()))
    noting = 'echo "$RM_PROGRAM $SLURM_JOB_ID $SLURM_JOB_USER $(id -u)" >> /tmp/programs\n'
    for name in ("prolog", "epilog"):
        cluster.write(host, f"/tmp/{name}", f"#!/bin/sh\n{noting}[ ! -e /tmp/{name}.fails ]\n", "755")
    cluster.configure({"jobs": {"prolog": "/tmp/prolog", "epilog": "/tmp/epilog"}})
    cluster.restart()
    try:
        cluster.all_up()
        job = cluster.post_job("cat /tmp/programs", hosts_only=[host], launch="tasks")
        assert cluster.wait(job)["state"] == "COMPLETED"
        assert cluster.log(job) == f"prolog {job} rmjob 0\n"
        assert cluster.read(host, "/tmp/programs").splitlines()[-1] == f"epilog {job} rmjob 0"
        cluster.write(host, "/tmp/prolog.fails", "")
        job = cluster.post_job("true", hosts_only=[host])
        drained = cluster.host_state(host, "DRAINED")["drained_by"]
        assert drained.startswith(f"The prolog /tmp/prolog on {host} exited with code 1.")
        assert cluster.wait(job, "PENDING")["launch_failures"] == 0
        cluster.lab.exec(host, ["rm", "/tmp/prolog.fails"])
        cluster.rmx("host", "resume", host)
        assert cluster.wait(job)["state"] == "COMPLETED"
    finally:
        cluster.configure({"jobs": {"prolog": "", "epilog": ""}})
        cluster.restart()
