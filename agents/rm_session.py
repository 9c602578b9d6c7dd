"""A session of a job: a program with somebody at its terminal, or at its input and output, from elsewhere.

A process of its own that the step daemon of the attempt forks: the program is in the job's control group, its
user, environment and view are the job's. Whoever attends it connects to a socket in the attempt's folder, and
may go and come again: frames have the offset of their first byte, and what was not acknowledged is kept, at
most WINDOW_BYTES each way. A program whose output nobody takes waits; one with a terminal that nobody attends
goes on, and its newest output is kept.
"""

import contextlib
import errno
import fcntl
import os
import pty
import resource
import select
import signal
import socket
import struct
import termios
import time

import rm_sockets
from rm_become import PR_SET_PDEATHSIG, enter_directory, leave_files, prctl, task_environment, umask_of
from rm_cgroup import send
from rm_session_kept import Kept
from rm_step_frames import LEFT_S
from rm_step_used import StepMeter

HEAD = struct.Struct("!cQI")  # kind, offset or number, length of what follows
HAVE, INPUT, END_OF_INPUT, WINDOW, SIGNAL, TAKEN, BYE, AWAY = (
    b"H", b"I", b"E", b"W", b"S", b"A", b"B", b"G",
)  # who attends says; AWAY the daemon, in its place  # fmt: skip
OUTPUT, ERRORS, ENDED = b"O", b"X", b"D"  # the session says, and HAVE and TAKEN
FRAME_BYTES = 32 << 10
WINDOW_BYTES = 512 << 10
MEMORY_BYTES = 64 << 20
UNSENT_BYTES = 16 * WINDOW_BYTES  # to who attends; they are not heard while they do not read it
AWAY_S = 30.0  # a user may be away this long before the program hears that its terminal was closed
KILL_S = 5.0  # from there to SIGKILL
KEPT_S = 600.0  # that the end is kept for somebody who was cut off
ATTENDED_S = 5.0  # …, and for one who was told, to say so
SIZE = struct.Struct("4H")


def frame(kind, number, data=b""):
    return HEAD.pack(kind, number, len(data)) + data


def frames(buffer):
    """The complete frames at the beginning of a bytearray, which it loses: (kind, number, data)."""
    while len(buffer) >= HEAD.size:
        kind, number, length = HEAD.unpack_from(buffer)
        if length > FRAME_BYTES:
            raise ValueError("a frame is too long")
        if len(buffer) < HEAD.size + length:
            return
        data = bytes(buffer[HEAD.size : HEAD.size + length])
        del buffer[: HEAD.size + length]
        yield kind, number, data


