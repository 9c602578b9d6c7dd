"""What breaks and what must hold: the daemon, agents, disks, and hosts for a while, each broken on purpose.

Here no host is given up, however busy the machine is; `test_lost_hosts.py` has those that are.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from rm.client.connection import Connection
from rm.errors import RmError, Unreachable
from tests.cluster import FINAL, LOSING, RMX, WAIT_S, Cluster, until
from tests.e2e.conftest import MakeCluster
from tests.e2e.marks import GO, MARK, go, no_defects, runs

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """Waits for a silent host for as long as these tests may take."""
    return make_cluster(LOSING, zones=2, hosts=4, gpus_per_host=2, zone_delay_ms=0)


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.tidy()


class Submitter(threading.Thread):
    """Submits single jobs and gangs one after the other, whether the daemon is there or not."""

    def __init__(self, cluster: Cluster, count: int) -> None:
        super().__init__()
        self.cluster = cluster
        self.count = count
        self.acknowledged: list[int] = []
        self.surprise: Exception | None = None

    def run(self) -> None:
        client = Connection(self.cluster.socket)
        script = f"#!/bin/sh\n{MARK}; echo begin $RANK; sleep 0.2; echo end $RANK\n"
        try:
            while len(self.acknowledged) < self.count:
                gang = len(self.acknowledged) % 3 == 2
                spec = {"name": "gang" if gang else "one", "script": script, "cpus_per_task": 3}
                if gang:
                    spec |= {"ntasks": 2, "hosts_min": 2}
                try:
                    self.acknowledged.append(client.post("jobs", body={"spec": spec})["job"])
                except (Unreachable, RmError) as error:
                    if not isinstance(error, Unreachable) and "stopping" not in str(error):
                        raise
        except Exception as error:
            self.surprise = error


def test_a_daemon_killed_again_and_again_loses_nothing_and_repeats_nothing(cluster: Cluster) -> None:
    submitter = Submitter(cluster, 90)
    submitter.start()
    for number, stop_at in enumerate((10, 25, 40, 60, 80)):
        until(lambda n=stop_at: len(submitter.acknowledged) >= n or submitter.surprise, "submissions")
        if number % 2:  # with jobs running, and without waiting for that while jobs are being started
            until(lambda: cluster.client.get("jobs", state="RUNNING")["jobs"], "a job runs")
        cluster.restart()
    submitter.join()
    assert submitter.surprise is None
    assert len(set(submitter.acknowledged)) == 90  # no id was given out twice
    for job in cluster.client.get("jobs", all=True)["jobs"]:  # those, too, whose acknowledgement was lost
        cluster.wait(job["id"])
    jobs = cluster.client.get("jobs", all=True)["jobs"]
    assert set(submitter.acknowledged) <= {job["id"] for job in jobs}
    written = {
        host.name: Counter(
            cluster.lab.exec(host.name, ["sh", "-c", "cd /var/tmp; grep -H . ran.*"]).stdout.split()
        )
        for host in cluster.lab.hosts
    }
    for job in jobs:
        assert (job["state"], job["attempt"]) == ("COMPLETED", 1)
        for task in job["tasks"]:
            mark = f"ran.{job['id']}.{task['rank']}:1".encode()
            assert [(h, n[mark]) for h, n in written.items() if n[mark]] == [(task["host"], 1)]
            rank = task["rank"]
            assert cluster.log(job["id"], rank) == f"begin {rank}\nend {rank}\n"
    assert sum(sum(n.values()) for n in written.values()) == sum(len(job["tasks"]) for job in jobs)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_running_jobs_are_adopted(cluster: Cluster, how: str) -> None:
    spec = {"ntasks": 2, "hosts_min": 2}
    script = (
        f"{MARK}; n=0; while [ ! -e /var/tmp/go.$SLURM_JOB_ID ]; do n=$((n+1)); echo $n; sleep 0.02; done"
    )
    job_id = cluster.post_job(script, **spec)
    ends = cluster.post_job(f"{MARK}; {GO}; echo bye; exit 4")
    doomed = cluster.post_job("trap 'echo told; exit 9' TERM; echo ready; while :; do sleep 0.05; done")
    for each in (job_id, ends, doomed):
        cluster.all_started(each)
    cluster.until_said(doomed, "ready\n")
    before, ended_on = cluster.job(job_id), cluster.job(ends)["hosts"]
    cluster.client.delete("jobs", doomed)
    getattr(cluster, how)()
    go(cluster, ends)  # it ends while nobody watches
    (end_host,) = ended_on
    until(lambda: not cluster.alive(end_host, f"jobs/{ends}.1/script"), "it has ended")
    assert cluster.alive(before["hosts"][0], f"jobs/{job_id}.1/script")
    cluster.start()
    assert cluster.job(job_id)["state"] == "RUNNING"
    ended = cluster.wait(ends)
    assert (ended["state"], ended["exit"], cluster.log(ends)) == ("FAILED", "4:0", "bye\n")
    assert cluster.wait(doomed)["state"] == "CANCELLED"
    assert cluster.log(doomed).endswith("told\n")
    cluster.all_up()
    after = cluster.job(job_id)
    assert after["state"] == "RUNNING"
    assert [t["started_us"] for t in after["tasks"]] == [t["started_us"] for t in before["tasks"]]
    go(cluster, job_id)
    assert cluster.wait(job_id)["exit"] == "0:0"
    for rank in range(2):
        lines = cluster.log(job_id, rank).splitlines()
        assert lines == [str(n) for n in range(1, len(lines) + 1)]  # nothing is missing
        assert runs(cluster, job_id, rank) == ["1"]


def test_who_waits_for_a_job_outlives_the_daemon(cluster: Cluster) -> None:
    job_id = cluster.post_job(f"{GO}; exit 7")
    cluster.all_started(job_id)
    argv = [RMX, "--config", cluster.config, "wait", str(job_id)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as waiting:
        cluster.restart()
        go(cluster, job_id)
        said = waiting.communicate(timeout=WAIT_S)[1]
        assert waiting.returncode == 7, said
    assert f"Job {job_id} ended FAILED (7:0)." in said


def test_a_gang_half_started_by_a_killed_daemon_starts_once(cluster: Cluster) -> None:
    names = sorted(cluster.hosts())[:2]
    cluster.lab.freeze(names[1])
    try:
        job_id = cluster.post_job(MARK, ntasks=2, hosts_min=2, hosts_only=names)
        cluster.wait(job_id, "CONFIGURING")
        until(lambda: any(t["prepared"] for t in cluster.job(job_id)["tasks"]), "one host is ready")
        cluster.kill()
    finally:
        cluster.lab.thaw(names[1])
    assert runs(cluster, job_id) == runs(cluster, job_id, 1) == []  # all or none
    cluster.start()
    job = cluster.wait(job_id)
    assert (job["state"], job["attempt"]) == ("COMPLETED", 1)
    assert runs(cluster, job_id) == runs(cluster, job_id, 1) == ["1"]
    cluster.all_up()


def test_a_second_daemon_is_refused_and_does_no_harm(cluster: Cluster) -> None:
    epoch = cluster.client.get("status")["daemon"]["epoch"]
    assert "A daemon already listens" in cluster.refused(6, "daemon")
    assert cluster.wait(cluster.submit("--wrap", "true"))["state"] == "COMPLETED"
    assert cluster.client.get("status")["daemon"]["epoch"] == epoch
    assert cluster.daemon is not None
    assert cluster.daemon.poll() is None


def test_the_daemon_ends_at_sigterm_also_while_it_connects(cluster: Cluster) -> None:
    for _ in range(3):
        cluster.stop()
        cluster.start()  # and told to stop before it has reached its hosts
    cluster.all_up()
    assert cluster.wait(cluster.post_job("true"))["state"] == "COMPLETED"


@pytest.mark.parametrize(("harm", "mend"), [("cut", "heal"), ("freeze", "thaw"), ("kill_sshd", "start_sshd")])
def test_a_job_outlives_a_short_loss_of_its_host(cluster: Cluster, harm: str, mend: str) -> None:
    job_id = cluster.post_job(f"{MARK}; echo begin; {GO}; echo end")
    cluster.until_said(job_id, "begin\n")
    (host,) = cluster.job(job_id)["hosts"]
    follower = Follower(cluster, job_id)
    follower.start()
    getattr(cluster.lab, harm)(host)
    try:
        silent = cluster.host_state(host, "UNKNOWN")
        assert host in silent["reason"]
        assert cluster.job(job_id)["state"] == "RUNNING"
        other = cluster.wait(cluster.post_job("true"))  # meanwhile the rest goes on
        assert other["hosts"] != [host]
    finally:
        getattr(cluster.lab, mend)(host)
    cluster.all_up()
    assert cluster.job(job_id)["state"] == "RUNNING"
    go(cluster, job_id)
    done = cluster.wait(job_id)
    assert (done["state"], done["attempt"], done["exit"]) == ("COMPLETED", 1, "0:0")
    assert runs(cluster, job_id) == ["1"]
    follower.join()
    assert follower.text == cluster.log(job_id).encode() == b"begin\nend\n"


class Follower(threading.Thread):
    def __init__(self, cluster: Cluster, job: int) -> None:
        super().__init__()
        self.cluster, self.job = cluster, job
        self.text = b""

    def run(self) -> None:
        for part in Connection(self.cluster.socket).stream("jobs", self.job, "logs", follow=True):
            self.text += part


def test_a_job_outlives_its_hosts_agent(cluster: Cluster) -> None:
    job_id = cluster.post_job(f"{MARK}; {GO}")
    host, supervisor = supervisor_of(cluster, job_id)
    since_us = cluster.hosts()[host]["since_us"]
    agents = [int(line.split()[0]) for line in cluster.alive(host, "rm_agent.py --serve")]
    agents.remove(supervisor)
    cluster.lab.exec(host, ["kill", "-9", *map(str, agents)])
    until(lambda: cluster.hosts()[host]["since_us"] != since_us, "its end is noticed")
    cluster.all_up()
    assert cluster.job(job_id)["state"] == "RUNNING"
    go(cluster, job_id)
    assert cluster.wait(job_id)["exit"] == "0:0"
    assert runs(cluster, job_id) == ["1"]


@pytest.mark.parametrize("requeue", [True, False])
def test_a_task_without_its_supervisor_is_lost(cluster: Cluster, requeue: bool) -> None:
    job_id = cluster.post_job(f"{MARK}; [ $RM_ATTEMPT = 2 ] || exec sleep 614", requeue=requeue)
    host, supervisor = supervisor_of(cluster, job_id)
    until(lambda: runs(cluster, job_id) == ["1"], "the task has begun")
    cluster.lab.exec(host, ["kill", "-9", str(supervisor)])
    job = cluster.wait(job_id)
    if requeue:
        assert (job["state"], job["attempt"]) == ("COMPLETED", 2)
        assert sorted(runs(cluster, job_id)) == ["1", "2"]
    else:
        assert (job["state"], job["reason"]["code"]) == ("NODE_FAIL", "HostLost")
        assert "supervisor" in job["reason"]["message"]
        assert runs(cluster, job_id) == ["1"]
    assert not cluster.alive(host, "sleep 614")


def supervisor_of(cluster: Cluster, job: int) -> tuple[str, int]:
    """The job's host and the process that watches over it there."""
    (host,) = cluster.wait(job, "RUNNING")["hosts"]
    return host, json.loads(cluster.read(host, f"/var/lib/rm/jobs/{job}.1/meta.json"))["supervisor"]


