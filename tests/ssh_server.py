"""A real sshd of this machine on a port of its own, and the words with which a user's ssh trusts it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import RMX, until
from tests.ports import Kept

SSHD = "/usr/sbin/sshd"


class SshServer:
    """Whoever has its key may log in as any account. `environment` is for `rmx`."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.directory = directory
        directory.mkdir()
        for name in ("host", "id"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / name], check=True
            )
        (directory / "keys").write_bytes((directory / "id.pub").read_bytes())
        self.kept = Kept()
        self.port = self.kept.number
        lines = [
            f"Port {self.port}", "ListenAddress 127.0.0.1", f"HostKey {directory}/host", "UsePAM no",
            f"AuthorizedKeysFile {directory}/keys", "StrictModes no", "PidFile none", *settings,
        ]  # fmt: skip
        (directory / "sshd_config").write_text("\n".join(lines) + "\n")
        _, kind_and_key = "host", (directory / "host.pub").read_text().split()[:2]
        (directory / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {' '.join(kind_and_key)}\n")
        # ssh knows its user's home from the accounts, not from HOME: so its own -F stands for ~/.ssh/config
        (directory / "ssh_config").write_text(
            f"Host control\n  HostName 127.0.0.1\n  Port {self.port}\n"
            f"Host *\n  UserKnownHostsFile {directory}/known_hosts\n  IdentityFile {directory}/id\n"
            "  BatchMode yes\n  LocalForward 1 127.0.0.1:1\n"  # a forward of the user's own that cannot work
        )
        (directory / "bin").mkdir()
        wrapper = directory / "bin" / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {directory}/ssh_config "$@"\n')
        wrapper.chmod(0o755)
        (directory / "run").mkdir()
        self.log = directory / "sshd.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.directory}/bin:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "XDG_RUNTIME_DIR": f"{self.directory}/run", "RM_CONFIG": ""}

    def start(self) -> None:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        self.process = subprocess.Popen([SSHD, "-D", "-f", self.directory / "sshd_config", "-E", self.log])

        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        until(listens, "sshd listens")

    def stop(self) -> None:
        """Only the listening one: sessions go on."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def logins(self) -> int:
        return self.log.read_text().count("Accepted publickey")

    def rmx(self, daemon: str, *words: str, text: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [RMX, *words], env={**self.environment, "RM_DAEMON": daemon, **more}, input=text,
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    def masters(self) -> list[int]:
        """The processes that keep connections open."""
        found = subprocess.run(
            ["pgrep", "-f", f"{self.directory}/run/rm/ssh"], capture_output=True, text=True, check=False
        )
        return [int(pid) for pid in found.stdout.split()]

    def hang_up(self) -> None:
        """End the connections that are kept open."""
        for control in self.directory.glob("run/rm/ssh/*.ctl"):
            subprocess.run(
                ["ssh", "-F", "none", "-S", control, "-O", "exit", "x"], capture_output=True, check=False
            )


@contextmanager
def ssh_server(directory: Path, *settings: str) -> Iterator[SshServer]:
    server = SshServer(directory, *settings)
    server.start()
    try:
        yield server
    finally:
        server.hang_up()
        server.stop()
        server.kept.close()
