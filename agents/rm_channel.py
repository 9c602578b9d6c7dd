"""The agent's end of its channel to the daemon: lines of JSON over standard input and output."""

import collections
import json
import os
import re
import selectors
import sys
import time
import traceback

from rm_spool import SpoolError, sentence_of

LINE_BYTES = 8 << 20
ID = re.compile(rb'\s*\{\s*"id"\s*:\s*([0-9]{1,18})\s*[,}]')
AHEAD_BYTES = 4 << 20  # with so much to say no more requests are taken
SILENT_S = 300.0  # a daemon measures the clock every 30 s; sshd may not notice for hours that it was cut off
AGAIN_S = 60.0  # when that is looked at again
OUTPUT_BYTES = 64 << 20  # a daemon so far behind is treated as gone


class Channel:
    """The daemon's end: lines in, lines out, neither ever blocks the loop."""

    def __init__(self, selector):
        self.selector = selector
        self.inbox, self.outbox = b"", bytearray()
        self.too_long = False  # the rest of such a line is still to come
        self.waiting = self.listening = False
        self.unanswered = collections.deque()  # lines
        self.heard_at = 0.0  # monotonic
        for fd in (0, 1):
            os.set_blocking(fd, False)

    def read(self):
        """Complete lines that have arrived; None at end of file. A line that is too long is answered here."""
        try:
            data = os.read(0, 1 << 18)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        self.heard_at = time.monotonic()
        *lines, self.inbox = (self.inbox + data).split(b"\n")
        if self.too_long and lines:
            self.too_long = False
            del lines[0]
        if len(self.inbox) > LINE_BYTES:
            if not self.too_long:
                self._refuse(self.inbox)
            self.too_long, self.inbox = True, b""
        return [line for line in lines if line.strip()]

    def _refuse(self, line):
        found = ID.match(line)
        error = SpoolError("bad-request", "The request is longer than %d MiB." % (LINE_BYTES >> 20))
        self.send(refusal(int(found.group(1)) if found else None, error))

    def send(self, message):
        self.send_line(json.dumps(message, separators=(",", ":")).encode())

    def send_line(self, line):
        self.outbox += line
        self.outbox += b"\n"

    def behind(self):
        """Does the peer take its answers more slowly than it asks?"""
        return len(self.outbox) > AHEAD_BYTES

    def listen(self):
        """To requests, as long as they can be answered."""
        if self.listening == bool(self.unanswered):
            self.listening = not self.unanswered
            if self.listening:
                self.heard_at = time.monotonic()
                self.selector.register(0, selectors.EVENT_READ, ("requests", None))
            else:
                self.selector.unregister(0)

    def is_silent(self):
        """Has nothing come for so long that nobody is there? To be asked when all that came was read."""
        return self.listening and time.monotonic() - self.heard_at >= SILENT_S

    def timeout_s(self):
        left_s = self.heard_at + SILENT_S - time.monotonic()
        return (left_s if left_s > 0 else AGAIN_S) if self.listening else None

    def flush(self):
        """Write what the pipe takes; False when the daemon is gone."""
        while self.outbox:
            try:
                del self.outbox[: os.write(1, self.outbox)]
            except BlockingIOError:
                break
            except OSError:
                return False
        if bool(self.outbox) != self.waiting:
            self.waiting = bool(self.outbox)
            if self.waiting:
                self.selector.register(1, selectors.EVENT_WRITE, ("flush", None))
            else:
                self.selector.unregister(1)
        return len(self.outbox) <= OUTPUT_BYTES


def refusal(number, error):
    """The error reply for an exception; only a defect writes a traceback, and only to standard error."""
    code, sentence = getattr(error, "code", None), str(error)
    if isinstance(error, OSError):
        code, sentence = sentence_of(error)
    elif isinstance(error, (ValueError, RecursionError)) and code is None:
        code, sentence = "bad-request", "The request cannot be understood: %s." % error
    elif not isinstance(code, str):
        code = "defect"
        sentence = "%s: %s" % (type(error).__name__, error)
        sys.stderr.write(traceback.format_exc())
    return {"id": number, "ok": False, "code": code, "error": sentence}
