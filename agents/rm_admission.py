"""The agent's part in admission: the ranks of an attempt ask here before they communicate, and wait.

The daemon orders who asks, and for how long a rank waits at most; it admits communications by their number,
those of all ranks of an attempt at once. Each attempt has a socket of its own in its folder, which its user
alone may open. When the agent ends, or the daemon has gone, the socket closes and everybody passes.

    a rank   ["ask", rank, number]          it is ready to communicate
             ["over", rank, number]         it has communicated
    to it    ["wait", number, most_us]      not yet; ["go", number] follows
             ["go", number]

Only what rank 0 says goes on to the daemon, at once: the ranks of a gang communicate together. What has
begun may be held: the ranks' processes stand still (rm_held.py) until it is admitted again.
"""

import contextlib
import errno
import json
import os
import selectors
import socket
import sys
import time

import rm_held
import rm_sockets

NAME = "admission"  # of the socket, in the attempt's folder
# of an attempt; one that says more is no longer listened to
PER_S, BURST = 2000, 500  # lines
TOLD_PER_S, TOLD_BURST = 200, 200  # of rank 0, which go on to the daemon
LINE_BYTES = 256
MOST_PEERS = 256  # connections to the sockets of all attempts together: the agent needs descriptors, too
LOOK_S = 1.0


class _Budget:
    """So much in a second, and `burst` at once."""

    def __init__(self, per_s, burst):
        self.per_s, self.burst = per_s, burst
        self.left, self.filled_at = float(burst), time.monotonic()

    def take(self, count):
        """Is it there?"""
        now = time.monotonic()
        self.left = min(self.burst, self.left + (now - self.filled_at) * self.per_s) - count
        self.filled_at = now
        return self.left >= 0


class _Door:
    """Of one attempt. `admitted`: the newest number that may begin; `held`: the one that may not go on."""

    def __init__(self, attempt, listener):
        self.attempt, self.listener = attempt, listener
        self.name = attempt.folder.job, attempt.folder.attempt
        self.most_us, self.admitted, self.held = 0, -1, None
        self.peers = set()
        self.lines, self.told = _Budget(PER_S, BURST), _Budget(TOLD_PER_S, TOLD_BURST)


class _Peer:
    """One process. It `waits` for a number, or communicates for the time of `under_way`; None: not so."""

    def __init__(self, door, sock):
        self.door, self.sock, self.inbox = door, sock, b""
        self.rank, self.waits, self.under_way = -1, None, None


