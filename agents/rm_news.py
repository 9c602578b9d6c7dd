"""What a supervisor says to whichever agents there are, each through its fifo."""

import contextlib
import errno
import json
import os
import select
import time

PIPE_BYTES = 4096  # lines that are written together stay whole
TOGETHER_S = 0.02  # that gathered news waits for more
APART_S = 0.1  # between two tellings of it


def now_us():
    return time.time_ns() // 1000


def say(events_path, words):
    """Lines, of PIPE_BUF bytes together at most, to whichever agents there are."""
    try:
        fifos = os.listdir(events_path)
    except OSError:
        return  # no agent: the next one finds it on disk
    for name in fifos:
        if not name.startswith("."):
            _say_to(os.path.join(events_path, name), words)


class Gathered:
    """News of one attempt after the other, sent together: each telling wakes the agents, and the daemon
    behind them. What has ended before its start was told is told once."""

    def __init__(self, events_path):
        self._events_path = events_path
        self.ends, self.starts = [], []  # lines to be sent, and events of the one that runs
        self._since, self._told_at = None, 0.0  # when the first of it was, and when some was sent; monotonic

    def start(self, events, began_at):
        """Of the one that runs, which began then."""
        self.starts += events
        self._since = self._since or began_at

    def end(self, line):
        self.ends.append(line)
        self._since = self._since or time.monotonic()

    def many(self):
        """Is it nearly as much as is written together?"""
        return sum(map(len, self.ends)) > PIPE_BYTES // 2

    def due(self):
        """When it is to be sent, in monotonic seconds; None where there is nothing."""
        return None if self._since is None else self.due_of(self._since)

    def due_of(self, began_at):
        """When news of that time is to be sent."""
        return max(began_at + TOGETHER_S, self._told_at + APART_S)

    def send(self, name):
        """`name`: (job, attempt) of the one that runs."""
        lines = self.ends + [line_of(event, *name) for event in self.starts]
        if lines:
            say(self._events_path, b"".join(lines))
        self.ends, self.starts, self._since, self._told_at = [], [], None, time.monotonic()


def line_of(event, job, attempt):
    event = dict(event, job=job, attempt=attempt)
    for key in ("why", "error"):
        if key in event:
            event[key] = event[key][:540]  # six bytes each at most: the event stays below PIPE_BUF
    return json.dumps(event, ensure_ascii=False).encode(errors="replace") + b"\n"


def _say_to(fifo, words):
    try:
        fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # its agent is dead
            with contextlib.suppress(OSError):
                os.unlink(fifo)
        return
    try:
        os.write(fd, words)
    except BlockingIOError:
        # the agent is far behind; wait for it a little, after that it will look on disk by itself
        waiting = select.poll()
        waiting.register(fd, select.POLLOUT)
        waiting.poll(2000)
        with contextlib.suppress(OSError):
            os.write(fd, words)
    except OSError:
        pass
    finally:
        os.close(fd)
