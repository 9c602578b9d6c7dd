"""The daemon of another machine, by the user's own `ssh`.

One `ssh` stays open in the background for ten minutes after its last use. It listens on a Unix socket
of this user on this machine and forwards each connection to the daemon's socket; there the peer is the
`sshd` process of the account that logged in, so the kernel names the caller as it does for everybody.
~/.ssh/config, agents, jump hosts and questions for a second factor work as with `ssh HOST`.
"""

from __future__ import annotations

import fcntl
import http.client
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from rm.client import kept_ssh
from rm.client.address import Address
from rm.client.unix_door import UnixConnection
from rm.errors import ConfigError, RmError, Unreachable

KEPT_S = 600
ANSWERS_S = 5.0  # in which a living ssh answers on its own socket
PATH_MOST = 107 - 17  # bytes of a Unix socket's path, less what ssh appends while it makes one
TAIL = 4096  # bytes of ssh's log that are looked at
OPTIONS = {
    "ControlMaster": "yes",
    "ControlPersist": str(KEPT_S),
    "ConnectTimeout": "15",
    "ServerAliveInterval": "10",
    "ServerAliveCountMax": "3",
    "LogLevel": "INFO",  # it says when the other side refuses to forward
    # what the user's configuration may ask for with this host, and this connection is not for
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
}


class SshDoor:
    """`local` is the socket of this machine that leads to the daemon, once `open()` has returned."""

    headers: Mapping[str, str] = {}

    def __init__(self, address: Address) -> None:
        self.address = address
        self._base = kept_ssh.base_of(address)
        self._directory = os.path.dirname(self._base)
        self.local = kept_ssh.local_of(address)
        self._log = f"{self._base}.log"
        self._seen = 0  # bytes of the log before the newest connection
        if len(os.fsencode(self.local)) > PATH_MOST:
            raise ConfigError(
                f"The path of the socket that ssh forwards is too long: {self.local}.",
                "Set XDG_RUNTIME_DIR to a directory of yours with a shorter name.",
            )

    def connection(self, timeout_s: float | None) -> http.client.HTTPConnection:
        self._own_directory()
        with suppress(OSError):
            self._seen = os.stat(self._log).st_size
        try:
            return UnixConnection(self.local, timeout_s)
        except OSError:
            self.open()
        self._seen = 0
        try:
            return UnixConnection(self.local, timeout_s)
        except OSError as error:
            raise Unreachable(
                f"ssh's connection to {self.address.host} ended at once: {error.strerror or error}."
            ) from None

    def open(self) -> None:
        """Have ssh forward, unless it does.

        Raises:
            Unreachable: ssh could not.
        """
        self._own_directory()
        with self._alone():
            if not self._lives():
                self._begin()
            if self._forwards():
                return  # another command of this user was faster
            with suppress(FileNotFoundError):
                os.unlink(self.local)
            done = self._master("forward", "-L", f"{self.local}:{self.address.path}")
            if done.returncode:
                raise Unreachable(
                    f"ssh does not forward {self.address.path} of {self.address.host}: {_last(done.stderr)}."
                )

    def explain(self) -> RmError | None:
        """Why a connection was closed without an answer, as far as ssh knows."""
        try:
            with open(self._log, "rb") as log:
                log.seek(self._seen)
                told = log.read(TAIL).decode(errors="replace")
        except OSError:
            return None
        if "open failed: " not in told:  # sshd says no more than this for any cause
            return None
        host, path = self.address.host, self.address.path
        return Unreachable(
            f"ssh reaches {host}, but no daemon listens on {path} there, or its sshd does not forward.",
            f"See `rmx --socket {path} status` there; sshd needs AllowStreamLocalForwarding yes or local.",
        )

    # -- ssh

    def _lives(self) -> bool:
        if not os.path.exists(f"{self._base}.ctl"):
            return False
        if self._master("check").returncode == 0:
            return True
        with suppress(FileNotFoundError):  # left by one that was killed, or of one that stands still
            os.unlink(f"{self._base}.ctl")
        return False

    def _forwards(self) -> bool:
        import socket

        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.local) == 0

    def _begin(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._log)
        options = [word for key, value in OPTIONS.items() for word in ("-o", f"{key}={value}")]
        done = self._ssh("-N", "-f", "-E", self._log, *options)
        if done.returncode:
            try:
                with open(self._log, "rb") as log:
                    told = log.read()[-TAIL:]
            except OSError:
                told = done.stderr
            raise Unreachable(
                f"ssh could not connect to {self.address.host}: {_last(told or done.stderr)}.",
                f"Try `{' '.join(['ssh', *self._destination()])}`: rm uses the same connection.",
            )

    def _destination(self) -> list[str]:
        words = []
        if self.address.port:
            words += ["-p", str(self.address.port)]
        if self.address.user:
            words += ["-l", self.address.user]
        return (
            [*words, "--", self.address.host]
            if words or self.address.host.startswith("-")
            else [self.address.host]
        )

    def _master(self, order: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        """An order to the ssh that stays open; one that does not answer has not done it."""
        return self._ssh("-F", "none", "-O", order, *words, patience_s=ANSWERS_S)

    def _ssh(self, *words: str, patience_s: float | None = None) -> subprocess.CompletedProcess[bytes]:
        command = ["ssh", "-S", f"{self._base}.ctl", *words, *self._destination()]
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                check=False,
                timeout=patience_s,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 255, stderr=b"ssh's open connection does not answer")
        except FileNotFoundError:
            raise Unreachable(
                "The program ssh is not on this machine's PATH.",
                "Install the OpenSSH client, or use an https address.",
            ) from None

    # -- its files

    def _own_directory(self) -> None:
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            if not kept_ssh.is_mine_alone(os.lstat(self._directory)):
                raise ConfigError(
                    f"{self._directory} must be yours alone: its writers can pose as your daemon.",
                    f"Run: chmod 700 {self._directory}",
                )
        except OSError as error:
            raise ConfigError(
                f"{self._directory}, where rm keeps its SSH connection, cannot be used: {error.strerror}."
            ) from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        fd = os.open(f"{self._base}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def _last(told: bytes) -> str:
    """The last thing that ssh said, without its line end and full stop."""
    lines = [line.strip() for line in told.decode(errors="replace").splitlines() if line.strip()]
    text = lines[-1].removesuffix(".") if lines else "it said nothing"
    return "".join(char if char.isprintable() else "?" for char in text)
