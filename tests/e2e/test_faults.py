"""What breaks and what must hold: the daemon, hosts, links, disks and keys, each broken on purpose."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rm.client.connection import Connection
from rm.errors import RmError, Unreachable
from tests.cluster import FINAL, RMX, WAIT_S, Cluster, until
from tests.e2e.conftest import MakeCluster

pytestmark = pytest.mark.lab

# each task leaves one line for each time it ran, where a reboot does not wipe it
MARK = "echo $RM_ATTEMPT >>/var/tmp/ran.$SLURM_JOB_ID.$RANK"
GO = "while [ ! -e /var/tmp/go.$SLURM_JOB_ID ]; do sleep 0.05; done"
QUICK = {"connect_timeout_s": 3.0, "dead_after_s": 2.0}
SHORT = {"ssh": QUICK, "hosts": {"down_after_s": 3.0}}
LONG = {"ssh": QUICK, "hosts": {"down_after_s": 300.0}}


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """Gives a silent host up after 3 s."""
    return make_cluster(SHORT, zones=2, hosts=4, gpus_per_host=2, zone_delay_ms=0)


@pytest.fixture(scope="module")
def patient(make_cluster: MakeCluster) -> Cluster:
    """Waits for a silent host for as long as these tests may take."""
    return make_cluster(LONG, zones=1, hosts=2, gpus_per_host=0)


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.tidy()


def runs(cluster: Cluster, job: int, rank: int = 0) -> list[str]:
    """The attempts in which the rank ran, on any host."""
    return [
        line
        for host in cluster.lab.hosts
        for line in cluster.read(host.name, f"/var/tmp/ran.{job}.{rank}").split()
    ]


def go(cluster: Cluster, job: int) -> None:
    for host in cluster.lab.statuses():
        if host.state == "up":
            cluster.lab.exec(host.name, ["touch", f"/var/tmp/go.{job}"])


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
    for job_id in submitter.acknowledged:
        cluster.wait(job_id)
    jobs = cluster.client.get("jobs", all=True)["jobs"]
    assert set(submitter.acknowledged) <= {job["id"] for job in jobs}
    written = {
        host.name: Counter(
            cluster.lab.exec(host.name, ["sh", "-c", "cd /var/tmp; grep -H . ran.*"]).stdout.split()
        )
        for host in cluster.lab.hosts
    }
    for job in jobs:  # those, too, whose acknowledgement was lost
        assert (cluster.wait(job["id"])["state"], job["attempt"]) == ("COMPLETED", 1)
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


def test_a_crashed_host_costs_only_its_own_jobs(cluster: Cluster) -> None:
    names = sorted(cluster.hosts())
    script = f"{MARK}; [ $RM_ATTEMPT = 2 ] || exec sleep 611"
    kept = cluster.post_job(f"{MARK}; {GO}", hosts_only=names[1:2])
    lost = cluster.post_job("sleep 612", hosts_only=names[:1], requeue=False)
    # a gang that must begin on the host that will crash, and finds room elsewhere afterwards
    victim = names[0]
    for host in names[2:]:
        cluster.rmx("host", "drain", host)
    again = cluster.post_job(script, ntasks=2, hosts_min=2)
    for job_id in (kept, lost, again):
        cluster.all_started(job_id)
    assert victim in cluster.job(again)["hosts"]
    for host in names[2:]:
        cluster.rmx("host", "resume", host)
    cluster.lab.crash(victim)
    try:
        job = cluster.wait(lost)
        assert (job["state"], job["reason"]["code"]) == ("NODE_FAIL", "HostLost")
        assert victim in job["reason"]["message"]
        assert "NF" in cluster.rmx("queue", "--state=NODE_FAIL")
        down = cluster.host_state(victim, "DOWN")
        assert "lost" in down["reason"] or "does not answer" in down["reason"]
        assert victim in cluster.rmx("hosts")
        done = cluster.wait(again)
        assert (done["state"], done["attempt"]) == ("COMPLETED", 2)
        assert victim not in done["hosts"]
        for host in names[1:]:
            assert not cluster.alive(host, "sleep 611")  # the rest of the first attempt was stopped
        assert cluster.job(kept)["state"] == "RUNNING"
        waits = cluster.submit("-w", victim, "--wrap", "true")
        assert "is DOWN" in cluster.rmx("why", waits)
    finally:
        cluster.lab.boot(victim)
    cluster.all_up()
    assert cluster.wait(waits)["state"] == "COMPLETED"
    for rank in range(2):
        assert runs(cluster, again, rank) in (["1", "2"], ["2", "1"])
    go(cluster, kept)
    assert cluster.wait(kept)["state"] == "COMPLETED"
    assert runs(cluster, kept) == ["1"]


@pytest.mark.parametrize(("harm", "mend"), [("cut", "heal"), ("freeze", "thaw"), ("kill_sshd", "start_sshd")])
def test_a_job_outlives_a_short_loss_of_its_host(patient: Cluster, harm: str, mend: str) -> None:
    job_id = patient.post_job(f"{MARK}; echo begin; {GO}; echo end")
    job = patient.wait(job_id, "RUNNING")
    (host,) = job["hosts"]
    follower = Follower(patient, job_id)
    follower.start()
    getattr(patient.lab, harm)(host)
    try:
        silent = patient.host_state(host, "UNKNOWN")
        assert host in silent["reason"]
        assert patient.job(job_id)["state"] == "RUNNING"
        other = patient.wait(patient.post_job("true"))  # meanwhile the rest goes on
        assert other["hosts"] != [host]
    finally:
        getattr(patient.lab, mend)(host)
    patient.all_up()
    assert patient.job(job_id)["state"] == "RUNNING"
    go(patient, job_id)
    done = patient.wait(job_id)
    assert (done["state"], done["attempt"], done["exit"]) == ("COMPLETED", 1, "0:0")
    assert runs(patient, job_id) == ["1"]
    follower.join()
    assert follower.text == patient.log(job_id).encode() == b"begin\nend\n"


class Follower(threading.Thread):
    def __init__(self, cluster: Cluster, job: int) -> None:
        super().__init__()
        self.cluster, self.job = cluster, job
        self.text = b""

    def run(self) -> None:
        for part in Connection(self.cluster.socket).stream("jobs", self.job, "logs", follow=True):
            self.text += part


@pytest.mark.parametrize(("harm", "mend"), [("cut", "heal"), ("freeze", "thaw")])
def test_what_a_lost_host_still_runs_is_stopped_when_it_returns_and_holds_its_share_until_then(
    cluster: Cluster, harm: str, mend: str
) -> None:
    job_id = cluster.post_job(f"{MARK}; [ $RM_ATTEMPT = 2 ] || {{ trap '' TERM; sleep 613; }}")
    (host,) = cluster.wait(job_id, "RUNNING")["hosts"]
    alone = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -q 'slee[p] 613' && exit 1; done; :"
    next_id = cluster.post_job(alone, exclusive=True, hosts_only=[host])
    getattr(cluster.lab, harm)(host)
    try:
        cluster.host_state(host, "DOWN")
        done = cluster.wait(job_id)
        assert (done["state"], done["attempt"]) == ("COMPLETED", 2)
        assert done["hosts"] != [host]
        assert cluster.alive(host, "sleep 613")
    finally:
        getattr(cluster.lab, mend)(host)
    cluster.all_up()
    assert cluster.wait(next_id)["state"] == "COMPLETED", "it shared the host with the stray"
    assert not cluster.alive(host, "sleep 613")
    spool = "ls /var/lib/rm/jobs"
    until(lambda: not cluster.lab.exec(host, ["sh", "-c", spool]).stdout, "and forgotten there")
    after = cluster.job(job_id)
    assert (after["state"], after["attempt"], after["exit"]) == ("COMPLETED", 2, "0:0")


def test_a_fenced_job_ends_on_its_cut_host_before_it_starts_elsewhere(cluster: Cluster) -> None:
    # the first attempt writes down when it was alive, the second one when it began
    beat = "while :; do date +%s%N >/var/tmp/beat.new; mv /var/tmp/beat.new /var/tmp/beat.$SLURM_JOB_ID; done"
    script = f"{MARK}; [ $RM_ATTEMPT = 1 ] || {{ date +%s%N >/var/tmp/begun.$SLURM_JOB_ID; exit; }}; {beat}"
    host, *others = sorted(cluster.hosts())
    for other in others:
        cluster.rmx("host", "drain", other)
    fenced = int(cluster.submit("--fence", "10s", "--wrap", script))
    loose = cluster.post_job(f"{MARK}; [ $RM_ATTEMPT = 2 ] || exec sleep 615")
    for job_id in (fenced, loose):
        cluster.all_started(job_id)
    assert "10s" in cluster.rmx("show", str(fenced))
    for other in others:
        cluster.rmx("host", "resume", other)
    cluster.lab.cut(host)
    try:
        cluster.host_state(host, "DOWN")
        assert cluster.wait(loose)["attempt"] == 2
        job = cluster.job(fenced)
        assert (job["state"], job["attempt"], job["reason"]["code"]) == ("RUNNING", 1, "Lease")
        assert f"until the lease of host {host} has run out" in cluster.rmx("why", str(fenced))
        done = cluster.wait(fenced)
        assert (done["state"], done["attempt"]) == ("COMPLETED", 2)
        assert cluster.alive(host, "sleep 615"), "one without a lease goes on there"
        assert not cluster.alive(host, "beat.new")
        begun = [cluster.read(name, f"/var/tmp/begun.{fenced}") for name in done["hosts"]]
        assert int(cluster.read(host, f"/var/tmp/beat.{fenced}")) < int(begun[0])
    finally:
        cluster.lab.heal(host)
    cluster.all_up()
    until(lambda: not cluster.alive(host, "sleep 615"), "the stray is stopped")


def test_a_job_outlives_its_hosts_agent(patient: Cluster) -> None:
    job_id = patient.post_job(f"{MARK}; {GO}")
    host, supervisor = supervisor_of(patient, job_id)
    since_us = patient.hosts()[host]["since_us"]
    agents = [int(line.split()[0]) for line in patient.alive(host, "rm_agent.py --serve")]
    agents.remove(supervisor)
    patient.lab.exec(host, ["kill", "-9", *map(str, agents)])
    until(lambda: patient.hosts()[host]["since_us"] != since_us, "its end is noticed")
    patient.all_up()
    assert patient.job(job_id)["state"] == "RUNNING"
    go(patient, job_id)
    assert patient.wait(job_id)["exit"] == "0:0"
    assert runs(patient, job_id) == ["1"]


@pytest.mark.parametrize("requeue", [True, False])
def test_a_task_without_its_supervisor_is_lost(patient: Cluster, requeue: bool) -> None:
    job_id = patient.post_job(f"{MARK}; [ $RM_ATTEMPT = 2 ] || exec sleep 614", requeue=requeue)
    host, supervisor = supervisor_of(patient, job_id)
    patient.lab.exec(host, ["kill", "-9", str(supervisor)])
    job = patient.wait(job_id)
    if requeue:
        assert (job["state"], job["attempt"]) == ("COMPLETED", 2)
        assert sorted(runs(patient, job_id)) == ["1", "2"]
    else:
        assert (job["state"], job["reason"]["code"]) == ("NODE_FAIL", "HostLost")
        assert "supervisor" in job["reason"]["message"]
        assert runs(patient, job_id) == ["1"]
    assert not patient.alive(host, "sleep 614")


def supervisor_of(cluster: Cluster, job: int) -> tuple[str, int]:
    """The job's host and the process that watches over it there."""
    (host,) = cluster.wait(job, "RUNNING")["hosts"]
    return host, json.loads(cluster.read(host, f"/var/lib/rm/jobs/{job}.1/meta.json"))["supervisor"]


