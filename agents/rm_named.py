"""The files that a user named for output: emptied once for all tasks that share them, and measured.

What touches them is a process of its own with the rights of the user, which is given up when their file
system does not answer.
"""

import json
import os
import select
import signal
import stat
import time

from rm_become import enter_directory, is_below

BEGIN_S, END_S = 20, 3  # of patience with a file system, before the tasks and after them


class Named:
    """Of one attempt on this host. `begins` and `ends`: path as it was named -> bytes, where the attempt's
    part of the file begins and ends; a file that is none, or could not be looked at, is not in them."""

    def __init__(self, request, user, spool):
        self.request, self.user, self.spool = request, user, spool
        self.paths = sorted({t[key] for t in request["tasks"] for key in ("output", "error")} - {""})
        self.begins, self.ends = {}, {}

    def begin(self):
        """Before any task writes; on every host of a gang before the first of them starts."""
        self.begins = self._ask(self.request["open_mode"] == "truncate", BEGIN_S)

    def end(self):
        """When nothing of the attempt writes any more."""
        self.ends = self._ask(False, END_S)

    def bounds(self, stream, path):
        """What is written down for the reader of a task's log."""
        return {stream + "_begin": self.begins.get(path, 0), stream + "_end": self.ends.get(path)}

    def _ask(self, truncate, patience_s):
        if not self.paths:
            return {}
        out, into = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                signal.alarm(patience_s)
                os.write(into, json.dumps(self._look(truncate)).encode())
            finally:
                os._exit(0)
        os.close(into)
        said = _read_all(out, time.monotonic() + patience_s)
        os.close(out)
        if not said:
            os.kill(pid, signal.SIGKILL)  # where even that does not end it, it is reaped later
        os.waitpid(pid, 0 if said else os.WNOHANG)
        return json.loads(said) if said else {}

    def _look(self, truncate):
        if os.getuid() == 0:
            os.initgroups(self.user.name, self.user.gid)
            os.setegid(self.user.gid)
            os.seteuid(self.user.uid)  # the real user id stays: the user can neither signal nor trace us
        enter_directory(self.request, self.user, lambda words: None)
        sizes = {}
        for path in self.paths:
            try:
                sizes[path] = self._size(path, truncate)
            except OSError:
                continue  # the task will say what is wrong with it
        return {path: size for path, size in sizes.items() if size is not None}

    def _size(self, path, truncate):
        about = os.stat(path)  # a pipe's reader must not see us come and go
        if not stat.S_ISREG(about.st_mode):
            return None
        if not truncate:
            return about.st_size
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            if is_below(fd, self.spool) or not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            os.ftruncate(fd, 0)
            return 0
        finally:
            os.close(fd)


def _read_all(fd, deadline):
    """What is said until the end; nothing when that does not come in time."""
    said, poll = b"", select.poll()
    poll.register(fd, select.POLLIN)
    while poll.poll(max(0, deadline - time.monotonic()) * 1000):
        data = os.read(fd, 1 << 16)
        if not data:
            return said
        said += data
    return b""
