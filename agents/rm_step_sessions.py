"""The part of a step daemon that begins sessions: programs that somebody attends from elsewhere.

On the job's first host one that has a name for the job's accounting is recorded there as a step, which holds
nothing (rm_step_records.py).
"""

import contextlib
import json
import os
import signal
import socket
import time

import rm_session
from rm_become import PR_SET_PDEATHSIG, prctl
from rm_step_entered import Entered, Refused
from rm_step_peer import SOCKET
from rm_step_plan import folded_hosts

SESSIONS, SESSIONS_EVER = 128, 100_000  # of the attempt on this host: at once, and together
RECORD_S, ANSWER_BYTES = 10.0, 4096  # a session waits until its end is recorded
ENTER_S = 10.0  # that a step may take to reach this host, and its first task here to become its program


class Sessions:
    """A part of rm_stepd.StepDaemon, whose attributes it uses."""

    def __init__(self):
        self.sessions = {}  # process -> (name, step or None)
        self.session_names = set()  # that were ever begun: none begins twice
        self.entering = []  # (peer, name, asked, until when) whose step does not run here yet
        self.released = None  # the exit code that who holds the job is to have

    def _enter(self):
        """Begin the sessions in steps that have come to run here meanwhile."""
        waiting, self.entering = self.entering, []
        for peer, name, asked, until in waiting:
            if peer.sock.fileno() in self.peers:
                self._begin_session(peer, name, asked, until)

    def _begin_session(self, peer, name, asked, until=None):
        path = self.folder.at("session." + name)
        within = None
        if asked.get("in_step") is not None:
            step = int(asked["in_step"])
            try:
                within = self._entered(step)
            except Refused as error:
                until = until or time.monotonic() + ENTER_S
                if self._may_come(step) and time.monotonic() < until:
                    self.entering.append((peer, name, asked, until))
                else:
                    self._tell(peer, {"error": str(error)})
                return
        elif self.request.get("container") and not asked.get("outside"):
            self._tell(peer, {"error": "The job runs in a container, which no session enters."})
            return
        if any(name == other for other, _ in self.sessions.values()):
            self._tell(peer, {"ok": True})  # the answer was lost
            return
        if name in self.session_names:
            self._tell(peer, {"error": "The session has ended."})
            return
        if len(self.sessions) >= SESSIONS or len(self.session_names) >= SESSIONS_EVER:
            self._tell(peer, {"error": "The job has as many sessions on this host as it may have."})
            return
        step = self._step_of(asked)
        try:
            listener = rm_session.listen(path)
            pid = os.fork()
        except OSError as error:  # no process, descriptor or room on the disk, or too long a path
            with contextlib.suppress(OSError):
                os.unlink(path)
            self._tell(peer, {"error": "No session can begin: %s." % (error.strerror or error)})
            return
        if pid == 0:
            self._be_session(listener, name, asked, step, within)
        listener.close()
        self.sessions[pid] = name, step
        self.session_names.add(name)
        if step is not None:
            self.next_step += 1
            part = {"host": self.allocation[0]["host"], "ranks": [0], "holds": (0, [])}
            self._recorded(self.records.begun, step, [part], folded_hosts, str(asked["step"]), "")
        self._tell(peer, {"ok": True})

    def _step_of(self, asked):
        """The number as which it is recorded, if it is."""
        recorded = asked.get("step") and self.place == 0 and self.allocation and asked.get("in_step") is None
        return self.next_step if recorded else None

    def _entered(self, step):
        part = next((pid for pid, other in self.parts.items() if other == step), None)
        if part is None:
            raise Refused("Step %d of the job does not run on this host." % step)
        return Entered(part, step, self.folder)

    def _may_come(self, step):
        """May a task of the step run here soon? It begins on its hosts one after the other, and only the
        job's first host knows which steps there are."""
        if step in self.parts.values():
            return True
        if self.place == 0:
            return 0 in self.held.get(step, {})
        return step not in self.parts_over

    def _be_session(self, listener, name, asked, step, within):
        try:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            for other in self.peers.values():
                other.sock.close()
            self.listener.close()
            self.selector.close()
            below = "session_" + name
            if within is not None:
                below = os.path.join("step_%d" % int(asked["in_step"]), below)
            group = self.group.below(below)
            what = (group, self.request, self.user, self.fence, self.folder, self.bounds)
            session = rm_session.Session(listener, asked, *what, self._ask_release)
            session.within = within
            if step is not None:
                session.on_end = lambda code, number: self._ask_record(step, code, number, session.used())
            session.run()
        except BaseException:
            import traceback

            with open(self.folder.at("supervisor.err"), "a") as file:
                file.write(traceback.format_exc())
        finally:
            os._exit(0)

    def _ask_release(self, code):
        """In the session's process: it is over."""
        self._ask({"op": "release", "code": code})

    def _ask_record(self, step, code, number, used):
        """In the session's process: its program has ended. The session may end when that is recorded: one
        that has ended and told nothing is recorded as cancelled."""
        ended = {"code": code, "signal": number, "why": ""}
        self._ask({"op": "session-ended", "step": step, "ended": ended, "used": used}, RECORD_S)

    def _ask(self, words, wait_s=0.0):
        """`wait_s`: for the answer, for so long at most."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.connect(self.folder.at(SOCKET))
            sock.sendall(json.dumps(words).encode() + b"\n")
            if wait_s:
                sock.settimeout(wait_s)
                sock.recv(ANSWER_BYTES)

    def _release(self, code):
        self.released = code
        for peer in list(self.peers.values()):
            if peer.kind == "hold":
                self._tell(peer, {"release": code})

    def _session_ended(self, pid):
        if pid not in self.sessions:
            return
        name, step = self.sessions.pop(pid)
        with contextlib.suppress(OSError):
            os.unlink(self.folder.at("session." + name))
        if step is not None:  # unless it has told how
            self._recorded(self.records.ended, step, None)
