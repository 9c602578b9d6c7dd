"""The part of a step daemon that brings the job's programs together with the daemon, which they ask.

A program waits here until the daemon, who hears of it through the agent, has a connection for it
(rm_attend.py). The program then has that connection, and nobody in between.
"""

import array
import contextlib
import socket
import time
from collections import deque

MOST = 64  # programs that wait at once
SAY_S, REPEAT_S = 0.05, 1.0  # between two words that somebody waits: of news, and of none


class Asks:
    """A part of rm_stepd.StepDaemon, whose attributes it uses."""

    def __init__(self):
        self.asking = deque()  # peers, in the order in which they came
        self.ask_at = None  # when it is said that they wait
        self.asked_at = -SAY_S  # when it was said last

    def _queue(self, peer):
        self._forget_gone()
        if len(self.asking) >= MOST:
            self._tell(peer, {"error": "%d programs of the job ask already: no more can." % MOST})
            return
        self.asking.append(peer)
        self.ask_at = max(time.monotonic(), self.asked_at + SAY_S)

    def _at_most(self, patience_s):
        """Or less, where it is to be said earlier that somebody waits."""
        if self.ask_at is None:
            return patience_s
        left_s = max(0.0, self.ask_at - time.monotonic())
        return left_s if patience_s is None else min(patience_s, left_s)

    def _say_asking(self):
        if self.ask_at is None or time.monotonic() < self.ask_at:
            return
        self._forget_gone()
        self.ask_at = time.monotonic() + REPEAT_S if self.asking else None
        if self.asking:
            self.asked_at = time.monotonic()
            self.say({"event": "asks", "waiting": len(self.asking)})

    def _answer(self, peer):
        """The daemon's end has come: who waits longest has it."""
        self._forget_gone()
        if not self.asking:
            self._tell(peer, {"error": "No program of the job asks."})
            return
        self._tell(peer, {"ok": True})
        if peer.sock.fileno() < 0:  # the daemon's end has gone: they wait for the next one
            return
        asker, fds = self.asking.popleft(), array.array("i", [peer.sock.fileno()])
        with contextlib.suppress(OSError):  # it has just gone, and so does the connection
            asker.sock.sendmsg([b'{"answered": true}\n'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        self._drop(peer)

    def _forget_gone(self):
        self.asking = deque(peer for peer in self.asking if peer.sock.fileno() in self.peers)
