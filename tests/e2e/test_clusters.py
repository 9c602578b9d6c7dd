"""Two clusters and one host; a database that is lost, restored or old, while jobs run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, until
from tests.e2e.conftest import MakeCluster

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    # what waits in a stopped agent is refused for its cluster, not for its age
    return make_cluster({"hosts": {"down_after_s": 900.0}}, zones=1, hosts=2, gpus_per_host=0)


@pytest.fixture
def other(cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """A second daemon with a database of its own, which knows the same hosts."""
    made = Cluster(cluster.lab, tmp_path, {})
    made.start()
    try:
        yield made
    finally:
        made.stop()


def test_a_second_cluster_touches_nothing_until_an_administrator_says_so(
    cluster: Cluster, other: Cluster
) -> None:
    here, there = "z1h1", "z1h2"
    staying = cluster.submit("--hosts", here, "--wrap", "while [ ! -e /var/tmp/go ]; do sleep 0.1; done")
    killed = cluster.submit("--hosts", there, "--wrap", "exec sleep 600")
    for job in (staying, killed):
        cluster.wait(job, "RUNNING")
    agent = agent_of(cluster, there)
    other.rmx("host", "import", str(cluster.lab.inventory))
    for name in (here, there):
        reason = refusal(other, name)
        assert cluster.socket in reason  # who leads it,
        assert f"rmx host adopt {name}" in reason  # and what to do
    assert {cluster.job(job)["state"] for job in (staying, killed)} == {"RUNNING"}

    assert f"runs jobs of cluster {other_id(other, there)}: {killed}" in other.refused(
        6, "host", "adopt", there
    )
    # an order that the host's agent reads when the host belongs to somebody else
    cluster.lab.exec(there, ["kill", "-STOP", agent])
    late = cluster.submit("--hosts", there, "--wrap", "touch /var/tmp/late")
    cluster.wait(late, "CONFIGURING")
    other.rmx("host", "adopt", "--stop-jobs", there)
    other.host_state(there, "UP")
    cluster.lab.exec(there, ["kill", "-CONT", agent])
    until(lambda: cluster.lab.exec(there, ["kill", "-0", agent]).returncode != 0, "the old agent has ended")
    spool = cluster.lab.exec(there, ["ls", "-A", "/var/lib/rm/jobs"]).stdout.decode().split()
    assert f"{late}.1" not in spool
    assert cluster.lab.exec(there, ["ls", "/var/tmp/late"]).returncode != 0
    first = other.submit("--hosts", there, "--wrap", "echo mine")
    assert first == 1  # an id that the host knew from the other cluster
    assert other.wait(first)["state"] == "COMPLETED"
    assert other.log(first) == "mine\n"
    refusal(cluster, there)

    cluster.lab.exec(here, ["touch", "/var/tmp/go"])
    assert cluster.wait(staying)["state"] == "COMPLETED"
    assert cluster.wait(killed)["state"] == "FAILED"  # by an administrator of the other cluster
    cluster.rmx("host", "adopt", there)  # and back
    cluster.all_up()
    refusal(other, there)


def agent_of(cluster: Cluster, host: str) -> str:
    """The process of the agent there; supervisors, which are forks of it, are younger."""
    return cluster.lab.exec(host, ["pgrep", "-of", "rm_agent.py --serve"]).stdout.decode().strip()


def refusal(cluster: Cluster, host: str) -> str:
    """What the daemon says of a host as soon as it knows that the host belongs to another cluster."""
    said: str = until(
        lambda: f"{host} belongs to cluster " in (reason := cluster.hosts()[host]["reason"]) and reason,
        f"{host} belongs to another cluster",
    )
    return said


def other_id(cluster: Cluster, host: str) -> str:
    """The id of the cluster that the host says it belongs to."""
    return refusal(cluster, host).partition(" belongs to cluster ")[2].partition(" ")[0]


def test_a_daemon_whose_database_is_deleted_ends_at_once_and_nothing_is_lost(cluster: Cluster) -> None:
    job = cluster.submit("--wrap", "while [ ! -e /var/tmp/on ]; do sleep 0.1; done; echo done")
    cluster.wait(job, "RUNNING")
    database = cluster.directory / "state" / "rm.sqlite3"
    for file in database.parent.glob("rm.sqlite3*"):
        file.unlink()
    assert cluster.daemon is not None
    assert cluster.daemon.wait(60) == 9  # without a request
    assert f"rmx restore {database}.rescued" in cluster.log_file.read_text()
    assert cluster.run("daemon").returncode == 9  # and no new cluster begins
    cluster.rmx("restore", f"{database}.rescued")
    cluster.start()
    cluster.lab.exec(cluster.job(job)["tasks"][0]["host"], ["touch", "/var/tmp/on"])
    assert cluster.wait(job)["state"] == "COMPLETED"
    assert cluster.log(job) == "done\n"
    assert cluster.job(job)["attempt"] == 1


def test_an_older_backup_goes_on_with_what_the_hosts_run(cluster: Cluster, tmp_path: Path) -> None:
    """The rows of docs/backup.md: jobs that run, that ended, that began and that were submitted meanwhile."""
    here, there = "z1h1", "z1h2"

    def step(name: str) -> None:
        for host in (here, there):
            cluster.lab.exec(host, ["touch", f"/var/tmp/{name}"])

    def until_there(name: str) -> str:
        return f"echo $$ >>/var/tmp/began.$SLURM_JOB_ID; until [ -e /var/tmp/{name} ]; do sleep 0.05; done"

    def began(job: int) -> int:
        return sum(cluster.read(host, f"/var/tmp/began.{job}").count("\n") for host in (here, there))

    going = cluster.submit("--wrap", f"{until_there('go.on')}; echo went on")
    ended = cluster.submit("--wrap", f"{until_there('end')}; echo ended")
    waits = cluster.submit("--hold", "--wrap", f"{until_there('go.on')}; echo waited")
    other = cluster.submit("--hold", "--hosts", here, "--wrap", f"{until_there('end')}; exit 3")
    array = cluster.submit("--hold", "--array=0-2", "--wrap", "true")
    for job in (going, ended):
        cluster.all_started(job)
    file = tmp_path / "backup.db"
    cluster.rmx("backup", file)

    step("end")
    assert cluster.wait(ended)["state"] == "COMPLETED"
    assert cluster.run("release", waits, other, array).returncode == 0
    assert cluster.wait(other)["state"] == "FAILED"
    until(lambda: cluster.job(array)["state"] == "COMPLETED", "the array has ended")
    lost = cluster.submit("--hosts", here, "--wrap", "exec sleep 617")
    for job in (waits, lost):
        cluster.all_started(job)
    started = [task["started_us"] for task in cluster.job(going)["tasks"]]
    for _ in range(2):  # the hosts obey epochs that the backup does not know
        cluster.restart()
        cluster.all_up()
        for host in (here, there):
            cluster.wait(cluster.submit("--hosts", host, "--wrap", "true"))
    epoch = cluster.client.get("status")["daemon"]["epoch"]
    cluster.stop()
    told = cluster.rmx("restore", file)
    assert f"Held, since they waited in the backup and may have run since: {waits}, {other}, {array}." in told
    assert f"Not over in the backup: {going}, {ended}." in told
    cluster.start()
    cluster.all_up()

    assert cluster.client.get("status")["daemon"]["epoch"] < epoch
    assert "was an older copy of the database restored?" in cluster.log_file.read_text()
    assert [task["started_us"] for task in cluster.job(going)["tasks"]] == started
    until(lambda: not cluster.alive(here, "^sleep 617"), "the job that nobody knows any more is stopped")
    again = cluster.wait(ended)  # as its host remembers, which has discarded it: its log had come home
    assert (again["state"], again["attempt"], cluster.log(ended)) == ("COMPLETED", 1, "ended\n")
    assert [cluster.job(job)["state"] for job in (waits, other, array)] == ["PENDING"] * 3
    assert "it may have run since the backup was made" in cluster.job(waits)["reason"]["message"]
    until(
        lambda: "attempt 1 of it has run: exited with code 3" in cluster.rmx("show", other),
        "what is remembered",
    )
    cluster.rmx("cancel", other, array)
    newer = cluster.submit("--wrap", "echo new")
    assert newer >= waits + 10_000
    cluster.rmx("release", waits)
    step("go.on")
    assert [cluster.wait(job)["state"] for job in (going, waits, newer)] == ["COMPLETED"] * 3
    assert (cluster.log(going), cluster.job(going)["attempt"]) == ("went on\n", 1)
    assert (cluster.log(waits), cluster.log(newer)) == ("waited\n", "new\n")
    assert (began(going), began(ended), began(waits), began(other)) == (1, 1, 2, 1)
    cluster.refused(4, "show", lost)
