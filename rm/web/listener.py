"""The daemon's Unix socket: opened with the right mode, and never over a living daemon's."""

from __future__ import annotations

import os
import socket
import stat

from rm.errors import ConfigError, Conflict


def bind(path: str) -> socket.socket:
    """A bound socket at `path`, not yet listening.

    Raises:
        Conflict: a daemon already listens there.
        ConfigError: the path cannot be used.
    """
    root = os.geteuid() == 0
    try:
        os.makedirs(os.path.dirname(path) or ".", mode=0o755 if root else 0o700, exist_ok=True)
        if os.path.lexists(path):
            _clear(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)  # closed until the mode below opens it
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        # whoever may connect is known by SO_PEERCRED; an ordinary user's daemon serves that user only
        os.chmod(path, 0o666 if root else 0o600)
    except OSError as error:
        raise ConfigError(
            f"The socket {path} cannot be opened: {error.strerror or error}.",
            "Set daemon.socket to another path.",
        ) from None
    return listener


def _clear(path: str) -> None:
    """Remove the socket of a daemon that is gone; never anything else."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise ConfigError(f"{path} exists and is no socket.", "Set daemon.socket to another path.")
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
