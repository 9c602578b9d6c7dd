"""Transfers that are held: the processes of a job stand still while they communicate, for a bounded time.

A process of its own freezes and thaws them, and the agent tells it which. It thaws all that it holds when the
agent ends, however that happens, and each when its time is over. The agent thaws them should that process be
killed.
"""

import contextlib
import json
import os
import select
import signal
import socket
import time

import rm_kernel
from rm_become import PR_SET_PDEATHSIG, prctl
from rm_freezer import LONGEST_US, Freezer
from rm_task import detach

LINE_BYTES = 4096


class Holder:
    """The agent's side: `hold` and `let_go` by (job, attempt). The agent's loop hears when the other has
    ended; `begun` and `over` tell it which socket that is."""

    def __init__(self, begun, over):
        self._begun, self._over = begun, over
        self._sock, self._pid = None, 0
        self._ending = set()  # processes, until they have ended
        self._held = set()

    def hold(self, name, length_us):
        """Let the job's processes stand still, for so long at most."""
        length_us = min(length_us, LONGEST_US)
        if length_us > 0:
            if self._sock is None:
                self._begin()
            self._held.add(name)
            self._say(name, length_us)

    def let_go(self, name):
        """Both thaw it: the other might have been killed just now."""
        if name in self._held:
            self._held.discard(name)
            self._say(name, 0)
            _thaw(name)

    def close(self):
        """Everything that is held goes on, and the process ends; also when that was killed."""
        if self._sock is None:
            return
        self._over(self._sock)
        self._sock.close()
        self._sock = None
        self._ending.add(self._pid)
        for name in self._held:
            _thaw(name)
        self._held.clear()
        self.reap()

    def reap(self):
        """Take the ends of processes that were told to end, or were killed, as far as they have ended."""
        self._ending = {pid for pid in self._ending if os.waitpid(pid, os.WNOHANG)[0] == 0}

    def _begin(self):
        ours, theirs = socket.socketpair()
        agent, pid = os.getpid(), os.fork()
        if pid == 0:
            try:
                _keep(theirs, agent)
            finally:
                os._exit(1)
        theirs.close()
        ours.setblocking(False)
        self._sock, self._pid = ours, pid
        self._begun(ours)

    def _say(self, name, length_us):
        try:
            self._sock.sendall(json.dumps([*name, length_us]).encode() + b"\n")
        except OSError:  # it was killed, or stands still and would never end
            os.kill(self._pid, signal.SIGKILL)
            self.close()


def _thaw(name):
    with contextlib.suppress(OSError, rm_kernel.KernelRefused):  # it has ended
        Freezer(*name).thaw()


class _Leave(Exception):
    """The agent has gone."""


def _leave(*_):
    raise _Leave


def _keep(sock, agent):
    """The process of its own, until the agent has gone."""
    held = {}  # name -> (freezer, until)
    try:
        os.setsid()
        detach({sock.fileno()})
        signal.signal(signal.SIGTERM, _leave)
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        inbox, poll = b"", select.poll()
        poll.register(sock, select.POLLIN)
        while os.getppid() == agent:
            at = min((until for _, until in held.values()), default=None)
            if poll.poll(None if at is None else max(0.0, (at - time.monotonic()) * 1000)):
                data = sock.recv(LINE_BYTES)
                if not data:
                    break
                *lines, inbox = (inbox + data).split(b"\n")
                for line in lines:
                    *name, length_us = json.loads(line)
                    _obey(held, tuple(name), length_us)
            for name in [name for name, (_, until) in held.items() if until <= time.monotonic()]:
                _obey(held, name, 0)
    except _Leave:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for freezer, _ in held.values():
            with contextlib.suppress(OSError):
                freezer.thaw()


def _obey(held, name, length_us):
    freezer, _ = held.pop(name, (None, 0))
    try:
        if length_us > 0:
            freezer = freezer or Freezer(*name)
            held[name] = freezer, time.monotonic() + length_us / 1e6
            freezer.freeze()
        elif freezer is not None:
            freezer.thaw()
    except (OSError, rm_kernel.KernelRefused):  # it has ended, or the kernel cannot: it goes on
        held.pop(name, None)
