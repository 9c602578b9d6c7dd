"""An rm that gives way to a newer one, and comes back, while jobs run, as docs/backup.md says.

The older one is made of this repository's history: the newest commit whose schema is one revision older.
Where there is no history, tests/contract/test_store_sql.py still upgrades stored data of every revision.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from rm.adapters.playbook.shipped import agents_version
from rm.adapters.store.migrate import MIGRATIONS, head
from tests.cluster import RMX, WAIT_S, Cluster, until
from tests.e2e.conftest import MakeLab

pytestmark = pytest.mark.lab
ROOT = Path(__file__).parents[2]
PARTS = ("rm", "agents", "playbooks", "migrations", "examples", "rm.toml")


def git(*words: str) -> bytes:
    """What git prints; nothing where it fails."""
    try:
        done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, check=False)
    except OSError:
        return b""
    return b"" if done.returncode else done.stdout


def commit_before_the_newest_revision() -> str:
    """ "" without history."""
    (newest,) = MIGRATIONS.resolve().glob(f"versions/r{head()}_*.py")
    if not newest.is_relative_to(ROOT):
        return ""
    added = git("log", "--diff-filter=A", "--format=%H", "--", str(newest.relative_to(ROOT))).decode().split()
    return git("rev-parse", "--verify", f"{added[-1]}^").decode().strip() if added else ""


@pytest.fixture(scope="module")
def older() -> Iterator[Path]:
    """The `rmx` of an rm that is installed beside this one."""
    commit = commit_before_the_newest_revision()
    if not commit:
        pytest.skip("needs the history of this repository")
    with tempfile.TemporaryDirectory(prefix="rm-older-") as directory:
        Path(directory).chmod(0o755)
        parts = [part for part in PARTS if git("cat-file", "-t", f"{commit}:{part}")]
        with tarfile.open(fileobj=BytesIO(git("archive", commit, *parts))) as archive:
            archive.extractall(directory, filter="data")
        program = Path(directory, "rmx")
        start = "import sys; from rm.cli.start import main; sys.exit(main())"
        program.write_text(f"#!/bin/sh\nPYTHONPATH={directory} exec {sys.executable} -c '{start}' \"$@\"\n")
        program.chmod(0o755)
        yield program


@pytest.fixture
def cluster(make_module_lab: MakeLab, older: Path) -> Iterator[Cluster]:
    """Its daemon, playbooks and agents are the older rm's."""
    with tempfile.TemporaryDirectory(prefix="rm-cluster-") as directory:
        Path(directory).chmod(0o755)
        made = Cluster(make_module_lab(zones=1, hosts=2), Path(directory), {})
        made.program = older
        made.rmx("playbook", "run", "bootstrap", "--inventory", made.lab.inventory, timeout=4 * WAIT_S)
        made.start()
        try:
            made.rmx("host", "import", made.lab.inventory)
            made.all_up()
            yield made
        finally:
            made.stop()


def test_jobs_run_through_an_upgrade_and_through_the_way_back(cluster: Cluster, older: Path) -> None:
    def until_there(name: str) -> str:
        return f"echo began; until [ -e /var/tmp/{name} ]; do sleep 0.05; done; echo ended"

    def step(name: str) -> None:
        for host in cluster.hosts():
            cluster.lab.exec(host, ["touch", f"/var/tmp/{name}"])

    def agents() -> set[str]:
        return {host["agent_version"] for host in cluster.hosts().values()}

    def run_agents() -> None:
        cluster.rmx("playbook", "run", "agents", timeout=4 * WAIT_S)

    over = cluster.submit("--wrap", "echo over")
    assert cluster.wait(over)["state"] == "COMPLETED"
    quiet = "--low-comm"  # an agent that profiles a job is renewed later
    waits = cluster.submit("--hold", "--wrap", "echo waited")
    goes_on = cluster.submit(quiet, "--wrap", until_there("later"))
    gang = cluster.submit(quiet, "--nodes=2", "--ntasks-per-node=1", "--wrap", until_there("upgraded"))
    for job in (goes_on, gang):
        cluster.all_started(job)
    started = {job: [t["started_us"] for t in cluster.job(job)["tasks"]] for job in (goes_on, gang)}
    before = agents()

    # looked at with the newer rm while the older works
    cluster.program = RMX
    checked = cluster.rmx("upgrade", "--check")
    assert f"and this rm needs {head()}." in checked
    assert "The upgrade will work" in checked
    assert before.isdisjoint({agents_version()}) == ("other agents than this rm's" in checked)
    cluster.program = older
    backup = cluster.directory / "before.db"
    cluster.rmx("backup", backup)
    cluster.stop()

    cluster.program = RMX
    cluster.start()
    cluster.all_up()
    assert list((cluster.directory / "state").glob("rm.sqlite3.0*.backup"))
    assert f"The database has schema {head()}, as this rm needs." in cluster.rmx("upgrade", "--check")
    for job, at_us in started.items():
        assert cluster.job(job)["state"] == "RUNNING"
        assert [t["started_us"] for t in cluster.job(job)["tasks"]] == at_us
    assert cluster.wait(cluster.submit("--wrap", "echo by the agents that are there"))["state"] == "COMPLETED"
    for host in cluster.hosts():
        cluster.write(host, "/opt/rm/agents/rm_of_an_older_rm.py", "")
    run_agents()
    until(lambda: agents() == {agents_version()}, "the agents are renewed", 4 * WAIT_S)
    assert "other agents" not in cluster.rmx("upgrade", "--check")
    step("upgraded")
    assert (cluster.wait(gang)["state"], cluster.job(gang)["attempt"]) == ("COMPLETED", 1)
    assert [cluster.log(gang, rank) for rank in (0, 1)] == ["began\nended\n"] * 2
    assert cluster.log(over) == "over\n"
    new = cluster.submit("--wrap", "echo new")
    assert cluster.wait(new)["state"] == "COMPLETED"
    cluster.stop()

    # and back: never with the newer database
    cluster.program = older
    refused = cluster.run("daemon")
    assert refused.returncode == 9
    assert "newer" in refused.stderr
    assert "Traceback" not in refused.stderr
    cluster.program = RMX
    told = cluster.rmx("restore", backup)
    assert f"may have run since: {waits}." in told
    assert f"Not over in the backup: {goes_on}, {gang}." in told
    cluster.program = older
    cluster.start()
    cluster.all_up()
    for host in cluster.hosts():
        cluster.rmx("host", "drain", host)
    run_agents()
    until(lambda: agents() == before, "the older agents are back", 4 * WAIT_S)
    for host in cluster.hosts():
        cluster.rmx("host", "resume", host)
    assert [t["started_us"] for t in cluster.job(goes_on)["tasks"]] == started[goes_on]
    assert cluster.wait(gang)["state"] == "COMPLETED"
    cluster.refused(4, "show", new)
    step("later")
    assert (cluster.wait(goes_on)["state"], cluster.job(goes_on)["attempt"]) == ("COMPLETED", 1)
    assert cluster.log(goes_on) == "began\nended\n"
    assert cluster.job(waits)["state"] == "PENDING"
    cluster.rmx("release", waits)
    assert cluster.wait(waits)["state"] == "COMPLETED"
