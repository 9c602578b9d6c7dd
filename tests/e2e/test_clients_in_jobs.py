"""Slurm's commands inside a job: the daemon runs them for the job's user, on hosts that have no rm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, until
from tests.e2e.conftest import MakeCluster
from tests.e2e.test_sessions import newest
from tests.shared_directory import share

pytestmark = pytest.mark.lab
ROOT = Path(__file__).parents[2]
OWNER, STRANGER = "nobody", "daemon"
HOME = "cd $(mktemp -d)"
CHAIN = """#!/bin/bash
#SBATCH --job-name=chain --output=/var/tmp/chain.%j --requeue
echo "$1 of $CHAIN on $SLURM_JOB_ID after $SLURM_JOB_DEPENDENCY"
[ "$1" -lt 3 ] && sbatch --dependency=afterok:$SLURM_JOB_ID /var/tmp/chain.sh $(($1 + 1))
env | grep RM_DAEMON
exit 0
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    settings = {
        "daemon": {"admins": [OWNER]},
        "jobs": {"run_root_as": "", "allow_root": True},  # whose interpreter may be root's own
    }
    return make_cluster(settings, zones=1, hosts=2)


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.tidy()


def said(cluster: Cluster, lines: str, user: str = STRANGER, **spec: object) -> list[str]:
    """What a job says in which these lines run, both streams."""
    job = cluster.wait(cluster.post_job(f"exec 2>&1\n{HOME}\n{lines}", user, launch="batch", **spec))
    text = cluster.log(job["id"])
    assert job["state"] == "COMPLETED", text
    return text.splitlines()


def test_a_script_submits_itself_again(cluster: Cluster) -> None:
    (host, *_) = cluster.hosts()
    cluster.write(host, "/var/tmp/chain.sh", CHAIN)
    first = cluster.post_job(
        f"{HOME}\nexport CHAIN=three; sbatch -w {host} /var/tmp/chain.sh 1", STRANGER, launch="batch",
        hosts_only=[host],
    )  # fmt: skip
    assert cluster.wait(first)["state"] == "COMPLETED"
    jobs = [first + 1, first + 2, first + 3]
    until(lambda: len(cluster.client.get("jobs")["jobs"]) >= 4, "the chain is submitted")
    for n, job in enumerate(jobs, 1):
        assert cluster.wait(job)["state"] == "COMPLETED"
        lines = cluster.read(host, f"/var/tmp/chain.{job}").splitlines()
        assert lines[0].startswith(f"{n} of three on {job} after")
        assert lines[1:] == ([f"Submitted batch job {job + 1}"] if n < 3 else []), (
            "and no variable of the daemon's"
        )
    assert {cluster.job(job)["spec"]["user"] for job in jobs} == {STRANGER}


def test_each_command_is_answered_as_for_the_jobs_user(cluster: Cluster) -> None:
    theirs = cluster.post_job("sleep 600", OWNER, name="theirs")
    cluster.all_started(theirs)
    lines = said(
        cluster,
        f"""
        squeue -h -o '%j %u %T' --me
        squeue -h -o %j | sort
        sinfo -h -o %D
        sacct -n -X -P -o jobname,user -j $SLURM_JOB_ID
        scontrol show job $SLURM_JOB_ID | head -1
        scancel {theirs}; echo code $?
        sbatch -H --wrap true >held; scancel --state=PENDING; echo code $?
        squeue --nonsense; echo code $?
        salloc -n1 true; echo code $?
        """,
        name="mine",
    )
    assert lines == [
        f"mine {STRANGER} RUNNING",
        "mine",
        "theirs",
        "2",
        f"mine|{STRANGER}",
        f"JobId={theirs + 1} JobName=mine",
        f"scancel: error: Kill job error on job id {theirs}: Job {theirs} belongs to {OWNER}, and you are "
        f"{STRANGER}. Ask its owner or an administrator.",
        "code 1",
        "code 0",
        "squeue: error: unrecognized option '--nonsense'.",
        "code 1",
        "salloc: error: salloc does not work inside a job on a host without rm's own commands. "
        "Start steps with srun, and jobs with sbatch.",
        "code 1",
    ]
    assert cluster.job(theirs)["state"] == "RUNNING"
    assert cluster.job(theirs + 2)["state"] == "CANCELLED"


