"""Attend a session of a job on this host: the daemon's end of a channel of its own, beside the agent's.

    rm_agent.py --attend

The first line on standard input names the session, and says how to begin it if it is to begin; or it asks for
a program of the job that waits for the daemon (rm_step_asks.py). The answer is a line, too.
After that bytes go both ways as they are (rm_session.py has their meaning), no faster than the other end
takes them.
"""

import contextlib
import json
import os
import re
import socket
import sys
import threading
import time

from rm_files import read_json
from rm_spool import Spool, SpoolError
from rm_step_peer import SOCKET

LINE_BYTES = 60 << 10
PIECE_BYTES = 64 << 10
LAST_S = 5.0  # that the last words may take when nobody reads any more
OPENS_S, LOOKS_S = 5.0, 0.01  # that a busy supervisor may take to listen, and between two looks
NAME = re.compile(r"[a-z0-9]{8,40}\Z")


def main(state):
    try:
        sock = _connected(state, json.loads(_line()))
    except SpoolError as error:
        _say({"error": str(error), "code": error.code})
        return 1
    except (ValueError, KeyError, TypeError) as error:
        _say({"error": "The request cannot be understood: %s." % error, "code": "bad-request"})
        return 1
    _say({"ok": True})
    words = threading.Thread(target=_copy_in, args=(sock,), daemon=True)
    words.start()
    try:
        while True:
            data = sock.recv(PIECE_BYTES)
            if not data:
                break
            _write(data)
    except OSError:  # nobody reads; what was said last, that somebody has gone, is passed on still
        words.join(LAST_S)
    os._exit(0)  # the other thread may wait for input


def _line():
    line = bytearray()
    while not line.endswith(b"\n"):
        data = os.read(0, 1)
        if not data or len(line) > LINE_BYTES:
            raise ValueError("it ends too early" if not data else "it is too long")
        line += data
    return bytes(line)


def _connected(state, asked):
    spool = Spool(state)
    spool.check_cluster(asked.get("cluster"))
    answers = bool(asked.get("answer"))
    if not answers and not NAME.match(asked["session"]):
        raise ValueError("a session has no such name")
    folder = spool.folder(int(asked["job"]), int(asked["attempt"]))
    if answers:
        return _asker(folder)
    if asked.get("begin") is not None:
        _begin(spool, folder, asked)
    path = folder.at("session." + asked["session"])
    try:
        return _connect(path)
    except OSError:
        why = "The session of job %d on %s has ended." % (folder.job, os.uname().nodename)
        raise SpoolError("no-such-session", why) from None


def _door(spool, folder):
    """To the step daemon. The supervisor of a job that starts no steps itself is asked to let us in."""
    path, name = folder.at(SOCKET), [folder.job, folder.attempt]
    if os.path.exists(path):
        return _connect(path)
    slices = spool.scan_slices()
    there = next((one for one in slices if name in (read_json(one.at("members.json")) or [])), folder)
    until = time.monotonic() + OPENS_S
    asks = there.tell({"op": "open", "job": folder.job, "attempt": folder.attempt})
    while asks and there.alive() and time.monotonic() < until:
        try:
            return _connect(path)
        except (FileNotFoundError, ConnectionRefusedError):  # it does not listen yet
            time.sleep(LOOKS_S)
    why = "Job %d does not run on %s."
    if asks and there.alive():
        why = (
            "Job %d on %s lets nobody in: the host's disk takes nothing more, or an agent has started it "
            "from before such jobs could be entered."
        )
    raise SpoolError("no-such-session", why % (folder.job, os.uname().nodename))


def _begin(spool, folder, asked):
    try:
        steps = _door(spool, folder)
        words = {"op": "session", "session": asked["session"], "begin": asked["begin"]}
        steps.sendall(json.dumps(words).encode() + b"\n")
        with steps.makefile("rb") as file:
            answer = json.loads(file.readline() or b'{"error": "The job ends."}')
    except (ConnectionRefusedError, FileNotFoundError):  # who listened there went with the script
        where = (folder.job, os.uname().nodename)
        raise SpoolError("no-such-session", "Job %d does not run on %s: it has just ended." % where) from None
    except OSError as error:
        raise SpoolError(
            "no-such-session", "Job %d cannot be entered: %s." % (folder.job, error.strerror)
        ) from None
    if "error" in answer:
        raise SpoolError("session-refused", answer["error"])


def _asker(folder):
    """Who of the job's programs waits longest: the step daemon gives them the other end."""
    said = b""
    try:
        sock = _connect(folder.at(SOCKET))
        sock.sendall(b'{"op": "answer"}\n')
        while not said.endswith(b"\n"):
            data = sock.recv(1)  # what follows the line is theirs
            if not data:
                break
            said += data
    except OSError:
        pass
    answer = json.loads(said or b'{"error": "The job ends."}')
    if "error" in answer:
        raise SpoolError("no-such-session", answer["error"])
    return sock


def _connect(path):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(path)
    return sock


def _copy_in(sock):
    try:
        while True:
            data = os.read(0, PIECE_BYTES)
            if not data:
                break
            sock.sendall(data)
    except OSError:
        pass
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)  # the session reads to the end before it closes


def _say(words):
    with contextlib.suppress(OSError):
        _write(json.dumps(words).encode() + b"\n")


def _write(data):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    sys.exit("rm_agent.py --attend begins this")