def test_a_full_disk_drains_its_host_until_there_is_room_and_the_job_goes_elsewhere(cluster: Cluster) -> None:
    full, other = sorted(cluster.hosts())[:2]
    try:
        cluster.lab.fill_disk(full)
        spec = {"name": "x", "script": f"#!/bin/sh\n{MARK}\n", "exclusive": True, "hosts_only": [full, other]}
        jobs = cluster.client.post("jobs", body={"specs": [spec, spec]})["jobs"]
        for job_id in jobs:
            done = cluster.wait(job_id)
            assert (done["state"], done["hosts"]) == ("COMPLETED", [other])
            assert runs(cluster, job_id) == [str(done["attempt"])]
        host = cluster.host_state(full, "DRAINED")
        assert f"The disk of host {full} is full" in host["drained_by"]
        assert "is full" in cluster.rmx("hosts")
        waits = cluster.submit("-w", full, "--wrap", "true")
        assert "is full" in cluster.rmx("why", waits)
    finally:
        cluster.lab.free_disk(full)
    assert cluster.wait(waits)["state"] == "COMPLETED"
    assert cluster.host_state(full, "UP")["drained_by"] == ""


def test_a_disk_that_fills_up_under_a_job_keeps_its_exit_code(cluster: Cluster) -> None:
    job_id = cluster.post_job(f"echo begin; {GO}; echo lost; exit 6")
    cluster.until_said(job_id, "begin\n")
    (host,) = cluster.job(job_id)["hosts"]
    cluster.lab.exec(host, ["touch", f"/var/tmp/go.{job_id}.soon"])
    try:
        cluster.lab.fill_disk(host)
        cluster.lab.exec(host, ["mv", f"/var/tmp/go.{job_id}.soon", f"/var/tmp/go.{job_id}"])
        done = cluster.wait(job_id)
        assert (done["state"], done["exit"]) == ("FAILED", "6:0")
        assert cluster.log(job_id).startswith("begin\n")
    finally:
        cluster.lab.free_disk(host)


