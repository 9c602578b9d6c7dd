"""The agent's part in streams of steps: between the daemon's channel and the step daemons on this host.

Nothing is kept here but what is under way: the step daemons bound it, and repeat what is lost.
"""

import json
import os
import selectors
import socket
import stat
import sys
import time

import rm_sockets
from rm_step_peer import SOCKET

PER_S, BURST = 2000, 200  # pieces that this host says; a daemon takes 5,000 notifications a second of a host
REST_S = 0.01
# what our programs begin with: no shell, which would take functions and options that a shell has exported
# (`module`, SHELLOPTS) for its own, and drop or change them
PROGRAM = """#!%s
import sys

sys.path[0], sys.argv[1:1] = %r, %r
import %s as program

sys.exit(program.main(sys.argv[1:]))
"""
ANY_PYTHON = "/usr/bin/env -S python3 -S -E"
LINE_BYTES = 100  # older kernels read 127 of a first line
PROGRAMS = (
    ("srun", "rm_srun"),
    ("sattach", "rm_sattach"),
    ("scontrol", "rm_scontrol"),
    ("sbcast", "rm_sbcast"),
    ("rm-remote", "rm_remote"),
    ("rm-hold", "rm_hold"),
)
CLIENTS = (
    "sbatch", "squeue", "scancel", "sinfo", "sacct", "sstat", "seff", "sprio", "sshare", "sreport",
    "sacctmgr", "salloc", "strigger", "scrontab", "sdiag",
)  # fmt: skip
OF_TASKS = ("scontrol",)  # a task that rm started has no steps, and asks no daemon; but it knows its hosts
PARTS = ("place", "stream", "offset", "data", "ack", "end", "gone", "used")


class _Connection:
    def __init__(self, sock, name):
        self.sock, self.name = sock, name
        self.inbox, self.outbox = b"", bytearray()
        self.resting = False


class StreamHub:
    """`notify` says something to the daemon, `behind` is whether it takes that too slowly."""

    def __init__(self, selector, notify, behind):
        self.selector, self.notify, self.behind = selector, notify, behind
        self.by_name = {}  # (job, attempt) -> _Connection
        self.left, self.filled_at = float(BURST), time.monotonic()

    def connect(self, folder):
        """To the step daemon of an attempt, once; None when there is none."""
        name = folder.job, folder.attempt
        if name not in self.by_name:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.setblocking(False)  # a user who leaves no room in the queue must not keep the agent
            try:
                sock.connect(folder.at(SOCKET))
            except OSError as error:
                sock.close()
                sys.stderr.write("job %d: no step daemon: %s\n" % (folder.job, error))
                return None
            made = self.by_name[name] = _Connection(sock, name)
            made.outbox += b'{"op":"agent"}\n'
            self.selector.register(sock, selectors.EVENT_READ, ("stream", made))
            self.flush(made)
        return self.by_name[name]

    def deliver(self, folder, request):
        """From another host of the attempt; answered with `gone` when nobody is here for it."""
        connection = self.connect(folder) if folder is not None else None
        if connection is None:
            if not request.get("gone"):
                gone = {"offset": 0, "data": "", "ack": 0, "end": False, "gone": True}
                self.notify(dict(gone, event="stream", **{key: request[key] for key in
                                 ("job", "attempt", "place", "stream")}))  # fmt: skip
            return {}
        connection.outbox += json.dumps({"op": "piece", **{key: request.get(key) for key in PARTS}}).encode()
        connection.outbox += b"\n"
        self.flush(connection)
        return {}

    def serve(self, connection, events):
        if events & selectors.EVENT_WRITE:
            self.flush(connection)
        if not events & selectors.EVENT_READ or connection.sock.fileno() < 0:
            return
        data = rm_sockets.hear(connection.sock, 1 << 17)
        if data is None:
            return
        if not data:
            self._drop(connection)
            return
        *lines, connection.inbox = (connection.inbox + data).split(b"\n")
        for line in lines:
            piece = json.loads(line)
            job, attempt = connection.name
            told = {key: piece[key] for key in PARTS if key in piece}
            self.notify(dict(told, event="stream", job=job, attempt=attempt))
        self.left -= len(lines)

    def flush(self, connection):
        if rm_sockets.say(connection.sock, connection.outbox):
            self._watch(connection)
        else:
            self._drop(connection)

    def look(self):
        """Read the step daemons only as fast as the daemon takes their output."""
        now = time.monotonic()
        self.left = min(BURST, self.left + (now - self.filled_at) * PER_S)
        self.filled_at = now
        rest = self.left <= 0 or self.behind()
        for connection in list(self.by_name.values()):
            if connection.resting != rest:
                connection.resting = rest
                self._watch(connection)

    def timeout_s(self):
        return REST_S if any(connection.resting for connection in self.by_name.values()) else None

    def _watch(self, connection):
        events = 0 if connection.resting else selectors.EVENT_READ
        events |= selectors.EVENT_WRITE if connection.outbox else 0
        known = self.selector.get_map().get(connection.sock)
        if known is not None and known.events != events:
            self.selector.unregister(connection.sock)
        if events and (known is None or known.events != events):
            self.selector.register(connection.sock, events, ("stream", connection))

    def _drop(self, connection):
        if connection.sock in self.selector.get_map():
            self.selector.unregister(connection.sock)
        connection.sock.close()
        self.by_name.pop(connection.name, None)


def programs(state):
    """Make the folders that are first in the PATH of jobs that start their steps, and of the tasks of others;
    their programs are ours."""
    modules = [(name, module, []) for name, module in PROGRAMS]
    modules += [(name, "rm_client", [name]) for name in CLIENTS]
    _put(os.path.join(state, "bin"), modules)
    _put(os.path.join(state, "task-bin"), [one for one in modules if one[0] in OF_TASKS])


def _put(home, modules):
    os.makedirs(home, mode=0o755, exist_ok=True)
    os.chmod(home, 0o755)
    here, interpreter = os.path.dirname(os.path.abspath(__file__)), _interpreter()
    for name, module, words in modules:
        path, aside = os.path.join(home, name), os.path.join(home, ".%s.%d" % (name, os.getpid()))
        with open(aside, "w") as file:
            file.write(PROGRAM % (interpreter, here, words, module))
            os.fchmod(file.fileno(), 0o755)
        os.rename(aside, path)


def _interpreter():
    """Of the programs: the agent's own, where every user may run it and a first line can name it."""
    for path in (sys.executable, os.path.realpath(sys.executable)):
        steps = [os.path.realpath(path)]
        for at in (path, steps[0]):
            while at != os.path.dirname(at):
                at = os.path.dirname(at)
                steps.append(at)
        if (
            len(path) < LINE_BYTES
            and " " not in path
            and all(os.stat(at).st_mode & stat.S_IXOTH for at in steps)
        ):
            return path + " -SE"
    return ANY_PYTHON
