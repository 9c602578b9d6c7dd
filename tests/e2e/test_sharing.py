"""What docs/sharing.md types under "A lab with three accounts", on real hosts: accounts, QOS, limits,
preemption and a reservation."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import RMX, WAIT_S, Cluster, until
from tests.e2e.conftest import MakeCluster
from tests.e2e.marks import no_defects
from tests.postgres import running

pytestmark = [pytest.mark.lab, pytest.mark.postgres]
HEADING = "## A lab with three accounts\n"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Of a database of a real PostgreSQL."""
    with running() as server:
        with server.connect() as connection:
            connection.execute("CREATE DATABASE rm")
        yield server.url("rm")


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster, url: str) -> Cluster:
    """On PostgreSQL, since most other tests have SQLite."""
    return make_cluster({"jobs": {"grace_s": 2.0}, "daemon": {"database": url}}, zones=1, hosts=2)


def typed() -> list[str]:
    text = Path("docs/sharing.md").read_text(encoding="utf-8")
    _, _, part = text.partition(HEADING)
    assert part, "the heading is there"
    return [line.strip() for line in part.split("\n## ")[0].splitlines() if line.startswith("    ")]


def is_in(cluster: Cluster, job: int, state: str) -> None:
    cluster.wait(job, state)


def restarted(cluster: Cluster, job: int, attempt: int) -> None:
    until(
        lambda: (found := cluster.job(job))["state"] == "RUNNING" and found["attempt"] == attempt,
        f"job {job} runs in attempt {attempt}",
    )


def preempted(cluster: Cluster) -> None:
    cluster.wait(2, "RUNNING")
    first = cluster.job(1)
    assert (first["state"], first["preempted_by"]) == ("PENDING", 2)


# what has become true after a line that begins so, or ends so
AFTER: dict[str, Callable[[Cluster], Any]] = {
    "rmx submit --account biology --qos batch": lambda c: is_in(c, 1, "RUNNING"),
    "rmx submit --qos urgent": preempted,
    "rmx submit --exclusive --time 5": lambda c: is_in(c, 3, "RUNNING"),
    "rmx cancel 3": lambda c: is_in(c, 4, "COMPLETED"),
    "rmx submit --account teaching": lambda c: is_in(c, 5, "COMPLETED"),
    "rmx reservation delete course": lambda c: restarted(c, 1, 2),
    "rmx cancel 1": lambda c: is_in(c, 1, "CANCELLED"),
}
# and what it says
SAYS = {
    "rmx show 1": ["PENDING", "preempted by job 2 of QOS urgent"],
    "rmx why 4": [
        "(AssocGrpJobsLimit) account physics has 2 of at most 2 running jobs, and needs 1 more",
        "used_by=root 2",
    ],
    "rmx submit --account biology --reservation": ["course is not for root, or not for account biology"],
    "rmx reservation show": ["course", "ACTIVE", "accounts teaching"],
    "sshare -a -l": ["physics", "biology", "teaching"],
}  # fmt: skip
REFUSED = "rmx submit --account biology --reservation"


def typing(cluster: Cluster, line: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A line of rmx has no more than words, or it fails: it needs no shell, nor a process that loads rm."""
    program, *words = shlex.split(line)
    if program == "rmx":
        return cluster.run(*words)
    everything = {**os.environ, "RM_CONFIG": str(cluster.config), **env}
    return subprocess.run(
        ["/bin/sh", "-c", line], env=everything, cwd="/", capture_output=True, text=True, timeout=WAIT_S
    )


def test_what_is_typed_does_what_is_said(cluster: Cluster, tmp_path: Path) -> None:
    cluster.rmx("slurm-shims", tmp_path)
    env = {"PATH": f"{RMX.parent}:{tmp_path}:{os.environ['PATH']}"}
    lines = typed()
    met = {begin for begin in (*AFTER, *SAYS) if any(line.startswith(begin) for line in lines)}
    assert met == {*AFTER, *SAYS}, "the document types what is checked here"
    for line in lines:
        done = typing(cluster, line, env)
        assert bool(done.returncode) == line.startswith(REFUSED), (line, done.stdout, done.stderr)
        for begin, words in SAYS.items():
            if line.startswith(begin):
                for word in words:
                    assert word in done.stdout + done.stderr, (line, done.stdout, done.stderr)
        for begin, check in AFTER.items():
            if line.startswith(begin):
                check(cluster)
    hosts = {task["host"] for task in cluster.job(5)["tasks"]}
    assert hosts.isdisjoint(task["host"] for task in cluster.job(2)["tasks"]), "it ran where nobody was"
    assert cluster.log(5).strip() in hosts
    done = [(act["verb"], act["target"]) for act in json.loads(cluster.rmx("audit", "--json"))["acts"]]
    for deed in (
        ("add_account", "account physics"), ("put_members", "account teaching user root"),
        ("add_qos", "qos urgent"), ("create_reservation", "reservation course"),
        ("delete_reservation", "reservation course"),
    ):  # fmt: skip
        assert deed in done, "the log of administrators' acts names what each was about"
    no_defects(cluster)