class Session:
    """`asked`: {"argv", "terminal", "keep", "term", "rows", "columns", "releases", "step",
    "in_step", "outside"}; without argv it is the user's shell. `release` says the program's exit code to who
    holds the job, where the session is what the job is for."""

    def __init__(self, listener, asked, group, request, user, fence, folder, bounds, release):
        self.listener, self.asked, self.group, self.request = listener, asked, group, request
        self.user, self.fence, self.folder, self.bounds = user, fence, folder, bounds
        self.release = release
        self.within = None  # rm_step_entered.Entered, where it is in a step
        self.on_end = None  # that hears (exit code, signal) when the program has ended
        self.terminal = bool(asked.get("terminal"))
        self.keep = bool(asked.get("keep"))
        self.kept = Kept()
        self.peer, self.inbox, self.outbox = None, bytearray(), bytearray()
        self.met = False  # the peer has said what it has
        self.input, self.input_ends, self.heard, self.fed = bytearray(), False, 0, 0
        self.stdin, self.streams = -1, {}  # descriptor -> OUTPUT or ERRORS
        self.pid, self.status, self.usage = 0, None, None
        self.owed, self.left_until = {}, None  # of what stood in the streams at the end of the program
        self.over_at = None  # nobody came for the end until then
        self.told = False  # the end was taken
        self.away_at = self.kill_at = None
        self.size = (int(asked.get("rows") or 24), int(asked.get("columns") or 80))

    def run(self):
        self.bounds.impose(MEMORY_BYTES)
        wake, wake_in = os.pipe()
        for fd in (wake, wake_in):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            self._start()
            while not self._over():
                self._turn(wake)
        finally:
            self.group.kill()
            if self.status is None:
                send([self.pid], signal.SIGKILL)
            if self.asked.get("releases"):
                self.release(self._code()[0] or (128 + self._code()[1] if self._code()[1] else 0))
            for _ in range(100):
                if self.group.remove():
                    break
                self.group.kill()
                select.select([], [], [], 0.01)

    # one turn

    def _turn(self, wake):
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        poll.register(self.listener, select.POLLIN)
        if self.peer is not None:
            events = select.POLLOUT if self.outbox else 0
            if len(self.outbox) < UNSENT_BYTES:
                events |= select.POLLIN
            poll.register(self.peer, events)
        if self._reads():
            for fd in self.streams:
                poll.register(fd, select.POLLIN)
        if self.stdin >= 0 and self.input and self.stdin not in self.streams:
            poll.register(self.stdin, select.POLLOUT)
        elif self.stdin >= 0 and self.input:
            poll.register(self.stdin, select.POLLOUT | (select.POLLIN if self._reads() else 0))
        ready = dict(poll.poll(self._patience_ms()))
        if wake in ready:
            os.read(wake, 4096)
        if self.listener.fileno() in ready:
            self._meet()
        elif self.peer is not None and ready.get(self.peer.fileno(), 0) & ~select.POLLOUT:
            self._hear()
        self._feed()
        for fd in [fd for fd in self.streams if ready.get(fd, 0) & ~select.POLLOUT]:
            self._read(fd)
        self._reap()
        self._look()
        self._flush()

    def _patience_ms(self):
        due = [at for at in (self.over_at, self.away_at, self.kill_at, self.left_until) if at is not None]
        return max(0, min(due) - time.monotonic()) * 1000 + 1 if due else None

    def _reads(self):
        attended = self.peer is not None and self.met
        return self.kept.size() < WINDOW_BYTES or (self.terminal and not attended)

    def _ended(self):
        return self.status is not None and not self.streams

    def _over(self):
        return self._ended() and (self.told or time.monotonic() >= self.over_at)

    def _look(self):
        now = time.monotonic()
        if self.away_at is not None and now >= self.away_at:
            self.away_at = None
            self._hang_up()
        if self.left_until is not None and now >= self.left_until:
            self.left_until = None
        if self.status is not None and self.left_until is None:
            for fd in [fd for fd in self.streams if self.owed.get(fd, 0) <= 0]:
                self._forget(fd)  # what the program left in the background does not keep the session
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = None
            self._send(signal.SIGKILL)
        if self._ended() and self.over_at is None:
            for fd in (self.stdin,):
                if fd >= 0:
                    os.close(fd)
            self.stdin = -1
            self.over_at = now + KEPT_S
            if self.on_end is not None:
                self.on_end(*self._code())
            self._say_end()

    def _hang_up(self):
        if self.keep or self.status is not None:
            return
        self._send(signal.SIGHUP)
        self._send(signal.SIGCONT)
        self.kill_at = time.monotonic() + KILL_S

    def _send(self, number):
        send(self.group.pids() if self.group.path else [self.pid], number)

    # who attends

    def _meet(self):
        try:
            sock, _ = self.listener.accept()
        except OSError:
            return
        if self.peer is not None:  # the newest one attends
            if not self.outbox:  # else it is in the middle of a frame
                rm_sockets.say(self.peer, bytearray(frame(BYE, 0)))
            self.peer.close()
        sock.setblocking(False)
        self.peer, self.met = sock, False
        self.inbox.clear()
        self.outbox.clear()

    def _leave(self):
        self.peer.close()
        self.peer, self.met = None, False
        self.outbox.clear()
        if self.terminal:
            self.kept.drop_oldest(WINDOW_BYTES)

    def _hear(self):
        data = rm_sockets.hear(self.peer, 1 << 16)
        if data is None:
            return
        if not data:
            self._leave()
            return
        self.inbox += data
        try:
            for kind, number, body in frames(self.inbox):
                self._obey(kind, number, body)
                if self.peer is None:
                    return
        except (ValueError, struct.error):  # it speaks something else, as one that was cut off in a frame
            self.away_at = time.monotonic() + AWAY_S
            self._leave()

    def _obey(self, kind, number, body):
        if kind == HAVE:
            if self.met:  # each is answered with all that is kept
                raise ValueError("it says twice what it has")
            self.met, self.away_at = True, None
            self.kept.take(number)
            self.outbox += frame(HAVE, self.heard)
            for piece in self.kept.after(number):
                self.outbox += frame(*piece)
            if self._ended():
                self._say_end()
        elif kind == INPUT:
            fresh = body[max(0, self.heard - number) :] if number <= self.heard else b""
            self.heard += len(fresh)
            if self.input_ends or self.stdin < 0:
                self.fed += len(fresh)
                self.outbox += frame(TAKEN, self.fed)
                return
            self.input += fresh
            if len(self.input) > 2 * WINDOW_BYTES:
                raise ValueError("it sends more than it may")
        elif kind == END_OF_INPUT:
            self.input_ends = True
        elif kind == TAKEN:
            self.kept.take(number)
            if number > self.kept.written and self._ended():
                self.told = True
        elif kind == WINDOW and self.terminal and len(body) == 4:
            self.size = struct.unpack("!2H", body)
            self._resize()
        elif kind == SIGNAL and 0 < number < signal.NSIG and self.status is None:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)
        elif kind == BYE:
            self._hang_up()
        elif kind == AWAY:
            self.away_at = time.monotonic() + AWAY_S
            self._leave()

    def _flush(self):
        if self.peer is not None and self.outbox and not rm_sockets.say(self.peer, self.outbox):
            self.met = False  # it reads no more; what it said last, that it goes or has gone, is heard still
            self.outbox.clear()

    def _say_end(self):
        if self.peer is not None and self.met:
            self.outbox += frame(ENDED, self.kept.written, b"%d %d" % self._code())

    def _code(self):
        if self.status is None:
            return 0, signal.SIGKILL
        signalled = os.WIFSIGNALED(self.status)
        return (0, os.WTERMSIG(self.status)) if signalled else (os.WEXITSTATUS(self.status), 0)

    # the program

    def _start(self):
        if self.terminal:
            master, slave = pty.openpty()
            mine, its = [master], [slave, slave, slave]
            self.stdin, self.streams = master, {master: OUTPUT}
            self._resize()
        else:
            ends = [os.pipe() for _ in range(3)]
            its = [ends[0][0], ends[1][1], ends[2][1]]
            self.stdin, self.streams = ends[0][1], {ends[1][0]: OUTPUT, ends[2][0]: ERRORS}
            mine = [self.stdin, *self.streams]
        self.pid = self.group.fork()
        if self.pid == 0:
            self._become(its)
        for fd in set(its):
            os.close(fd)
        for fd in mine:
            os.set_blocking(fd, False)

    def _resize(self):
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.stdin, termios.TIOCSWINSZ, SIZE.pack(*self.size, 0, 0))

    def _feed(self):
        if self.stdin < 0:
            return
        taken, reads = rm_sockets.feed(self.stdin, self.input, FRAME_BYTES)
        self.input_ends |= not reads
        if taken:
            self.fed += taken
            if self.peer is not None and self.met:
                self.outbox += frame(TAKEN, self.fed)
        if self.input_ends and not self.input and not self.terminal:
            os.close(self.stdin)
            self.stdin = -1

    def _read(self, fd):
        try:
            data = os.read(fd, FRAME_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EIO:  # of a terminal that no program has open any more
                raise
            data = b""
        if not data:
            self._forget(fd)
            return
        self.owed[fd] = self.owed.get(fd, 0) - len(data)
        kind, offset = self.streams[fd], self.kept.written
        self.kept.add(kind, data)
        if self.peer is not None and self.met:
            self.outbox += frame(kind, offset, data)
        elif self.terminal:
            self.kept.drop_oldest(WINDOW_BYTES)

    def _forget(self, fd):
        del self.streams[fd]
        if fd != self.stdin:
            os.close(fd)

    def _reap(self):
        with contextlib.suppress(ChildProcessError):
            while self.status is None:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.pid:
                    self.status, self.usage = status, usage
                    if self.terminal:
                        self._hear_the_last()
                    self.owed = {fd: rm_sockets.waiting_bytes(fd) for fd in self.streams}
                    self.left_until = time.monotonic() + LEFT_S

    def used(self):
        """What the program used, as one task of a step."""
        meter = StepMeter(self.group, dict)
        meter.reaped(0, self.usage)
        return meter.end()

    def _hear_the_last(self):
        """What stands in the terminal; what still runs in the background does not keep the session."""
        for fd in list(self.streams):
            while fd in self.streams and self._waits(fd):
                self._read(fd)
            if fd in self.streams:
                self._forget(fd)

    @staticmethod
    def _waits(fd):
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(0))

    def _environment(self):
        if self.within is not None:
            return dict(self.within.environ)
        task = self.request["tasks"][0]
        return task_environment(self.folder, self.request, self.user, task, self.fence.hides_gpus)

    def _become(self, streams):
        """Between fork and exec."""
        argv = self.asked.get("argv") or [self.user.shell or "/bin/sh"]
        try:
            os.setsid()
            for target, fd in enumerate(streams):  # first: what goes wrong is said there
                os.dup2(fd, target)
            self.group.enter()
            leave_files(*self.fence.views())
            environ = self._environment()
            environ["SLURM_TASK_PID"] = str(os.getpid())
            if self.terminal:
                environ["TERM"] = str(self.asked.get("term") or "xterm")
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            os.umask(umask_of(environ))
            if self.fence.has_view:
                self.fence.enter_view()
            resource.setrlimit(resource.RLIMIT_NOFILE, self.request["task_files"])
            self.bounds.lift()
            self.fence.bind_task()
            if self.within is not None:
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(0, self.within.cpus)
            if os.getuid() == 0:
                for fd in range(3):
                    os.fchown(fd, self.user.uid, -1 if self.terminal else self.user.gid)
                os.initgroups(self.user.name, self.user.gid)
                os.setgid(self.user.gid)
                os.setuid(self.user.uid)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            wanted = dict(self.request, chdir_required=False)
            if self.within is not None:
                wanted["chdir"] = self.within.cwd
                argv = self.within.command(self.asked.get("argv"), self.terminal) or argv
            enter_directory(wanted, self.user, lambda words: None)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execvpe(argv[0], argv, environ)
        except OSError as error:
            why = "%s: %s: %s\n" % (os.uname().nodename, argv[0], os.strerror(error.errno or 0))
            os.write(2, why.encode(errors="replace"))
            os._exit(127 if error.errno == errno.ENOENT else 126)
        except BaseException as error:
            os.write(2, ("the program could not be started: %s\n" % error).encode(errors="replace"))
        finally:
            os._exit(1)


def listen(path):
    """The socket on which the session is attended; the agent's user alone may connect."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        sock.bind(path)
    finally:
        os.umask(mask)
    sock.listen(8)
    sock.setblocking(False)
    return sock
