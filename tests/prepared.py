"""Hosts of a lab as `bootstrap.yml` leaves them. The playbook prepares the first hosts of a run of the tests.
All further hosts get what it made there, and the same account, at a tenth of the cost."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.run import run_playbook
from rm.adapters.playbook.shipped import shipped_directory
from rm.lab import Lab
from rm.playbook.inventory.hosts import to_hosts
from rm.playbook.inventory.inventory import parse

AT_A_TIME = 4
MADE = ("opt/rm", "var/lib/rm", "etc/profile.d/rm.sh")
PACK = ("tar", "-c", "-C", "/", *MADE)
ACCOUNT = "useradd --system --create-home --shell /bin/sh --comment 'Jobs of rm' rmjob"
UNPACK = ("sh", "-e", "-c", f"tar -x -p -C /; getent passwd rmjob || {ACCOUNT}")
_made: list[bytes] = []  # by the playbook on the first host, packed
shared: Path | None = None  # the file in which all workers of a run find it


def prepare(lab: Lab, settings: SshSettings) -> None:
    """Every host of the lab has an account for jobs, and agents."""
    if not _made and _is_first(lab, settings):
        return
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(lambda host: _must(lab, host.name, UNPACK, _made[0]), lab.hosts))


def _is_first(lab: Lab, settings: SshSettings) -> bool:
    """Prepare the lab by the playbook, unless another worker of this run has a lab that it prepared."""
    if shared is None:
        by_playbook(lab, settings)
        _made.append(_must(lab, lab.hosts[0].name, PACK))
        return True
    with shared.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if packed := file.read():
            _made.append(packed)
            return False
        by_playbook(lab, settings)
        _made.append(_must(lab, lab.hosts[0].name, PACK))
        file.write(_made[0])
        return True


def by_playbook(lab: Lab, settings: SshSettings) -> None:
    hosts = to_hosts(parse(lab.inventory.read_text(), str(lab.inventory)))
    report = run_playbook(shipped_directory("playbooks") / "bootstrap.yml", hosts, settings)
    assert report.ok, report.failures()


def _must(lab: Lab, host: str, argv: Sequence[str], given: bytes = b"") -> bytes:
    done: subprocess.CompletedProcess[bytes] = lab.exec(host, argv, given)
    assert done.returncode == 0, f"{host}: {done.stderr.decode()}"
    return done.stdout
