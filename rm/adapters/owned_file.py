"""What root does in a directory of another account, which may have put links there."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rm.errors import ConfigError

LINKS_MOST = 40  # as of the kernel's own
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened_directory(path: Path, makes: bool = False) -> Iterator[int]:
    """A descriptor of the directory, for what is done in it: by its path another one may be found the next
    time. Root gets there through no link in a directory of another account, which may exchange a directory
    by a link. With `makes` what lacks is made.

    Raises:
        OSError: there is none, or such a link is on the way.
    """
    left = list(reversed(path.absolute().parts))
    here, links = os.open("/", _STEP), 0
    try:
        roots = {0, os.fstat(here).st_uid}  # in a user namespace the root outside of it is another one
        while left:
            name = left.pop()
            try:
                about = os.stat(name, dir_fd=here, follow_symlinks=False)
            except FileNotFoundError:
                if not makes:
                    raise
                with suppress(FileExistsError):
                    os.mkdir(name, 0o777 if left else 0o700, dir_fd=here)
                about = os.stat(name, dir_fd=here, follow_symlinks=False)
            if stat.S_ISLNK(about.st_mode):
                links += 1
                safe = os.geteuid() != 0 or {os.fstat(here).st_uid, about.st_uid} <= roots
                if not safe or links > LINKS_MOST:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                left += reversed(Path(os.readlink(name, dir_fd=here)).parts)
            else:
                step = os.open(name, _STEP, dir_fd=here)  # "/" is the root wherever it is opened from
                os.close(here)
                here = step
        yield here
    finally:
        os.close(here)


def open_owned(home: int, name: str, flags: int, makes: bool = False) -> int:
    """The descriptor of a file of the owner of the directory `home`, the daemon's account, who can put links
    there to what is root's: none is followed. Root keeps its own ids for that: those of a process are the ids
    of all its threads, and supplementary groups would remain.

    Raises:
        OSError: there is none, or it is something else.
    """
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if makes else 0)
    owner = os.fstat(home)
    descriptor = os.open(name, flags, 0o600, dir_fd=home)
    try:
        about, root = os.fstat(descriptor), os.geteuid() == 0
        # by this run of root's, or by another one
        new = about.st_uid == 0 and about.st_nlink == 1 and about.st_size == 0
        if root and new and stat.S_ISREG(about.st_mode):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
            about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or (root and about.st_uid != owner.st_uid):
            raise PermissionError(errno.EPERM, "it is no file of the directory's owner", name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def as_owner_of(directory: Path, makes: bool = False) -> Iterator[None]:
    """With the rights of whom the directory belongs to, if root works there for another account: for
    libraries, which follow every link. The ids are those of all threads: only where no other one needs
    root's. With `makes` what lacks is made. Raises ConfigError where root cannot take that account's ids, or
    a link of another account leads there."""
    try:
        with opened_directory(directory, makes) as home:
            owner = os.fstat(home)
    except OSError as error:
        raise ConfigError(
            f"The directory {directory} cannot be used: {error.strerror}.",
            "Let no link of another account lead to it.",
        ) from None
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
