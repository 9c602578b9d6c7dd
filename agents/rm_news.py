"""What a supervisor says to whichever agents there are, each through its fifo."""

import contextlib
import errno
import json
import os
import select
import time


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