def test_a_full_disk_drains_its_host_until_there_is_room_and_the_job_goes_elsewhere(cluster: Cluster) -> None:
    full, other = sorted(cluster.hosts())[:2]
    cluster.lab.fill_disk(full)
    try:
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
    (host,) = cluster.wait(job_id, "RUNNING")["hosts"]
    cluster.lab.exec(host, ["touch", f"/var/tmp/go.{job_id}.soon"])
    cluster.lab.fill_disk(host)
    try:
        cluster.lab.exec(host, ["mv", f"/var/tmp/go.{job_id}.soon", f"/var/tmp/go.{job_id}"])
        done = cluster.wait(job_id)
        assert (done["state"], done["exit"]) == ("FAILED", "6:0")
        assert cluster.log(job_id).startswith("begin\n")
    finally:
        cluster.lab.free_disk(host)


def test_a_changed_host_key_is_refused_until_it_is_accepted(cluster: Cluster) -> None:
    name = sorted(cluster.hosts())[3]
    old = cluster.client.get("hosts", name, "key")
    assert old["presented"] == old["pinned"]
    job_id = cluster.post_job("exec sleep 615", hosts_only=[name], requeue=False)
    cluster.wait(job_id, "RUNNING")
    cluster.lab.change_host_key(name)
    found: dict[str, Any] = until(
        lambda: "CHANGED" in (host := cluster.hosts()[name])["reason"] and host, "the change is noticed"
    )
    assert found["state"] in ("UNKNOWN", "DOWN")
    assert old["pinned"]["fingerprint"] in found["reason"]
    assert f"rmx host accept-key {name}" in found["reason"]
    assert cluster.wait(job_id)["state"] == "NODE_FAIL"
    shown = cluster.client.get("hosts", name, "key")
    assert shown["pinned"] == old["pinned"]
    assert shown["presented"] != shown["pinned"]
    wrong = cluster.run("host", "accept-key", name, "--fingerprint", "SHA256:" + "A" * 43)
    assert (wrong.returncode, wrong.stdout) == (7, "")
    assert "nothing was accepted" in wrong.stderr
    assert cluster.hosts()[name]["state"] == "DOWN"
    cluster.rmx("host", "accept-key", name, "--fingerprint", shown["presented"]["fingerprint"])
    cluster.all_up()
    until(lambda: not cluster.alive(name, "sleep 615"), "the stray attempt is stopped")
    assert cluster.wait(cluster.post_job("true", hosts_only=[name]))["state"] == "COMPLETED"


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


