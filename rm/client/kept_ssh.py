"""Where `ssh` keeps the connection to another machine, and what leads to a daemon at no further cost.

`rm.client.ssh_door` opens the connection; commands that scripts call in loops find it open.
"""

from __future__ import annotations

import os

from rm import paths
from rm.client.address import Address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def directory(env: Mapping[str, str]) -> str:
    runtime = paths.runtime_dir(env)
    if os.path.isdir(runtime):
        return os.path.join(runtime, "rm", "ssh")
    return os.path.join(paths.state_dir(env, os.geteuid()), "ssh")


def base_of(address: Address) -> str:
    """What the names of the files of a machine's connection begin with."""
    host = f"{os.uname().nodename} {address.user}@{address.host}:{address.port}"  # a home may be shared
    return os.path.join(directory(os.environ), _short(host, 12))


def local_of(address: Address) -> str:
    """The socket of this machine that ssh forwards to the daemon's."""
    return f"{base_of(address)}.{_short(address.path, 8)}"


def is_mine_alone(about: os.stat_result) -> bool:
    """Can nobody else write to the directory, and pose as the daemon?"""
    return about.st_uid == os.geteuid() and not about.st_mode & 0o077


def at_hand(address: Address) -> str:
    """A socket of this machine that leads to the daemon, or has led there; "" where none does: it may be
    reached by https only, or ssh has no connection to it."""
    if address.scheme != "ssh":
        return address.path if address.scheme == "unix" else ""
    try:
        local = local_of(address)
        os.lstat(local)
        return local if is_mine_alone(os.lstat(os.path.dirname(local))) else ""
    except OSError:
        return ""


def _short(text: str, digits: int) -> str:
    import hashlib  # who has a socket of this machine does not pay for it

    return hashlib.sha256(text.encode()).hexdigest()[:digits]
