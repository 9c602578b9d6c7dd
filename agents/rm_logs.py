"""Reading a task's output: the spool's own file by the agent, any other only as the user who named it.

Whether a stream went to the spool is what the supervisor wrote down when it opened it, never what a path
looks like.
"""

import ctypes
import os
import signal
import stat

from rm_spool import SpoolError

READ_S = 20  # a network file system that answers nothing must not keep a child for ever
PROC_MAGIC = 0x9FA0
_libc = ctypes.CDLL(None, use_errno=True)


def read_spooled(folder, rank, offset, limit):
    """(bytes, where they begin, size of the file, bytes that it holds) of what the task wrote to the spool.

    They begin later than asked for where rm_capture.py has punched the file.
    """
    try:
        fd = folder.open_log(rank, os.O_RDONLY)
    except FileNotFoundError:
        return b"", offset, 0, 0
    try:
        while True:
            begin, end, size, kept = _around(fd, offset)
            data = os.pread(fd, min(limit, end - begin), begin)
            if _around(fd, offset)[0] == begin:  # else it was punched meanwhile
                return data, begin, size, kept
    finally:
        os.close(fd)


def _around(fd, offset):
    """(begin, end) of the first bytes from `offset` on that the file holds, its size, how many it holds."""
    size = os.fstat(fd).st_size
    try:
        hole = os.lseek(fd, 0, os.SEEK_HOLE)
        after = os.lseek(fd, hole, os.SEEK_DATA) if hole < size else size
    except OSError:  # the file system knows no holes, or this one is at the end
        hole = after = size
    kept = size - (after - hole)
    if offset < hole:
        return offset, hole, size, kept
    return max(offset, after), max(size, offset), size, kept


def read_as(meta, path, offset, limit, begin=0, end=None):
    """As `read_spooled`, of any file that the user named, from byte `begin` to `end`; in
    a process of its own.

    The process keeps the real user id of the agent, so that the user can neither signal nor trace it, and
    opens with the rights of the user alone. Files of /proc are none of the user's: the process that opens
    them there is ours.
    """
    signal.alarm(READ_S)
    if os.getuid() == 0:
        os.setgroups(os.getgrouplist(meta["user"], meta["gid"]))
        os.setegid(meta["gid"])
        os.seteuid(meta["uid"])
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return b"", offset, 0, 0
    except OSError as error:
        raise _unreadable(path, os.strerror(error.errno)) from None
    if _is_of_proc(fd):
        os.close(fd)
        raise _unreadable(path, "it leads into /proc")
    return _piece(fd, offset, limit, begin, end)


def _unreadable(path, why):
    return SpoolError("no-log", "The log %s cannot be read: %s." % (path, why))


def _piece(fd, offset, limit, begin, end):
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            return b"", offset, 0, 0  # a fifo or a device: what went there is gone
        if about.st_size < begin:  # somebody has emptied it meanwhile
            begin, end = 0, None
        size = (about.st_size if end is None else min(end, about.st_size)) - begin
        return os.pread(fd, max(0, min(limit, size - offset)), begin + offset), offset, size, size
    finally:
        os.close(fd)


def _is_of_proc(fd):
    found = ctypes.create_string_buffer(512)  # struct statfs begins with the kind, a long
    if _libc.fstatfs(fd, found) != 0:
        return True
    return ctypes.c_long.from_buffer(found).value == PROC_MAGIC
