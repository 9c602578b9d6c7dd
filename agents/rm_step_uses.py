"""The part of a step daemon that hears what steps use: from their parts on this host, each by a pipe, and
from the step daemons of the job's other hosts. The job's first host records it (rm_step_records.py), and lets
the daemon know that there is something new.
"""

import contextlib
import json
import os
import selectors
import time

from rm_step_used import checked

READ_BYTES = 64 << 10
NEWS_S = 1.0  # between two words to the daemon that steps were recorded


class Uses:
    """A part of rm_stepd.StepDaemon, whose attributes it uses."""

    def __init__(self):
        self.tellers = {}  # descriptor -> (step, what has come)
        self.news_at = None  # when to say that steps were recorded
        self.said_at = 0.0

    def _listen_to(self, fd, step):
        os.set_blocking(fd, False)
        self.tellers[fd] = step, bytearray()
        self.selector.register(fd, selectors.EVENT_READ, "used")

    def _hear_uses(self, steps=None):
        """Of these steps, or all: what their parts here have said."""
        for fd, (step, heard) in list(self.tellers.items()):
            if steps is not None and step not in steps:
                continue
            data = b""
            with contextlib.suppress(BlockingIOError):
                data = os.read(fd, READ_BYTES)
                if not data:
                    self.selector.unregister(fd)
                    os.close(fd)
                    del self.tellers[fd]
            heard += data
            *lines, rest = heard.split(b"\n")
            heard[:] = rest
            if lines:
                self._take_used(step, json.loads(lines[-1]))

    def _take_used(self, step, used):
        if self.place == 0:
            self._record_used(step, 0, used)
            return
        peer = self.links.get((0, str(step)))
        if peer is not None:
            peer.link.tell_used(used)

    def _hear_used_there(self, place, stream, used):
        """By another host's step daemon: ValueError, TypeError or KeyError for what none tells."""
        if used is not None and self.place == 0:
            self._record_used(int(stream), place, checked(used))

    def _record_used(self, step, place, used):
        if self.records.used(step, self.allocation[place]["host"], used):
            self._news()

    def _recorded(self, record, *what):
        record(*what)
        self._news()

    def _news(self):
        if self.news_at is None:
            self.news_at = max(time.monotonic(), self.said_at + NEWS_S)

    def _say_news(self):
        if self.news_at is not None and time.monotonic() >= self.news_at:
            self.news_at, self.said_at = None, time.monotonic()
            self.say({"event": "steps-recorded"})


def teller(fd):
    """In a part's process: says what its step uses here."""

    def tell(used):
        if used is not None:
            line = json.dumps(used, separators=(",", ":")).encode() + b"\n"
            with contextlib.suppress(OSError):  # the step daemon has ended, and the job with it
                os.write(fd, line)

    return tell
