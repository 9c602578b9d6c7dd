"""A real daemon with its database on disk, and real lab hosts when asked for; all of it gone afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.memory import memory_bytes
from rm.client.connection import Connection
from rm.errors import RmError, Unreachable
from rm.lab import Lab, LabSpec, up

RMX = str(Path(sys.executable).with_name("rmx"))
PATIENCE_S = 60.0
ENDS_PATIENCE_S = 300.0  # until many jobs have ended
# the probes between hosts are a load of their own, so they are off while we measure
SETTINGS = """\
[daemon]
socket = "{directory}/rm.sock"
state_dir = "{directory}/state"
log_level = "warning"

[jobs]
run_root_as = "rmjob"
recent_s = 3600
deliver = ""

[ssh]
known_hosts = "{directory}/lab/known_hosts"

[monitor]
enabled = false
"""


def environment() -> dict[str, str]:
    """Ours, for programs that may keep what Python compiled, as they do at their users'."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Cluster:
    """One daemon over one state directory. `start` and `end` may be repeated: the state stays."""

    def __init__(self, directory: Path, lab: Lab | None) -> None:
        self.directory = directory
        self.lab = lab
        self.socket = str(directory / "rm.sock")
        self.log = directory / "daemon.log"
        self.environment = {**environment(), "RM_CONFIG": str(directory / "rm.toml")}
        self._daemon: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._daemon is not None
        return self._daemon.pid

    def client(self) -> Connection:
        """A connection of its own for one thread."""
        return Connection(self.socket)

    def rmx(self, *arguments: str) -> None:
        """Run a command of the command line and insist on its success."""
        argv = self._among_hosts([RMX, *arguments])
        done = subprocess.run(
            argv, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RmError(f"`rmx {' '.join(arguments)}` failed: {done.stderr.strip() or done.stdout.strip()}")

    def start(self) -> float:
        """Start the daemon; the seconds until it answered its first request."""
        since = time.perf_counter()
        with self.log.open("ab") as log:
            self._daemon = subprocess.Popen(
                self._among_hosts([RMX, "daemon"]),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        client = self.client()
        while True:
            with contextlib.suppress(Unreachable):
                client.get("status")
                client.close()
                return time.perf_counter() - since
            if self._daemon.poll() is not None or time.perf_counter() - since > PATIENCE_S:
                raise RmError(f"The daemon did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.002)

    def end(self, number: int = signal.SIGTERM) -> None:
        """End the daemon by a signal and wait for it."""
        if self._daemon is not None and self._daemon.poll() is None:
            self._daemon.send_signal(number)
            self._daemon.wait(PATIENCE_S)

    def wait_for_hosts(self, count: int) -> None:
        client = self.client()
        deadline = time.monotonic() + PATIENCE_S
        while client.get("status")["hosts"].get("UP", 0) < count:
            if time.monotonic() > deadline:
                raise RmError("The lab's hosts did not come up.", f"See {self.log}.")
            time.sleep(0.05)
        client.close()

    def wait_for_ends(self) -> None:
        """Wait until no job waits or runs any more."""
        client = self.client()
        deadline = time.monotonic() + ENDS_PATIENCE_S
        while set(client.get("status")["jobs"]) & {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}:
            if time.monotonic() > deadline:
                raise RmError(f"The jobs did not end within {ENDS_PATIENCE_S:g} s.")
            time.sleep(0.05)
        client.close()

    def memory_bytes(self) -> int:
        """The daemon's resident memory."""
        return memory_bytes(str(self.pid), "VmRSS")

    def cpu_s(self) -> float:
        """Processor time that the daemon has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _among_hosts(self, argv: list[str]) -> list[str]:
        return self.lab.enter_command(argv) if self.lab is not None else argv


@contextlib.contextmanager
def cluster(
    hosts: int = 0,
    cpus: int = 4,
    zones: int = 2,
    gpus_per_host: int = 0,
    link_mbps: int = 0,
    more: str = "",
    share: tuple[str, ...] = (),
) -> Iterator[Cluster]:
    """A daemon that answers, with `hosts` lab hosts connected; ended and removed at the end. `more`
    ends its rm.toml; its hosts see the directories of `share` as they are here.

    On /var/tmp, which lies on a disk: in memory a durable commit would cost nothing.
    """
    directory = Path(tempfile.mkdtemp(prefix="rm-bench-", dir="/var/tmp"))
    lab: Lab | None = None
    made: Cluster | None = None
    try:
        (directory / "rm.toml").write_text(SETTINGS.format(directory=directory) + more)
        if hosts:
            spec = LabSpec(zones=zones, hosts=hosts, cpus=cpus, gpus_per_host=gpus_per_host, share=share)
            if link_mbps:
                spec = replace(spec, link_mbps=link_mbps)
            lab = up(spec, directory / "lab")
        made = Cluster(directory, lab)
        if lab is not None:
            made.rmx("playbook", "run", "bootstrap", "--inventory", str(lab.inventory))
        made.start()
        if lab is not None:
            made.rmx("host", "import", str(lab.inventory))
            made.wait_for_hosts(hosts)
        yield made
    finally:
        if made is not None:
            made.end()
        if lab is not None:
            lab.down()
        shutil.rmtree(directory, ignore_errors=True)


def spec(name: str, script: str = "#!/bin/sh\ntrue\n", **more: Any) -> dict[str, Any]:
    """A job's specification for the API."""
    return {"name": name, "script": script, **more}
