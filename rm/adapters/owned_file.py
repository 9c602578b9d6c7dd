"""What root does in a directory of another account, which may have put links there."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rm.errors import ConfigError


def open_owned(directory: Path, name: str, flags: int, makes: bool = False) -> int:
    """The descriptor of a file of the directory's owner, the daemon's account, who can put links
    there to what is root's: none is followed. Root keeps its own ids for that: those of a process are the ids
    of all its threads, and supplementary groups would remain.

    Raises:
        OSError: there is none, or it is something else.
    """
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if makes else 0)
    home = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        owner = os.fstat(home)
        descriptor = os.open(name, flags, 0o600, dir_fd=home)
    finally:
        os.close(home)
    try:
        about, root = os.fstat(descriptor), os.geteuid() == 0
        # by this run of root's, or by another one
        new = about.st_uid == 0 and about.st_nlink == 1 and about.st_size == 0
        if root and new and stat.S_ISREG(about.st_mode):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
            about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or (root and about.st_uid != owner.st_uid):
            raise PermissionError(
                errno.EPERM, "it is no file of the directory's owner", str(directory / name)
            )
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def as_owner_of(directory: Path) -> Iterator[None]:
    """With the rights of whom the directory belongs to, if root works there for another account: for
    libraries, which follow every link. The ids are those of all threads: only where no other one needs
    root's. Raises ConfigError where root cannot take that account's ids."""
    owner = _who_put_there(directory)
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    with ExitStack() as back:
        try:
            os.setgroups([])
            back.callback(os.setgroups, groups)
            os.setegid(owner.st_gid)
            back.callback(os.setegid, group)
            os.seteuid(owner.st_uid)
            back.callback(os.seteuid, 0)
        except OSError as error:  # as of an account that this container does not know
            raise ConfigError(
                f"Root cannot act for account {owner.st_uid}, which owns {directory}: {error.strerror}.",
                "Run this as that account.",
            ) from None
        yield


def _who_put_there(directory: Path) -> os.stat_result:
    """The owner of the directory, or of the first link on the way that is not root's: it may lead to one of
    root's in which everybody may put something."""
    whole = directory.absolute()
    for part in (*reversed(whole.parents), whole):
        about = part.lstat()
        if stat.S_ISLNK(about.st_mode) and about.st_uid != 0:
            return about
    return whole.stat()