def test_a_host_that_remembers_another_leader_is_drained_and_used_no_less(cluster: Cluster) -> None:
    name = "z1h2"
    cluster.lab.exec(name, ["sh", "-c", "echo 1000000 >/var/lib/rm/epoch"])
    job = cluster.submit("--hosts", name, "--wrap", f"{MARK}")
    assert cluster.wait(job, *FINAL)["state"] == "COMPLETED"
    assert runs(cluster, job) == ["1"]
    assert "does not know" in cluster.host_state(name, "DRAINED")["reason"]
    cluster.rmx("host", "resume", name)
    cluster.restart()  # its epoch counts at the hello: nothing is refused any more
    cluster.all_up()
    again = cluster.submit("--hosts", name, "--wrap", "true")
    assert cluster.wait(again, *FINAL)["state"] == "COMPLETED"
    assert cluster.hosts()[name]["state"] == "UP"


def test_a_chain_of_jobs_goes_on_after_a_restart(cluster: Cluster) -> None:
    """A good and a bad job, what waits for each end, and a daemon that is killed in between."""
    held = "until [ -e /var/tmp/chain ]; do sleep 0.1; done; exit"
    good, bad = (cluster.submit("--wrap", f"{held} {code}") for code in (0, 3))
    for job in (good, bad):
        cluster.wait(job, "RUNNING")
    first = cluster.submit("-d", f"afterok:{good}", "--wrap", "true")
    second = cluster.submit("-d", f"afterok:{first},afternotok:{bad}", "--wrap", "env")
    never = cluster.submit("-d", f"afterok:{bad}", "--wrap", "true")
    behind = cluster.submit("-d", f"afterany:{never}?afterok:{never}", "--wrap", "true")
    assert "(Dependency)" in cluster.rmx("queue", "-o", "jobid,where")
    chain = cluster.client.get("jobs", second, "why")["chain"]
    assert [(one["job"], one["awaited"], one["state"]) for one in chain] == [
        (second, first, "PENDING"), (second, bad, "RUNNING"), (first, good, "RUNNING"),
    ]  # fmt: skip
    cluster.kill()
    for host in cluster.lab.hosts:
        cluster.lab.exec(host.name, ["touch", "/var/tmp/chain"])
    cluster.start()
    ends = [cluster.wait(job) for job in (good, bad, first, second, never, behind)]
    assert [job["state"] for job in ends] == [
        "COMPLETED", "FAILED", "COMPLETED", "COMPLETED", "CANCELLED", "COMPLETED",
    ]  # fmt: skip
    assert ends[4]["reason"]["code"] == "DependencyNeverSatisfied"
    assert ends[2]["started_us"] >= ends[0]["ended_us"]
    assert ends[3]["started_us"] >= max(ends[1]["ended_us"], ends[2]["ended_us"])
    assert f"SLURM_JOB_DEPENDENCY=afterok:{first},afternotok:{bad}" in cluster.log(second)
    assert "which there is not" in cluster.refused(2, "submit", "-d", "afterok:999999", "--wrap", "true")
    cluster.all_up()


