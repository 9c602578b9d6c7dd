"""A lab, one or two daemons and their database, made for a benchmark of faults, and removed afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.nemesis.daemon import RMX, Daemon
from bench.nemesis.database import Database, Postgres, Sqlite
from bench.nemesis.door import Doors, NoAnswer
from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.run import run_playbook
from rm.adapters.playbook.shipped import shipped_directory
from rm.errors import RmError
from rm.lab import Lab, LabSpec, up
from rm.lab import syscalls as sc
from rm.playbook.inventory.hosts import to_hosts
from rm.playbook.inventory.inventory import parse

PATIENCE_S = 120.0
CPUS, GPUS = 4, 2


@dataclass(frozen=True)
class Site:
    """`notes` is the oracle's directory, which every host sees as its own."""

    lab: Lab
    daemons: list[Daemon]
    database: Database
    notes: Path

    def doors(self) -> Doors:
        return Doors([daemon.socket for daemon in self.daemons])

    def daemon(self, name: str) -> Daemon:
        return next(daemon for daemon in self.daemons if daemon.name == name)


@contextlib.contextmanager
def site(kind: str, hosts: int, daemons: int, gpus: int = GPUS, disk_mb: int = 256) -> Iterator[Site]:
    """All of it, its hosts UP. `kind` of database: postgresql or sqlite."""
    if os.geteuid() != 0:
        raise RmError("Faults of disks and networks are root's to make.", "Run it as root.")
    sc.unshare(sc.CLONE_NEWNS)  # what is mounted for it ends with it
    sc.mount("none", "/", flags=sc.MS_REC | sc.MS_PRIVATE)
    directory = Path(tempfile.mkdtemp(prefix="rm-nemesis-", dir="/var/tmp"))
    directory.chmod(0o755)
    notes = directory / "notes"
    notes.mkdir()
    notes.chmod(0o1777)
    with contextlib.ExitStack() as last:
        last.callback(shutil.rmtree, directory, ignore_errors=True)
        spec = LabSpec(
            zones=min(2, hosts), hosts=hosts, cpus=CPUS, gpus_per_host=gpus, disk_mb=disk_mb,
            share=(str(notes),),
        )  # fmt: skip
        lab = up(spec, directory / "lab")
        last.callback(lab.down)
        database: Database = Postgres(lab) if kind == "postgresql" else Sqlite(directory / "database")
        last.callback(database.close)
        install(lab)
        made = Site(lab, [], database, notes)
        for number in range(daemons):
            daemon = Daemon("ab"[number], directory / "ab"[number], lab, number, database.url)
            made.daemons.append(daemon)
            last.callback(daemon.close)
        first, *others = made.daemons
        first.start()
        add_hosts(made)
        for daemon in others:
            daemon.start()
            until(daemon.waits, "the other daemon waits")
        yield made


def install(lab: Lab) -> None:
    hosts = to_hosts(parse(lab.inventory.read_text(), str(lab.inventory)))
    ssh = SshSettings(known_hosts=lab.known_hosts)
    report = run_playbook(shipped_directory("playbooks") / "bootstrap.yml", hosts, ssh)
    if not report.ok:
        raise RmError(f"The playbook bootstrap failed on the lab: {report.failures()}.")


def add_hosts(made: Site) -> None:
    doors = made.doors()

    def answers() -> bool:
        with contextlib.suppress(NoAnswer):
            doors.ask("GET", "status")
            return True
        return False

    until(answers, "the first daemon answers")
    argv = [RMX, "--config", str(made.daemons[0].config), "host", "import", str(made.lab.inventory)]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env=dict(os.environ, RM_CONFIG="")
    )
    if done.returncode:
        raise RmError(f"The lab's hosts could not be added: {done.stderr.strip()}")
    until(lambda: hosts_up(doors) == len(made.lab.hosts), "the hosts come up")


def hosts_up(doors: Doors) -> int:
    """How many hosts are UP; -1 when no daemon answers."""
    try:
        return int(doors.ask("GET", "status", timeout_s=2.0)["hosts"].get("UP", 0))
    except NoAnswer:
        return -1


def until(true: Callable[[], bool], what: str, wait_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + wait_s
    while not true():
        if time.monotonic() > deadline:
            raise RmError(f"It did not happen within {wait_s:g} s: {what}.")
        time.sleep(0.05)