def test_the_daemon_said_nothing_of_defects(cluster: Cluster, patient: Cluster) -> None:
    """Whatever happened in this module: no traceback, and no 'defect of rm' in the log."""
    for log in (cluster.log_file, patient.log_file):
        text = Path(log).read_text()
        assert "Traceback" not in text
        assert "defect" not in text


def test_a_host_that_remembers_another_leader_is_drained_and_used_no_less(patient: Cluster) -> None:
    name = "z1h2"
    patient.lab.exec(name, ["sh", "-c", "echo 1000000 >/var/lib/rm/epoch"])
    job = patient.submit("--hosts", name, "--wrap", f"{MARK}")
    assert patient.wait(job, *FINAL)["state"] == "COMPLETED"
    assert runs(patient, job) == ["1"]
    assert "does not know" in patient.host_state(name, "DRAINED")["reason"]
    patient.rmx("host", "resume", name)
    patient.restart()  # its epoch counts at the hello: nothing is refused any more
    patient.all_up()
    again = patient.submit("--hosts", name, "--wrap", "true")
    assert patient.wait(again, *FINAL)["state"] == "COMPLETED"
    assert patient.hosts()[name]["state"] == "UP"


def test_a_launch_that_was_on_its_way_to_a_frozen_host_never_starts_late(cluster: Cluster) -> None:
    frozen = "z2h2"
    cluster.lab.freeze(frozen)
    jobs = [cluster.submit("--exclude", "z1h1,z1h2", "--wrap", f"{MARK}") for _ in range(6)]
    for job in jobs:
        assert cluster.wait(job, *FINAL, wait_s=90)["state"] == "COMPLETED"
    cluster.host_state(frozen, "DOWN")
    before = {job: runs(cluster, job) for job in jobs}
    cluster.lab.thaw(frozen)
    cluster.all_up()
    probe = cluster.submit("--hosts", frozen, "--wrap", "true")  # comes after what had waited there
    assert cluster.wait(probe, *FINAL)["state"] == "COMPLETED"
    assert {job: runs(cluster, job) for job in jobs} == before
    assert all(len(lines) == 1 for lines in before.values())
