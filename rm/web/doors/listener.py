"""The daemon's Unix socket: opened with the right mode, and never over a living daemon's."""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from rm.errors import ConfigError, Conflict
from rm.paths import effective_user


@contextmanager
def claimed(path: str, shared: bool = False) -> Iterator[str]:
    """Of the daemons started for one socket only the first goes on, before it touches anything.

    Without it a second one, started by mistake, would take the lease and depose the first. Gives the
    random name of this socket's daemons, which lies in the lock file beside it: two machines may have
    the same host name and the same paths. The file stays, and shows clients that a daemon comes back.

    Raises:
        Conflict: a daemon already runs for this socket.
        ConfigError: the path cannot be used.
    """
    lock = path + ".lock"
    try:
        _make_directory(path, shared)
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise Conflict(f"A daemon already listens on {path}.", "`rmx status` shows it.") from None
    except OSError as error:
        raise _unusable(path, error) from None
    try:
        yield _name_in(fd)
    finally:
        os.close(fd)


def _name_in(fd: int) -> str:
    """What the file holds; written by the first who comes."""
    if name := os.pread(fd, 64, 0).decode("ascii", "replace").strip():
        return name
    name = secrets.token_hex(8)
    os.pwrite(fd, f"{name}\n".encode(), 0)
    return name


def _make_directory(path: str, shared: bool) -> None:
    mode = 0o755 if _for_everyone(shared) else 0o700
    os.makedirs(os.path.dirname(path) or ".", mode=mode, exist_ok=True)


def _for_everyone(shared: bool) -> bool:
    """May all users connect? Each is known by SO_PEERCRED. Without a word an ordinary user's daemon serves
    that user only."""
    return shared or effective_user() == 0


def _unusable(path: str, error: OSError) -> ConfigError:
    return ConfigError(
        f"The socket {path} cannot be opened: {error.strerror or error}.",
        "Set daemon.socket to another path.",
    )


def bind(path: str, shared: bool = False) -> socket.socket:
    """A bound socket at `path`, not yet listening; `shared` is daemon.shared of rm.toml.

    Raises:
        Conflict: a daemon already listens there.
        ConfigError: the path cannot be used.
    """
    try:
        _make_directory(path, shared)
        if os.path.lexists(path):
            _clear(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # closed until the mode below opens it; a umask would hold for what other threads make, too
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(path)
        os.chmod(path, 0o666 if _for_everyone(shared) else 0o600)
    except OSError as error:
        raise _unusable(path, error) from None
    return listener


def _clear(path: str) -> None:
    """Remove the socket of a daemon that is gone; never anything else."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise ConfigError(f"{path} exists and is not a socket.", "Set daemon.socket to another path.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except TimeoutError:
            raise Conflict(f"A daemon that does not answer holds {path}.", "Stop it first.") from None
        else:
            raise Conflict(f"A daemon already listens on {path}.", "`rmx status` shows it.")
