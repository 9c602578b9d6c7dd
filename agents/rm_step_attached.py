"""Who attends a step beside its srun, as sattach does: srun's end of their connections.

The step daemon (rm_stepd.py) passes a connection on to the srun of the step. Each gets what the step is,
and then what its tasks say, as they say it. No task waits for one who does not take it: such a one loses
what comes meanwhile, and learns how much.
"""

import array
import json
import select
import signal
import socket
import time

import rm_sockets
from rm_step_frames import ERRORS, FRAME_BYTES, INPUT, LOST, OUTPUT, REQUEST, SIGNAL, frame, frames

KEPT_BYTES = 512 << 10  # of output that one has not taken
MOST = 16  # who attend a step at once
LAST_S = 1.0  # that they have to take the last words
LINE_BYTES = 4096


def pass_on(sock, step, owner):
    """In the step daemon: give `sock` to the srun of the step, the peer `owner`. What is wrong, or ""."""
    if owner is None or owner.how is not None:
        return "No srun runs step %d." % step
    if not owner.attachable:
        return "The srun of step %d is of an older agent." % step
    fds = array.array("i", [sock.fileno()])
    try:
        if owner.outbox:
            raise BlockingIOError
        owner.sock.sendmsg([b'{"attach":true}\n'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    except OSError:
        return "The srun of step %d does not listen now." % step
    return ""


def line(control, rest, taken):
    """The next line that the step daemon says, b"" at its end. `rest` is what came behind earlier ones; the
    connections that it passed on meanwhile go to `taken`."""
    while b"\n" not in rest:
        data, passed, _, _ = control.recvmsg(LINE_BYTES, socket.CMSG_SPACE(4 * MOST))
        for level, kind, numbers in passed:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(numbers[: len(numbers) // fds.itemsize * fds.itemsize])
                taken.extend(socket.socket(fileno=fd) for fd in fds)
        if not data:
            return b""
        rest += data
    text, _, left = bytes(rest).partition(b"\n")
    rest[:] = left
    return text


def _is_sattachs(kind, number, body):
    if kind == SIGNAL:
        return number < signal.NSIG and not body
    return kind == INPUT and len(body) <= FRAME_BYTES


class One:
    def __init__(self, sock, hello):
        sock.setblocking(False)
        self.sock, self.lost, self.types = sock, 0, False
        self.inbox, self.outbox = bytearray(), bytearray(frame(REQUEST, 0, hello))

    def take(self, kind, rank, data):
        if self.lost and (not self.outbox or kind not in (OUTPUT, ERRORS)):
            self.outbox += frame(LOST, 0, b"%d" % self.lost)
            self.lost = 0
        if kind in (OUTPUT, ERRORS) and (self.lost or len(self.outbox) + len(data) > KEPT_BYTES):
            self.lost += len(data)
            return
        self.outbox += frame(kind, rank, data)


class Audience:
    """`hello` says what the step is at this moment, `taken` are those who came while it began; `signalled`
    hears of each signal that one sends to the step, 0: it is to end."""

    def __init__(self, control, hello, taken, signalled):
        self.control, self.hello, self.signalled = control, hello, signalled
        self.by_fd = {}  # descriptor -> One
        for sock in taken:
            self._meet(sock)

    def _meet(self, sock):
        if len(self.by_fd) >= MOST:
            sock.close()
            return
        one = One(sock, json.dumps(self.hello()).encode())
        self.by_fd[sock.fileno()] = one
        self._flush(one)

    def tell(self, kind, rank, data):
        for one in list(self.by_fd.values()):
            one.take(kind, rank, data)
            self._flush(one)

    def watch(self, poll, hears):
        """`hears`: their input could be passed on."""
        if self.control is not None:
            poll.register(self.control, select.POLLIN)
        for fd, one in self.by_fd.items():
            reads = hears or not one.types  # who only sends signals does not wait for the tasks' reading
            poll.register(fd, (select.POLLIN if reads else 0) | (select.POLLOUT if one.outbox else 0))

    def serve(self, fd, events):
        """What they type: (rank or ALL, data) of each piece. None: the descriptor is none of ours."""
        if self.control is not None and fd == self.control.fileno():
            self._hear_control()
            return []
        one = self.by_fd.get(fd)
        if one is None:
            return None
        if events & select.POLLOUT:
            self._flush(one)
        if events & ~select.POLLOUT and fd in self.by_fd:
            return self._hear(one)
        return []

    def _hear_control(self):
        taken = []
        try:
            said = line(self.control, bytearray(), taken)
        except OSError:
            said = b""
        if not said:
            self.control = None  # the job ends
        for sock in taken:
            self._meet(sock)

    def _hear(self, one):
        data = rm_sockets.hear(one.sock, FRAME_BYTES)
        if data is None:
            return []
        if not data:
            self._drop(one)
            return []
        one.inbox += data
        try:
            pieces = list(frames(one.inbox))
        except ValueError:
            pieces = [(None, 0, b"")]
        if not all(_is_sattachs(*piece) for piece in pieces):
            self._drop(one)
            return []
        for number in [number for kind, number, _ in pieces if kind == SIGNAL]:
            self.signalled(number)
            one.outbox += frame(SIGNAL, number)  # it was sent
            self._flush(one)
        typed = [(rank, body) for kind, rank, body in pieces if kind == INPUT]
        one.types = one.types or bool(typed)
        return typed

    def _flush(self, one):
        if not rm_sockets.say(one.sock, one.outbox):
            self._drop(one)

    def _drop(self, one):
        self.by_fd.pop(one.sock.fileno(), None)
        one.sock.close()

    def close(self):
        """Once all is said."""
        until = time.monotonic() + LAST_S
        while any(one.outbox for one in self.by_fd.values()) and time.monotonic() < until:
            poll = select.poll()
            for fd, one in self.by_fd.items():
                if one.outbox:
                    poll.register(fd, select.POLLOUT)
            for fd, _ in poll.poll(100):
                self._flush(self.by_fd[fd])
        for one in list(self.by_fd.values()):
            self._drop(one)
