"""Continuous latency tests (perfSONAR's latencybg): the agent's door to the process that makes them.

The operation `latencybg` names all streams that this host is to have; the process (rm_latencybg_process.py)
is started where there is none, and another one that is of other files is replaced.
"""

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import time

from rm_kernel import STATE, KernelRefused, require

PARTS = ("rm_latencybg_process.py", "rm_latencybg_window.py", "rm_delays.py")
START_S = 10.0
PAUSE_S = 0.02
NOTHING = {"life": 0, "port": 0, "now_us": 0, "listening": [], "secrets": [], "sent": [], "received": [],
           "last": 0, "more": False}  # fmt: skip


def latencybg(request):
    """Pass the order on, and the answer back."""
    (streams,) = require(request, "streams")
    order = {key: request.get(key, 0) for key in ("after", "done", "life")}
    order.update(streams=[dict(one, ends=_ends(one["address"])) for one in streams], program=_program())
    folder = os.path.join(STATE, "latencybg")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chdir(folder)  # of this operation's own process
    line = json.dumps(order, separators=(",", ":")).encode() + b"\n"
    until_s, started = time.monotonic() + START_S, None
    while True:
        answer = _asked(line)
        if answer is not None:
            if "error" in answer:
                raise KernelRefused("refused-by-kernel", "The streams cannot be made: %s" % answer["error"])
            return answer
        if not streams and started is None and not os.path.exists("door"):
            return NOTHING
        if started is None or started.poll() is not None:
            if started is not None and started.returncode:
                said = started.stderr.read().decode(errors="replace").strip()
                raise KernelRefused("refused-by-kernel", "The streams cannot be made: %.300s" % said)
            started = _start(folder)
        if time.monotonic() > until_s:
            raise KernelRefused("died", "The process of continuous latency tests does not answer.")
        time.sleep(PAUSE_S)


def _ends(address):
    """[family, address] of each address that a host has; none while its name cannot be looked up."""
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_DGRAM)
    except OSError:
        return []
    return sorted([int(family), name[0]] for family, _, _, _, name in found)


def _program():
    """Which program the process is to be: the content of its files."""
    here, sums = os.path.dirname(os.path.abspath(__file__)), hashlib.sha256()
    for name in PARTS:
        with open(os.path.join(here, name), "rb") as file:
            sums.update(file.read())
    return sums.hexdigest()[:12]


def _asked(line):
    """The answer; None: nobody answers, or one that ends because it is of other files."""
    with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(START_S)
        peer.connect("door")
        peer.sendall(line)
        with peer.makefile("rb") as lines:
            answer = json.loads(lines.readline())
            return answer if isinstance(answer, dict) else None
    return None


def _start(folder):
    """In a session of its own: it outlives this process and the agent."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), PARTS[0])
    return subprocess.Popen(
        [sys.executable, "-S", "-E", path, folder, _program()], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, cwd="/",
    )  # fmt: skip


OPS = {}
SLOW_OPS = {"latencybg": latencybg}
