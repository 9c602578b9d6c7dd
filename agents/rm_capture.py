"""What tasks print, on its way from a pipe to a file of bounded size in the spool.

Of a longer log the file keeps the beginning and the newest part: the bytes between are punched out of it, so
that every offset stays what it was, and a line says how many they were. The bytes are the user's: they count
towards a quota, and do not take what the file system keeps for root. The last `reserve_bytes` of the disk,
which launches and records of exits need, are never taken; one log takes at most a share of what lies above.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import time

PIPE_BYTES = 1 << 20
REST_S = 0.01  # between two looks into one pipe: 100 MiB/s at most, and one wake-up for many small writes
LEAST_BYTES = 64 << 10  # what a log may always hold
LINE_BYTES = 256  # a line of ours in a log is shorter
SHARE_OF_ROOM = 16
F_SETPIPE_SZ = 1031
PUNCH_HOLE, KEEP_SIZE = 2, 1
_libc = ctypes.CDLL(None, use_errno=True)
_fallocate = getattr(_libc, "fallocate64", _libc.fallocate)
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class Capture:
    """Of one task. `pipe` is read here; `entrance` is the task's end of it."""

    def __init__(self, folder, rank, user, most_bytes, reserve_bytes):
        self.most_bytes = max(LEAST_BYTES, most_bytes)
        self.uid = user.uid if os.getuid() == 0 else 0
        self.size = 0
        self.hole = (0, 0)
        self.lost, self.why = 0, ""  # bytes since the last that was kept
        self.secured = 0  # up to here the disk has given the file its room, also beyond its end
        self.file = folder.open_log(rank, os.O_RDWR | os.O_CREAT)
        disk = os.fstatvfs(self.file)
        self.reserve_bytes = min(reserve_bytes, disk.f_blocks * disk.f_frsize // 10)
        self.block = max(os.fstat(self.file).st_blksize, os.sysconf("SC_PAGE_SIZE"))
        self.stays = False  # is the file left open?
        if os.getuid() == 0:
            os.fchown(self.file, user.uid, user.gid)
        # a line of ours for each log, also of what the disk keeps for root: a log says what it lacks
        if not self._secure(0) and not self._secure(0, contextlib.nullcontext()):
            os.close(self.file)
            raise OSError(errno.ENOSPC, self.why, "a log")
        self.why = ""
        self.open_pipe(user)

    def open_pipe(self, user):
        """For one task. The file belongs to a task that is over and has printed nothing."""
        self.pipe, self.entrance = os.pipe()
        if os.getuid() == 0:
            os.fchown(self.entrance, user.uid, user.gid)  # for a task that opens /dev/stdout
        os.set_blocking(self.pipe, False)
        with contextlib.suppress(OSError):  # its usual size does, more slowly
            fcntl.fcntl(self.pipe, F_SETPIPE_SZ, PIPE_BYTES)

    def take(self):
        """What is in the pipe, into the file; False when nothing more will come."""
        try:
            data = os.read(self.pipe, PIPE_BYTES)
        except BlockingIOError:
            return True
        if data:
            self._keep(memoryview(data))
        return bool(data)

    def close_entrance(self):
        if self.entrance >= 0:
            os.close(self.entrance)
            self.entrance = -1

    def leave(self, whole):
        """In another process: close its copies, the entrance only when it is left as a `whole`."""
        os.close(self.pipe)
        os.close(self.file)
        if whole:
            self.close_entrance()

    def close(self):
        if self.size:
            self._room()  # what the last look into the pipe brought may be too much
        if self.lost:
            self._say_lost()
        self.close_entrance()
        os.close(self.pipe)
        if not self.stays:
            os.close(self.file)

    def _keep(self, view):
        room = self._room()
        if self.lost and room > 0:
            self._say_lost()
        if not self.lost and room > 0 and self._secure(len(view[:room])):
            view = view[self._write(view[:room], self.size) :]
        if view:
            self.lost += len(view)
            self.why = self.why or "the disk is nearly full"

    def _room(self):
        """How many bytes may be written now. Punches out what has become too much."""
        most = self.most_bytes
        room = self._free_bytes()
        if room + self.kept < most * SHARE_OF_ROOM:
            most = max(LEAST_BYTES, (room + self.kept) // SHARE_OF_ROOM)
        if self.kept > most:
            self._punch(most)
            room = self._free_bytes()
        if self.kept > most + PIPE_BYTES:
            self.why = "the file system cannot free a part of a file"
            return 0
        return room

    def _free_bytes(self):
        disk = os.fstatvfs(self.file)
        return disk.f_bavail * disk.f_frsize - self.reserve_bytes

    @property
    def kept(self):
        return self.size - (self.hole[1] - self.hole[0])

    def _punch(self, most):
        """Keep the first quarter of `most`, and of the newest part so much that there is room for more."""
        head = most // 4 // self.block * self.block
        begin = min(self.hole[0], head) if self.hole[1] else head
        end = (self.size - (most - head) * 3 // 4) // self.block * self.block
        mark = b"\n[rm: %d bytes of output are not kept here]\n" % (end - begin)
        if end <= max(begin, self.hole[1]) or self.size < end + len(mark):
            return
        if _fallocate(self.file, PUNCH_HOLE | KEEP_SIZE, begin, end - begin) == 0:
            self.hole = (begin, end)
            self._write(mark, end)

    def _secure(self, count, as_whom=None):
        """Room for this many bytes more, and for a line of ours behind them: also on a disk that fills up a
        log says what it lacks. False when there is none. Where room cannot be had in advance, writing shows
        it."""
        end = self.size + count + LINE_BYTES
        if end <= self.secured:
            return True
        end = -(-end // self.block) * self.block
        with as_whom or self._as_user():
            if _fallocate(self.file, KEEP_SIZE, self.secured, end - self.secured) == 0:
                self.secured = end
                return True
        error = ctypes.get_errno()
        if error not in (errno.ENOSPC, errno.EDQUOT):
            return True
        self.why = os.strerror(error)
        return False

    @contextlib.contextmanager
    def _as_user(self):
        if self.uid:
            os.seteuid(self.uid)  # the real user id stays: the user can neither signal nor trace us
        try:
            yield
        finally:
            if self.uid:
                os.seteuid(0)

    def _say_lost(self):
        words = "\n[rm: %d bytes of output are not kept here: %s]\n" % (self.lost, self.why)
        lost, self.lost, self.why = self.lost, 0, ""
        if self._write(words.encode(), self.size) < len(words):
            self.lost = lost  # tried again with what comes next

    def _write(self, data, at):
        """Write as the user; how many bytes were taken. `why` says what speaks against the others."""
        done = 0
        try:
            with self._as_user():
                while done < len(data):
                    done += os.pwrite(self.file, data[done:], at + done)
        except OSError as error:
            self.why = os.strerror(error.errno or errno.EIO)
        finally:
            self.size = max(self.size, at + done)
        return done


class Captures:
    """Of one attempt: whose pipes are looked into, and when again."""

    def __init__(self):
        self.by_pipe = {}
        self.resting = {}  # pipe -> monotonic seconds
        self.poll = None

    def add(self, capture):
        self.by_pipe[capture.pipe] = capture

    def watch(self, poll):
        self.poll = poll
        for pipe in self.by_pipe:
            poll.register(pipe, select.POLLIN)

    def take(self, ready):
        """Empty the pipes that have something; look again into those that have rested."""
        for pipe in ready & self.by_pipe.keys():
            self.poll.unregister(pipe)
            if self.by_pipe[pipe].take():
                self.resting[pipe] = time.monotonic() + REST_S
        if self.resting:
            now = time.monotonic()
            for pipe in [pipe for pipe, at in self.resting.items() if at <= now]:
                del self.resting[pipe]
                self.poll.register(pipe, select.POLLIN)

    def due(self):
        """When `take` is to be called although nothing was said; monotonic seconds."""
        return list(self.resting.values())

    def drain(self):
        """What was printed until now. Other processes that hold a pipe open are not waited for."""
        for capture in self.by_pipe.values():
            capture.take()

    def close(self):
        self.drain()
        for pipe, capture in self.by_pipe.items():
            if self.poll is not None:
                with contextlib.suppress(KeyError):
                    self.poll.unregister(pipe)
            capture.close()
        self.by_pipe, self.resting = {}, {}
