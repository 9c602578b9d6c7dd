"""The database under a running daemon blinks, and the leader itself vanishes: jobs go on, none is lost or
doubled, and a second daemon takes over."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cluster import RMX, WAIT_S, Cluster, until
from tests.e2e.conftest import MakeCluster
from tests.postgres import NOBODY, Server, running

pytestmark = [pytest.mark.lab, pytest.mark.postgres]

MARK = "echo $RM_ATTEMPT >>/var/tmp/blink.$SLURM_JOB_ID"
GO = "while [ ! -e /var/tmp/go.$SLURM_JOB_ID ]; do sleep 0.05; done"


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    """A small one, for the tables alone."""
    place = Path(tempfile.mkdtemp(prefix="rm-tables-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size=48m,mode=0700,uid={NOBODY},gid={NOBODY}", "none", place]
    if os.geteuid() == 0:
        subprocess.run(mount, check=True)
    try:
        yield place
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", "-l", place], check=True)
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def server(disk: Path) -> Iterator[Server]:
    with running() as made:
        with made.connect() as c:
            c.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
            c.execute("CREATE DATABASE rm TABLESPACE small")
        yield made


def fill(disk: Path) -> None:
    """To the last byte."""
    with (disk / "filler").open("wb", 0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1024))


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster, server: Server) -> Cluster:
    # the lease is long enough for a leader that waits for a processor not to lose it to the second daemon
    database = {"daemon": {"database": server.url("rm"), "lease_s": 8.0}}
    return make_cluster(database, zones=1, hosts=2, gpus_per_host=0)


def said(cluster: Cluster) -> str:
    return str(cluster.client.get("status").get("waiting", ""))


def ran(cluster: Cluster, job: int) -> list[str]:
    return [
        line
        for host in cluster.lab.hosts
        for line in cluster.read(host.name, f"/var/tmp/blink.{job}").split()
    ]


def go(cluster: Cluster, job: int) -> None:
    for host in cluster.lab.hosts:
        cluster.lab.exec(host.name, ["touch", f"/var/tmp/go.{job}"])


@pytest.mark.parametrize("how", ["crash", "freeze", "full disk"])
def test_a_database_that_blinks_is_waited_for(
    cluster: Cluster, server: Server, disk: Path, tmp_path: Path, how: str
) -> None:
    if how == "full disk" and os.geteuid() != 0:
        pytest.skip("needs root, to mount a small disk")
    (script := tmp_path / "script").write_text(f"#!/bin/sh\n{MARK}\n# {secrets.token_hex(500_000)}\n")
    assert cluster.daemon is not None
    pid = cluster.daemon.pid
    ends_meanwhile = cluster.post_job(f"{MARK}; {GO}")
    cluster.wait(ends_meanwhile, "RUNNING")
    if how == "crash":
        server.end(signal.SIGQUIT)
    elif how == "full disk":
        fill(disk)
    else:
        server.signal_all(signal.SIGSTOP)
    try:
        argv = [RMX, "--config", cluster.config, "submit", "--parsable", script]
        submits = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/")
        until(lambda: "waited" in said(cluster), "the daemon says that it waits for its database")
        shown = cluster.rmx("status")
        assert "waiting   The daemon has waited" in shown
        assert "503" in _status_line(cluster)
        go(cluster, ends_meanwhile)
        script = f"jobs/{ends_meanwhile}.1/script"
        until(lambda: not any(cluster.alive(h.name, script) for h in cluster.lab.hosts), "it has ended")
    finally:
        if how == "crash":
            server.start()
        elif how == "full disk":
            (disk / "filler").unlink()
        else:
            server.signal_all(signal.SIGCONT)
    out, err = submits.communicate(timeout=WAIT_S)
    assert submits.returncode == 0, err
    late = int(out)
    assert [cluster.wait(j)["state"] for j in (ends_meanwhile, late)] == ["COMPLETED"] * 2
    assert ran(cluster, ends_meanwhile) == ran(cluster, late) == ["1"]
    assert len(cluster.client.get("jobs")["jobs"]) == late  # none was made twice
    assert (cluster.daemon.pid, cluster.daemon.poll()) == (pid, None)
    until(lambda: said(cluster) == "", "it waits no more")


def _status_line(cluster: Cluster) -> str:
    argv = ["curl", "-si", "--max-time", "10", "--unix-socket", cluster.socket, "http://rm/v1/queue"]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    assert "retry-after: " in answer.lower()
    return answer.splitlines()[0]


class Second:
    """Another daemon on the same database, as on another machine: a socket and a state of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.directory = cluster.directory / "second"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        self.socket = str(self.directory / "rm.sock")
        config = self.directory / "rm.toml"
        text = cluster.config.read_text()
        text = text.replace(cluster.socket, self.socket)
        config.write_text(text.replace(str(cluster.directory / "state"), str(self.directory / "state")))
        self.log_file = self.directory / "daemon.log"
        with self.log_file.open("ab") as log:
            argv = [RMX, "--config", config, "daemon"]
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")

    def log(self) -> str:
        return self.log_file.read_text()

    def waits(self) -> bool:
        return "another daemon leads" in self.log()

    def leads(self) -> bool:
        assert self.process.poll() is None, self.log()
        return "leads with epoch" in self.log()

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(WAIT_S)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_second_daemon_takes_over_from_one_that_vanishes(cluster: Cluster, how: signal.Signals) -> None:
    first = cluster.daemon
    assert first is not None
    told = cluster.post_job("echo told; echo missed >&2")
    cluster.wait(told)
    until(
        lambda: not cluster.lab.exec(cluster.job(told)["hosts"][0], ["ls", "/var/lib/rm/jobs"]).stdout,
        "its host forgets it",
    )
    job = cluster.post_job(f"{MARK}; {GO}")
    cluster.wait(job, "RUNNING")
    second = Second(cluster)
    try:
        until(second.waits, "the second daemon waits")
        assert "leads with epoch" not in second.log()
        until(
            lambda: cluster.run("--socket", second.socket, "show", job).returncode == 0,
            "the second names the first",
        )
        first.send_signal(how)
        until(second.leads, "the second daemon leads")
        if how is signal.SIGSTOP:
            first.send_signal(signal.SIGCONT)
        assert first.wait(WAIT_S) != 0  # the woken one ends by itself
        go(cluster, job)
        theirs = cluster.client_at(second.socket)
        ended = until(
            lambda: (found := theirs.get("jobs", job)["job"])["state"] == "COMPLETED" and found, "it ends"
        )
        assert ended["attempt"] == 1
        assert ran(cluster, job) == ["1"]
        # the logs of the first daemon's jobs are where the second finds them
        shown = cluster.run("--socket", second.socket, "logs", told)
        assert (shown.returncode, shown.stdout) == (0, "told\nmissed\n"), shown.stderr
    finally:
        second.end()
        first.kill()  # it has ended by itself, unless the test failed
        first.wait(WAIT_S)
        cluster.start()
        cluster.all_up()


@pytest.fixture(scope="module")
def on_a_file(make_cluster: MakeCluster) -> Cluster:
    return make_cluster({}, zones=1, hosts=1, gpus_per_host=0)


def test_a_file_that_another_process_locks_is_waited_for(on_a_file: Cluster) -> None:
    cluster = on_a_file
    pid = cluster.daemon.pid if cluster.daemon else 0
    with closing(sqlite3.connect(cluster.directory / "state/rm.sqlite3", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        argv = [RMX, "--config", cluster.config, "submit", "--parsable", "--wrap", MARK]
        submits = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/")
        until(lambda: "locked" in said(cluster), "the daemon says that its database is locked")
    out, err = submits.communicate(timeout=WAIT_S)
    assert submits.returncode == 0, err
    assert cluster.wait(int(out))["state"] == "COMPLETED"
    assert cluster.daemon is not None
    assert (cluster.daemon.pid, cluster.daemon.poll()) == (pid, None)
    assert "the database is back" in cluster.log_file.read_text()
