"""The agent's slow operations: each in a forked child, so that the loop goes on.

A child that may stay waits some seconds for the next request of its operation: a playbook asks again and
again, and a fork, with the pages that the kernel then copies, takes longer than most steps.
"""

import contextlib
import json
import os
import selectors
import signal
import time

from rm_become import PR_SET_PDEATHSIG, prctl
from rm_channel import refusal
from rm_spool import SpoolError

STAYS_S = 10.0
ORDER_BYTES = 1 << 16  # as much as an empty pipe takes at once: a longer request gets a child of its own
ANSWERED = ...  # instead of the id of a request


class _Child:
    """`orders` is the pipe to one that may stay, else -1; `until_s` says how long it does."""

    def __init__(self, pid, number, function, orders):
        self.pid, self.number, self.function, self.orders = pid, number, function, orders
        self.text, self.until_s = bytearray(), 0.0  # read so far of a line

    def waits(self):
        return self.number is ANSWERED and self.orders >= 0

    def let_go(self):
        """It gets no further request, and ends with what it is at."""
        if self.orders >= 0:
            os.close(self.orders)
            self.orders = -1
        os.kill(self.pid, signal.SIGTERM)  # the pipe's end is not enough: a supervisor may have a copy of it


class SlowOperations:
    def __init__(self, selector, channel):
        self.selector, self.channel = selector, channel
        self.children = {}  # pipe -> child

    def begin(self, number, function, request, group, umask, stays=False):
        """Answer a request in a child of the group, one that `stays` or a new one."""
        if not (stays and self._hand_on(number, function, request)):
            self._fork(number, function, request, group, umask, stays)

    def _hand_on(self, number, function, request):
        """Has a child that waits taken it?"""
        line = json.dumps(request, separators=(",", ":")).encode() + b"\n"
        for child in self.children.values():
            if child.waits() and child.function is function and len(line) <= ORDER_BYTES:
                with contextlib.suppress(OSError):
                    if os.write(child.orders, line) == len(line):
                        child.number = number
                        return True
                child.let_go()  # it is ending, or its pipe is smaller than usual: part of a line is none
        return False

    def _fork(self, number, function, request, group, umask, stays):
        read_end, write_end = os.pipe()
        orders_end, orders = os.pipe() if stays else (-1, -1)
        agent = os.getpid()
        try:
            pid = group.fork()
        except OSError:  # the session that we came from is over, and its group with it
            pid = os.fork()
        if pid == 0:
            try:
                _become_child((write_end, orders_end), agent)
                group.join()
                os.umask(umask)
                with os.fdopen(write_end, "wb", 0) as out:
                    _work(out, orders_end, number, function, request)
            finally:
                os._exit(0)
        os.close(write_end)
        os.set_blocking(read_end, False)
        if stays:
            os.close(orders_end)
            os.set_blocking(orders, False)
        self.children[read_end] = _Child(pid, number, function, orders)
        self.selector.register(read_end, selectors.EVENT_READ, ("child", read_end))

    def forward(self, pipe):
        """What a child says goes to the daemon."""
        child = self.children[pipe]
        data = os.read(pipe, 1 << 18)
        if data:
            child.text += data
            if b"\n" in data:
                *lines, child.text = child.text.split(b"\n")
                for line in lines:
                    if line.startswith(b'{"id":'):
                        child.number, child.until_s = ANSWERED, time.monotonic() + STAYS_S
                    self.channel.send_line(line)
            return
        self.selector.unregister(pipe)
        os.close(pipe)
        del self.children[pipe]
        if child.orders >= 0:
            os.close(child.orders)
        _, status = os.waitpid(child.pid, 0)
        if child.number is not ANSWERED:
            gone = SpoolError("died", "The operation ended without an answer (wait status %d)." % status)
            self.channel.send(refusal(child.number, gone))

    def go_on(self):
        """Does any? Those that only wait for the next request do not."""
        return any(child.number is not ANSWERED for child in self.children.values())

    def cancel(self, request):
        """End a slow operation by the id of its request; it cleans up behind itself (SystemExit)."""
        for child in self.children.values():
            if child.number == request.get("request"):
                child.let_go()
        return {}

    def timeout_s(self):
        waiting = [child.until_s for child in self.children.values() if child.waits()]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def tick(self):
        for child in self.children.values():
            if child.waits() and child.until_s <= time.monotonic():
                child.let_go()

    def end(self):
        for child in self.children.values():
            os.kill(child.pid, signal.SIGTERM)


def _leave(*_):
    raise SystemExit


def _become_child(keep, agent):
    """A forked child of the loop: none of its descriptors, and an end with clean-up when it goes away."""
    signal.signal(signal.SIGTERM, _leave)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != agent:
        raise SystemExit
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):
                # the folder's own descriptor
                os.close(int(name))


def _work(out, orders_end, number, function, request):
    """In the child: the request, and those that come while it stays."""

    def say(message):
        out.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    orders = os.fdopen(orders_end, "rb") if orders_end >= 0 else None
    while True:
        request["notify"] = say
        try:
            say({"id": number, "ok": True, "result": function(request)})
        except Exception as error:
            say(refusal(number, error))
        signal.signal(signal.SIGTERM, _leave)  # the operation may have had a handler of its own
        line = orders.readline() if orders else b""
        if not line.endswith(b"\n"):
            return
        request = json.loads(line)
        number = request["id"]