class Admission:
    """`notify` says something to the daemon."""

    def __init__(self, selector, notify):
        self.selector, self.notify = selector, notify
        self.doors = {}  # (job, attempt) -> _Door
        self.looked_at = 0.0
        self.holder = rm_held.Holder(
            lambda sock: selector.register(sock, selectors.EVENT_READ, ("admission", self.holder)),
            selector.unregister,
        )

    def order(self, attempt, most_us):
        """Its ranks ask from now on, and wait so long at most; 0: they do not."""
        name = attempt.folder.job, attempt.folder.attempt
        if most_us <= 0 or not attempt.live():
            self._close(name)
            return
        if name not in self.doors:
            door = self.doors[name] = _Door(attempt, _listener(attempt.folder))
            self.selector.register(door.listener, selectors.EVENT_READ, ("admission", door))
        self.doors[name].most_us = most_us

    def admit(self, name, number):
        door = self.doors.get(name)
        if door is None:
            return
        door.admitted = max(door.admitted, number)
        self._let_go(door, number)
        for peer in list(door.peers):
            if peer.waits is not None and peer.waits <= number:
                self._go(peer, peer.waits)

    def hold(self, name, number, most_us):
        """Let what the attempt communicates for the time of this number stand still, so long at most; ranks
        that have not begun it wait as before. What is over on this host is not held."""
        door = self.doors.get(name)
        if door is None or number < door.admitted:
            return
        door.held = number
        if any(peer.under_way == number for peer in door.peers):
            self.holder.hold(name, most_us)

    def close(self):
        """Nobody is held any more."""
        self.holder.close()

    def serve(self, data):
        if isinstance(data, _Door):
            self._accept(data)
        elif data is self.holder:  # it says nothing: it has ended
            self.holder.close()
        elif data.sock.fileno() >= 0:
            self._hear(data)

    def timeout_s(self):
        """How long the loop may sleep; None when nobody may ask."""
        return max(0.0, self.looked_at + LOOK_S - time.monotonic()) if self.doors else None

    def look(self):
        """Attempts that have ended have nothing to ask."""
        self.holder.reap()
        now = time.monotonic()
        if self.doors and now >= self.looked_at + LOOK_S:
            self.looked_at = now
            for name in [name for name, door in self.doors.items() if not door.attempt.live()]:
                self._close(name)

    def _accept(self, door):
        try:
            sock, _ = door.listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # it would be reported again at once
                self._close(door.name)
            return
        if sum(len(each.peers) for each in self.doors.values()) >= MOST_PEERS:
            most = max(self.doors.values(), key=lambda each: len(each.peers))
            if len(most.peers) <= len(door.peers) + 1:
                sock.close()  # it passes
                return
            self._drop(next(iter(most.peers)))  # instead of the ranks of others, who took less
        sock.setblocking(False)
        peer = _Peer(door, sock)
        door.peers.add(peer)
        self.selector.register(sock, selectors.EVENT_READ, ("admission", peer))

    def _hear(self, peer):
        data = rm_sockets.hear(peer.sock, 4096)
        if data is None:
            return
        *lines, peer.inbox = (peer.inbox + data).split(b"\n")
        if not data or len(peer.inbox) > LINE_BYTES:
            self._drop(peer)
            return
        if not peer.door.lines.take(len(lines)):
            self._close_talker(peer.door)
            return
        for line in lines:
            said = _parsed(line)
            if said is None:
                self._drop(peer)
            if peer.sock.fileno() < 0:
                return
            self._take(peer, *said)

    def _take(self, peer, word, rank, number):
        door, new, peer.rank = peer.door, peer.rank < 0, rank
        self._over(peer)  # also of one before, whose end was not said
        if word == "over":
            return
        if new and rank == 0 and number < door.admitted:  # a later program of the script counts anew
            door.admitted = number - 1
        if door.held is not None and number > door.held:  # nobody said that it may go on, and it did
            self._let_go(door, number)
        if number <= door.admitted and number != door.held:
            self._go(peer, number)
        else:
            peer.waits = number
            if rank == 0:
                self._tell(door, number, False)
            self._say(peer, ["wait", number, door.most_us])

    def _let_go(self, door, number):
        if door.held is not None and door.held <= number:
            door.held = None
            self.holder.let_go(door.name)

    def _go(self, peer, number):
        peer.waits, peer.under_way = None, number
        self._say(peer, ["go", number])

    def _over(self, peer):
        """It communicates no longer, and waits no longer."""
        number = peer.under_way if peer.waits is None else peer.waits
        peer.waits = peer.under_way = None
        if number is not None and peer.rank == 0:
            self._tell(peer.door, number, True)

    def _tell(self, door, number, ended):
        if not door.told.take(1):
            self._close_talker(door)
            return
        job, attempt = door.name
        self.notify({"event": "communication", "job": job, "attempt": attempt, "number": number,
                     "ended": ended})  # fmt: skip

    def _say(self, peer, words):
        """One that does not read what it was told is not told more."""
        outbox = bytearray(json.dumps(words).encode() + b"\n")
        if not rm_sockets.say(peer.sock, outbox) or outbox:
            self._drop(peer)

    def _drop(self, peer):
        if peer.sock.fileno() < 0:
            return
        self.selector.unregister(peer.sock)
        peer.sock.close()
        peer.door.peers.discard(peer)
        self._over(peer)

    def _close_talker(self, door):
        if door.name in self.doors:
            sys.stderr.write("job %d, attempt %d, asks too often before it communicates\n" % door.name)
            self._close(door.name)

    def _close(self, name):
        door = self.doors.pop(name, None)
        if door is None:
            return
        self.holder.let_go(name)
        for peer in list(door.peers):
            self._drop(peer)
        self.selector.unregister(door.listener)
        door.listener.close()
        with contextlib.suppress(OSError):
            os.unlink(door.attempt.folder.at(NAME))


def _parsed(line):
    """(word, rank, number) of one line; None when it is none."""
    if len(line) > LINE_BYTES:
        return None
    try:
        word, rank, number = json.loads(line)
    except (ValueError, TypeError):
        return None
    numbers = all(type(value) is int and 0 <= value < 1 << 53 for value in (rank, number))
    return (word, rank, number) if word in ("ask", "over") and numbers else None


def _listener(folder):
    """The socket in the attempt's folder, the user's alone: seen only once it is listened at, since a rank
    that is refused goes on without its turn. Its path may be longer than a socket's may be."""
    aside = folder.at("." + NAME)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(aside)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    directory = os.open(folder.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock.bind("/proc/self/fd/%d/.%s" % (directory, NAME))
        os.chmod(aside, 0o600)
        if os.getuid() == 0:
            owner = os.stat(folder.at("script"))
            os.chown(aside, owner.st_uid, owner.st_gid)
        sock.listen(64)
        os.rename(aside, folder.at(NAME))
    except OSError:
        sock.close()
        raise
    finally:
        os.close(directory)
    return sock
