"""This machine as the one host of a cluster, for what namespace hosts cannot show: real GPUs.

rm is installed here as its documents say, by the playbooks over a real sshd, and taken off again.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import RMX, Cluster, Settings
from tests.ssh_server import SshServer, ssh_server

NAME = "here"
# what `bootstrap` makes, and `uninstall` takes away
INSTALLED = (Path("/opt/rm"), Path("/var/lib/rm"))


@dataclass
class ThisMachine:
    """What a `Cluster` uses of a lab: commands on the host, its inventory, its key."""

    inventory: Path
    known_hosts: Path

    def exec(self, _host: str, argv: Sequence[str], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(argv, input=given, capture_output=True, check=False)


def in_use() -> str:
    """Why this machine cannot be the host of a test; "" when it can."""
    if os.geteuid() != 0:
        return "needs root"
    there = [str(path) for path in INSTALLED if path.exists()]
    return f"is a host of rm already: {', '.join(there)} is there" if there else ""


@contextmanager
def cluster_of_this_machine(directory: Path, settings: Settings) -> Iterator[Cluster]:
    """`directory` must be one that every user can enter."""
    with ssh_server(directory / "sshd") as server:
        machine = ThisMachine(_inventory(directory, server), server.directory / "known_hosts")
        cluster = Cluster(machine, directory, settings)  # type: ignore[arg-type]
        _rmx(cluster, "check", "-i", machine.inventory, "--only", "reach,root")
        try:
            for playbook in ("bootstrap", "probes"):
                _rmx(cluster, "playbook", "run", playbook, "-i", machine.inventory)
            cluster.start()
            cluster.rmx("host", "import", str(machine.inventory))
            cluster.all_up()
            yield cluster
            cluster.tidy()
        except BaseException as problem:
            problem.add_note(cluster.last_words())
            raise
        finally:
            cluster.stop()
            words = ("playbook", "run", "uninstall", "-i", machine.inventory, "-e", "rm_force=true")
            _rmx(cluster, *words)


def _inventory(directory: Path, server: SshServer) -> Path:
    """Its name and how to reach it, and nothing else: the agent finds the rest."""
    path = directory / "hosts.ini"
    path.write_text(
        f"{NAME} ansible_host=127.0.0.1 ansible_port={server.port} ansible_user=root "
        f"ansible_ssh_private_key_file={server.directory}/id\n"
    )
    return path


def _rmx(cluster: Cluster, *words: str | Path) -> None:
    done = subprocess.run(
        [RMX, *words], env={**os.environ, "RM_CONFIG": str(cluster.config)}, capture_output=True, text=True,
        timeout=300, cwd="/", check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"rmx {words}: {done.returncode}: {done.stdout}{done.stderr}"
