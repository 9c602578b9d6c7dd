"""A rank's part in admission: it asks its host's agent before it communicates, and waits for its turn.

Bounded in every case: no agent, or one that goes away, keeps nobody; one that does not answer costs
`ANSWER_S`, one that never admits as long as it said. After `MISSES` of these in a row the rank asks no more
for `REST_S`.
"""

import json
import os
import select
import socket
import time

ANSWER_S = 0.1
LONGEST_S = 10.0  # no agent lets a rank wait longer
MISSES = 2
REST_S = 30.0


class Turn:
    """`path` is the agent's socket, which is there while the attempt's ranks are to ask."""

    def __init__(self, path, rank):
        self.path, self.rank = path, rank
        self._sock, self._inbox = None, b""
        self._misses, self._rest_until = 0, 0.0

    def ask(self, number):
        """Wait for the turn of the communication of this number; microseconds waited."""
        began = time.monotonic()
        if began < self._rest_until or not self._connected():
            return 0
        try:
            self._sock.sendall(json.dumps(["ask", self.rank, number]).encode() + b"\n")
            words = self._answer(number, began + ANSWER_S)
            if words is not None and words[0] == "wait":
                words = self._answer(number, began + min(LONGEST_S, int(words[2]) / 1e6))
            self._misses = 0 if words is not None else self._misses + 1
        except (OSError, ValueError, IndexError, TypeError):
            self.close()
        if self._misses >= MISSES:
            self._misses, self._rest_until = 0, time.monotonic() + REST_S
            self.close()
        return int((time.monotonic() - began) * 1e6)

    def over(self, number):
        """It has communicated."""
        if self._sock is not None:
            try:
                self._sock.sendall(json.dumps(["over", self.rank, number]).encode() + b"\n")
            except OSError:
                self.close()

    def close(self):
        if self._sock is not None:
            self._sock.close()
            self._sock, self._inbox = None, b""

    def _connected(self):
        if self._sock is not None:
            return True
        if not os.path.exists(self.path):
            return False
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # the path may be longer than a socket's may be
            directory = os.open(os.path.dirname(self.path), os.O_PATH | os.O_DIRECTORY)
            try:
                sock.settimeout(ANSWER_S)
                sock.connect("/proc/self/fd/%d/%s" % (directory, os.path.basename(self.path)))
            finally:
                os.close(directory)
        except OSError:
            sock.close()
            return False
        self._sock, self._inbox = sock, b""
        return True

    def _answer(self, number, until):
        """The next words about this communication; None: none come in time. OSError: the agent is gone."""
        while True:
            line, found, rest = self._inbox.partition(b"\n")
            if found:
                self._inbox = rest
                words = json.loads(line)
                if words[1] == number:
                    return words
                continue
            left = until - time.monotonic()
            if left <= 0 or not self._readable(left):
                return None
            data = self._sock.recv(4096)
            if not data:
                raise OSError("the agent has gone")
            self._inbox += data

    def _readable(self, within_s):
        """By poll, which knows no largest descriptor; its time is in milliseconds, rounded up."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return poll.poll(within_s * 1000)
