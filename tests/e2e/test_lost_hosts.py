"""Hosts that are silent for too long: given up, with what it costs, and what happens when they come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import FINAL, LOSING, WAIT_S, Cluster, until
from tests.e2e.conftest import MakeCluster
from tests.e2e.marks import GO, MARK, go, no_defects, runs

pytestmark = pytest.mark.lab  # each gives a host up, after some 15 s
LONG = 20_000  # bytes of a script that fits into what a host takes unread
GIVEN_UP = {**LOSING, "hosts": {"down_after_s": 8.0}}


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(GIVEN_UP, zones=2, hosts=4, gpus_per_host=2, zone_delay_ms=0)


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.tidy()


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
    until(lambda: [runs(cluster, again, rank) for rank in range(2)] == [["1"]] * 2, "its tasks have begun")
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


@pytest.mark.parametrize(("harm", "mend"), [("cut", "heal"), ("freeze", "thaw")])
def test_what_a_lost_host_still_runs_is_stopped_when_it_returns_and_holds_its_share_until_then(
    cluster: Cluster, harm: str, mend: str
) -> None:
    job_id = cluster.post_job(f"{MARK}; [ $RM_ATTEMPT = 2 ] || {{ trap '' TERM; sleep 613; }}")
    (host,) = cluster.wait(job_id, "RUNNING")["hosts"]
    until(lambda: cluster.alive(host, "^sleep 613"), "it sleeps")
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
    write = "date +%s%N >/var/tmp/beat.new; mv /var/tmp/beat.new /var/tmp/beat.$SLURM_JOB_ID"
    beat = f"while :; do {write}; sleep 0.05; done"
    script = f"{MARK}; [ $RM_ATTEMPT = 1 ] || {{ date +%s%N >/var/tmp/begun.$SLURM_JOB_ID; exit; }}; {beat}"
    host, *others = sorted(cluster.hosts())
    for other in others:
        cluster.rmx("host", "drain", other)
    fenced = int(cluster.submit("--fence", "20s", "--wrap", script))
    loose = cluster.post_job(f"{MARK}; [ $RM_ATTEMPT = 2 ] || exec sleep 615")
    for job_id in (fenced, loose):
        cluster.all_started(job_id)
    assert "20s" in cluster.rmx("show", str(fenced))
    for other in others:
        cluster.rmx("host", "resume", other)
    cluster.lab.cut(host)
    try:
        job = until(
            lambda: (job := cluster.job(fenced))["reason"] and job, "the job waits for the lease of its host"
        )
        assert (job["state"], job["attempt"], job["reason"]["code"]) == ("RUNNING", 1, "Lease")
        assert f"until the lease of host {host} has run out" in cluster.rmx("why", str(fenced))
        assert cluster.wait(loose)["attempt"] == 2
        done = cluster.wait(fenced, wait_s=3 * WAIT_S)  # half a minute passes until its lease is over
        assert (done["state"], done["attempt"]) == ("COMPLETED", 2)
        assert cluster.alive(host, "sleep 615"), "one without a lease goes on there"
        assert not cluster.alive(host, f"jobs/{fenced}.1/script")
        begun = [cluster.read(name, f"/var/tmp/begun.{fenced}") for name in done["hosts"]]
        assert int(cluster.read(host, f"/var/tmp/beat.{fenced}")) < int(begun[0])
    finally:
        cluster.lab.heal(host)
    cluster.all_up()
    until(lambda: not cluster.alive(host, "sleep 615"), "the stray is stopped")


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


def test_a_launch_that_has_reached_a_frozen_host_never_starts_late(cluster: Cluster) -> None:
    """The host's kernel has the launch when the host is cut off: it learns nothing of the connection's end,
    and its agent reads the launch when it thaws."""
    elsewhere, frozen = "z2h1", "z2h2"
    cluster.rmx("host", "drain", elsewhere)
    cluster.lab.freeze(frozen)
    script = f"{MARK}; : {'x' * LONG}"
    job = cluster.post_job(script, hosts_only=[elsewhere, frozen])
    assert cluster.wait(job, "CONFIGURING")["hosts"] == [frozen]
    until(lambda: unread_bytes(cluster, frozen) > LONG, "the launch is there")
    cluster.lab.cut(frozen)
    assert unread_bytes(cluster, frozen) > LONG, "the connection had ended before"
    cluster.rmx("host", "resume", elsewhere)
    again = cluster.wait(job)
    assert (again["state"], again["attempt"], runs(cluster, job)) == ("COMPLETED", 2, ["2"])
    cluster.lab.thaw(frozen)
    until(lambda: unread_bytes(cluster, frozen) == 0, "the launch is read")
    cluster.lab.heal(frozen)
    cluster.all_up()
    probe = cluster.submit("--hosts", frozen, "--wrap", "true")  # comes after what had waited there
    assert cluster.wait(probe, *FINAL)["state"] == "COMPLETED"
    assert runs(cluster, job) == ["2"]


def unread_bytes(cluster: Cluster, host: str) -> int:
    """What has arrived at a host over TCP, and nobody there has read."""
    (init,) = (one.init for one in cluster.lab.statuses() if one.name == host)
    lines = Path(f"/proc/{init}/net/tcp").read_text().splitlines()[1:]
    return sum(int(line.split()[4].partition(":")[2], 16) for line in lines)


def test_the_daemon_said_nothing_of_defects(cluster: Cluster) -> None:
    no_defects(cluster)