def test_final_states_survive_a_restart(cluster: Cluster) -> None:
    before = cluster.client.get("jobs", all=True)["jobs"]
    cluster.restart()
    assert cluster.client.get("jobs", all=True)["jobs"] == before
    assert {job["state"] for job in before} <= set(FINAL)
    cluster.all_up()


def test_the_daemon_said_nothing_of_defects(cluster: Cluster) -> None:
    no_defects(cluster)


def test_the_usage_of_an_account_goes_on_over_a_daemon_that_was_killed(cluster: Cluster) -> None:
    def used() -> float:
        return next(one["used"] for one in cluster.client.get("shares")["shares"] if one["user"] == "root")

    cluster.rmx("account", "add", "physics", "--shares=3")
    cluster.rmx("account", "add", "physics", "root")
    job = cluster.submit("--gpus=1", "--wrap=echo $SLURM_JOB_ACCOUNT; sleep 600")
    cluster.until_said(job, "physics\n")
    until(lambda: used() > 0, "the job counts")
    cluster.restart()
    before = until(used, "what was counted is known")
    until(lambda: used() > before, "it goes on")
    said = cluster.refused(2, "submit", "--account=chess", "--wrap=true")
    assert said == "There is no account 'chess'. root is in physics."
    assert "(of root)" in cluster.refused(6, "account", "remove", "physics", "root")
    cluster.rmx("cancel", job)
    cluster.wait(job, "CANCELLED")
    total = used()
    assert used() == pytest.approx(total, rel=1e-3)
    assert cluster.rmx("account", "export").splitlines()[:2] == ["[physics]", "shares = 3"]
    cluster.rmx("account", "remove", "physics", "root")
    cluster.rmx("account", "remove", "physics")


