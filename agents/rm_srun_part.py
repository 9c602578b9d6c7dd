"""The part of a step on one host, as srun hears it: another host of the job says what it likes."""

import contextlib
import signal
import socket

import rm_sockets
from rm_step_frames import ENDED, ERRORS, OUTPUT, PMI, TAKEN, frames

HEARD_BYTES = 1 << 18
NUMBERS_BYTES = 32  # of what ENDED and TAKEN say, at most
# While more waits for the part it is not heard: it asks for more than it takes. An honest one has input
# and one answer of PMI for each task, and must be heard then: it hears nothing while much waits of its own.
UNTAKEN_BYTES, UNTAKEN_OF_TASK_BYTES = 256 << 10, 8 << 10


class Nonsense(Exception):
    """What no part of a step says."""


class Part:
    """Of the step, on one host, where the tasks of these `ranks` run."""

    def __init__(self, sock, host, ranks):
        self.sock, self.host = sock, host
        self.ranks = frozenset(ranks)
        self.left = set(ranks)  # tasks that have not ended
        self.untaken_bytes = UNTAKEN_BYTES + UNTAKEN_OF_TASK_BYTES * len(self.left)
        self.inbox, self.outbox = bytearray(), bytearray()

    def hears(self):
        return len(self.outbox) < self.untaken_bytes

    def send(self, data=b""):
        self.outbox += data
        if not rm_sockets.say(self.sock, self.outbox):
            self.outbox.clear()

    def heard(self):
        """The frames that have come: (kind, rank, value). Of a task that has ended only output comes, of what
        it left behind, until all tasks of the part have ended. The value of TAKEN is a number of bytes, of
        ENDED the exit code and the signal, of others the frame's data.

        Raises:
            EOFError: it is gone.
            Nonsense: it says what it never should.
        """
        data = rm_sockets.hear(self.sock, HEARD_BYTES)
        if data is None:
            return
        if not data:
            raise EOFError
        self.inbox += data
        try:
            for kind, rank, body in frames(self.inbox):
                if not self._may_say(kind, rank):
                    raise Nonsense
                yield kind, rank, _meant(kind, body)
        except ValueError:
            raise Nonsense from None

    def _may_say(self, kind, rank):
        if kind in (OUTPUT, ERRORS):
            return bool(self.left) and rank in self.ranks
        return kind not in (PMI, TAKEN, ENDED) or rank in self.left

    def leave(self):
        """Whoever is there ends the tasks."""
        self.left = set()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


def _meant(kind, body):
    if kind in (TAKEN, ENDED) and len(body) > NUMBERS_BYTES:
        raise Nonsense  # Python would compute for minutes
    if kind == TAKEN:
        count = int(body)
        if count < 0:
            raise Nonsense
        return count
    if kind == ENDED:
        code, number = map(int, body.split())
        if not (0 <= code <= 255 and 0 <= number < signal.NSIG):
            raise Nonsense
        return code, number
    return body
