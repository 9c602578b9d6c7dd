"""What `[fence]` in rm.toml asks of hosts, and the ids that users have on this machine."""

from __future__ import annotations

import pwd
import re
import time
from collections.abc import Callable

from rm.config import FenceConfig
from rm.errors import ConfigError
from rm.protocol.attempts import Fence

# the names of limits.conf, whose units they have
ITEMS = frozenset(
    (
        "as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nofile", "nproc",
        "rss", "rtprio", "rttime", "sigpending", "stack",
    )
)  # fmt: skip
IN_KIB = frozenset(("as", "core", "data", "fsize", "memlock", "rss", "stack"))
UNLIMITED = -1
KEPT_S = 10.0  # accounts change seldom, and launches come by the hundred


def fence_of(config: FenceConfig) -> Fence:
    """The wire's form; ConfigError names what is wrong."""
    where = config.private_tmp
    if where and where != "tmpfs" and not where.startswith("/"):
        raise ConfigError(
            f"fence.private_tmp is '{where}'.", 'Write "tmpfs", a directory such as "/local", or "".'
        )
    return Fence(
        gpus=config.gpus,
        cpus=config.cpus,
        processes=config.processes,
        private_tmp=where,
        private_ipc=config.private_ipc,
        login_limits=config.login_limits,
        limits=[limit_of(text) for text in config.limits],
        no_new_privs=config.no_new_privs,
        seccomp=config.seccomp,
        unenforced=config.unenforced,
    )


def limit_of(text: str) -> tuple[str, int, int]:
    """`nofile=1024:4096` or `memlock=unlimited` as (item, soft, hard): bytes, seconds or numbers; -1 for
    unlimited."""
    item, _, values = text.replace(" ", "").partition("=")
    soft, _, hard = values.partition(":")
    if item not in ITEMS:
        raise ConfigError(f"fence.limits has '{text}'.", f"The names are {', '.join(sorted(ITEMS))}.")
    return item, _value(text, item, soft), _value(text, item, hard or soft)


def _value(text: str, item: str, word: str) -> int:
    if word == "unlimited":
        return UNLIMITED
    if not re.fullmatch(r"[0-9]{1,15}", word):
        raise ConfigError(
            f"fence.limits has '{text}'.", "Write name=number, name=soft:hard or name=unlimited."
        )
    return int(word) * (1024 if item in IN_KIB else 60 if item == "cpu" else 1)


class Ids:
    """Users' (uid, gid) on this machine, looked up again after a while; None for who is not known here.

    Also for root, which no host takes for another user: in a lab of one user it has that user's ids.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._known: dict[str, tuple[float, tuple[int, int] | None]] = {}

    def __call__(self, user: str) -> tuple[int, int] | None:
        now = self._monotonic_s()
        at, ids = self._known.get(user, (-KEPT_S, None))
        if now - at >= KEPT_S:
            try:
                account = pwd.getpwnam(user)
                ids = (account.pw_uid, account.pw_gid) if account.pw_uid else None
            except KeyError:
                ids = None
            self._known[user] = now, ids
        return ids