def test_limits_and_qos_hold_over_a_daemon_that_was_killed(cluster: Cluster) -> None:
    """One user's second job waits for the first by a limit of the user's account, with Slurm's code."""
    for words in (
        ("account", "add", "physics", "--limit", "user.running=1,job.minutes=30"),
        ("account", "add", "physics", "root"),
        ("qos", "add", "urgent", "--accounts=physics", "--limit", "job.gpus=1"),
    ):
        cluster.rmx(*words)
    first = cluster.submit("--qos=urgent", "--wrap=echo qos=$SLURM_JOB_QOS; sleep 300")
    cluster.until_said(first, "qos=urgent\n")
    second = cluster.submit("--wrap=true")
    said = cluster.refused(3, "submit", "--qos=urgent", "--gpus-per-task=1", "--ntasks=2", "--wrap=true")
    assert "asks for 2 GPUs, and a job of QOS urgent has at most 1 (QOSMaxGRESPerJob)" in said
    for _ in range(2):
        why = cluster.rmx("why", second)
        assert (
            "(AssocMaxJobsLimit) root in account physics has 1 of at most 1 running jobs, and needs 1 more"
            in why
        )
        assert "used_by=root 1" in why
        cluster.restart()
    assert "not ended run in QOS urgent" in cluster.refused(6, "qos", "remove", "urgent")
    cluster.rmx("cancel", first)
    job = cluster.wait(second, "COMPLETED")
    assert job["spec"]["time_limit_us"] == 30 * 60 * 10**6
    for words in (
        ("qos", "remove", "urgent"),
        ("account", "remove", "physics", "root"),
        ("account", "remove", "physics"),
    ):
        cluster.rmx(*words)


def test_a_job_saves_its_work_and_gives_its_hosts_up(cluster: Cluster) -> None:
    """Over a daemon that is killed while the job has its grace; then the job comes back, and goes on."""
    cluster.rmx("qos", "add", "batch", "--grace=600")
    cluster.rmx("qos", "add", "urgent", "--preempts=batch")
    script = f"trap 'echo saves; {GO}; exit' USR1; echo begins; {GO}; echo goes on"
    low = cluster.submit("--qos=batch", "--signal=USR1@60", f"--wrap={script}")
    cluster.until_said(low, "begins\n")
    hosts = f"--nodes={len(cluster.hosts())}"
    urgent = cluster.submit("--qos=urgent", "--exclusive", hosts, "--wrap=true")
    until(lambda: "saves" in cluster.said(low), "it has its signal")
    assert f"waits for the end of job {low}, preempted for it" in cluster.rmx("why", urgent)
    cluster.restart()
    assert cluster.job(low)["state"] == "COMPLETING"
    go(cluster, low)
    cluster.wait(urgent, "COMPLETED")
    job = cluster.wait(low, "COMPLETED")
    assert job["earlier"][0]["why"] == f"preempted by job {urgent} of QOS urgent"
    assert cluster.rmx("logs", low).splitlines()[-1] == "goes on"
    for name in ("urgent", "batch"):
        cluster.rmx("qos", "remove", name)