def test_an_allocation_in_a_job_is_a_job_of_its_own(cluster: Cluster) -> None:
    """As under Slurm, where the host has rm's commands and a way to the daemon."""
    shims = cluster.directory / "shims"
    cluster.rmx("slurm-shims", shims)
    for host in cluster.hosts():
        for path in (cluster.directory, Path(sys.base_prefix), Path(sys.prefix), ROOT):
            if subprocess.run(cluster.lab.exec_command(host, ["test", "-e", str(path)])).returncode:
                share(cluster.lab, host, path)
    inner = """
        echo $SLURM_JOB_NAME $SLURM_NTASKS
        srun sh -c "echo step of \\$SLURM_JOB_ID"
        squeue -h -o %T -j $SLURM_JOB_ID
        command -v scontrol
        exit 3
    """
    lines = said(
        cluster,
        f"""
        export PATH=$PATH:{shims} RM_DAEMON__SOCKET={cluster.socket}
        outer=$SLURM_JOB_ID
        salloc -Q -n2 sh -c '{inner}'; echo code $?
        srun sh -c 'echo step of $SLURM_JOB_ID'
        salloc -Q --no-shell -n1 && srun --jobid=$((outer + 2)) sh -c 'echo step of $SLURM_JOB_ID'
        scancel $((outer + 2))
        """,
        user="root",
    )
    outer = newest(cluster) - 2
    assert lines == [
        "interactive 2", *[f"step of {outer + 1}"] * 2, "RUNNING", f"{shims}/scontrol", "code 3",
        f"step of {outer}", f"step of {outer + 2}",
    ]  # fmt: skip
    assert [cluster.wait(job)["exit"] for job in (outer, outer + 1)] == ["0:0", "3:0"]
    cluster.wait(outer + 2)


def test_an_administrator_has_the_rights_of_a_user_in_a_job(cluster: Cluster) -> None:
    (host, *_) = cluster.hosts()
    (line, code) = said(cluster, f"scontrol update NodeName={host} State=DRAIN Reason=x; echo $?", OWNER)
    assert line.startswith(
        "scontrol: error: A program of a job has the scope submit, and to drain needs operate."
    )
    assert (code, cluster.hosts()[host]["state"]) == ("1", "UP")
    (act, *_) = [act for act in cluster.client.get("audit")["acts"] if act["verb"] == "drain"]
    assert (act["user"], act["outcome"], act["via"]) == (OWNER, "refused", "job")
    assert act["origin"].startswith("job ")


def test_files_and_standard_input_are_the_programs_own(cluster: Cluster) -> None:
    script = "#!/bin/sh\\nexit %d\\n"
    lines = said(
        cluster,
        f"""
        printf '{script}' 0 | sbatch --parsable
        printf '{script}' 3 >here.sh; sbatch --parsable --wait here.sh; echo code $?
        scontrol write batch_script $SLURM_JOB_ID mine.sh; head -2 mine.sh
        sbatch /etc/shadow; echo code $?
        sbatch missing.sh
        squeue -h -o %i -j $SLURM_JOB_ID -i 1 | sed -n 4q
        until [ -e slurm-$((SLURM_JOB_ID + 1)).out ]; do sleep 0.1; done
        ls
        """,
    )
    piped = int(lines[0])
    assert lines[1:] == [
        str(piped + 1),
        "code 3",
        f"batch script for job {piped - 1} written to mine.sh",
        "#!/bin/sh",
        "exec 2>&1",
        "sbatch: error: The script /etc/shadow cannot be read: Permission denied.",
        "code 1",
        "sbatch: error: The script missing.sh cannot be read: No such file or directory. "
        "To run a command, use: --wrap 'COMMAND'.",
        "here.sh",
        "mine.sh",
        f"slurm-{piped}.out",
        f"slurm-{piped + 1}.out",
    ]


def test_every_task_may_ask_and_many_at_once(cluster: Cluster) -> None:
    lines = said(
        cluster,
        "cd /\nsrun -N2 -n2 -l squeue -h -o %j | sort\n"
        "cd $(mktemp -d); for n in $(seq 20); do squeue -h -o %j >$n & done; wait; cat [0-9]* | uniq -c",
        ntasks=2, tasks_per_host=1, name="many",
    )  # fmt: skip
    assert [line.strip() for line in lines] == ["0: many", "1: many", "20 many"]


def test_a_program_waits_for_a_daemon_that_is_away(cluster: Cluster) -> None:
    job = cluster.post_job(
        f"{HOME}; until [ -e /var/tmp/asks ]; do sleep 0.1; done; squeue -h -o '%i %T' 2>&1", STRANGER,
        launch="batch",
    )  # fmt: skip
    cluster.all_started(job)
    (host,) = cluster.job(job)["hosts"]
    cluster.kill()
    cluster.write(host, "/var/tmp/asks", "")
    cluster.start()
    assert cluster.wait(job)["state"] == "COMPLETED"
    assert cluster.log(job) == f"{job} RUNNING\n"


@pytest.mark.parametrize(
    ("allowed", "listed", "refusal"),
    [
        ("read", ["RUNNING"], "A program of a job has the scope read, and to submit needs submit."),
        ("off", [], "This cluster's administrator gives jobs no clients"),
    ],
)
def test_the_administrator_says_what_programs_of_jobs_may(
    cluster: Cluster, allowed: str, listed: list[str], refusal: str
) -> None:
    cluster.configure({"jobs": {"clients": allowed}})
    cluster.restart()
    cluster.all_up()
    try:
        *lines, line, code = said(cluster, "squeue -h -o %T 2>/dev/null; sbatch --wrap true; echo $?")
        assert (lines, code) == (listed, "1")
        assert refusal in line
    finally:
        cluster.configure({"jobs": {"clients": "submit"}})
        cluster.restart()
        cluster.all_up()
