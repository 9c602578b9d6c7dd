"""The host's one process of continuous latency tests: all of its streams, both ways, over one socket.

    python3 -S -E rm_latencybg_process.py FOLDER PROGRAM

FOLDER is the folder `latencybg` of the state directory, and PROGRAM names the files that the process is of
(rm_latencybg.py): an order with another name ends it.

It outlives the agent that started it. The agent passes the daemon's orders on, line by line over a socket in
FOLDER; each order names all streams that there are to be, and is answered with what was found since. Results
are kept until the daemon has them, the newest ones within bounds. The process ends when no stream is left and
it has told of everything, or when nobody has asked for GONE_S.

The packets of a tick are sent together, and what has arrived is read once a tick: the kernel notes when each
packet arrived, so that this makes no delay, and a tick costs little.
"""

import collections
import contextlib
import errno
import fcntl
import json
import os
import random
import select
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rm_latencybg_window import Arrivals, Departures, found, possible

PACKET = struct.Struct(
    "!4s8sQIqqq"
)  # magic, the stream's secret, life, slot, when sent; an echo: when sent, when arrived
MAGIC = b"rmb2"
PORTS = range(8_750, 8_760)
GONE_S = 600.0
FROZEN_S = 5.0  # a longer turn: the host, or this process, stood still
LOOK_S = 0.1  # between two looks at what has arrived
READ = 4_096  # packets of a socket at one look, at most: orders are answered in between
KEPT, KEPT_BYTES = 8_192, 4 << 20
ANSWER_BYTES = 1 << 20
LINE_BYTES = 8 << 20
ROOM_BYTES = 4 << 20
STREAMS = 1_024
SHORTEST_US = 10_000
_SO_TIMESTAMPNS = 35  # as on most architectures; without it, Python's clock counts
_SO_RCVBUFFORCE = 33  # as on most architectures; without it, the kernel's limit holds
_STAMP = struct.Struct("@ll")


class Refused(Exception):
    """An order that cannot be followed, in a sentence."""


class _Peer:
    """One other host: the stream to it and the one from it. A stream that begins anew has another `life`, as
    after the end of the process: its slots are counted from 0 again."""

    def __init__(self, order, since_s, phase_s, before=None):
        self.order = order
        self.life = max(time.time_ns() // 1_000_000, before.life + 1 if before is not None else 0)
        self.out, self.into, self.histogram = order["out"], order["into"], order.get("histogram", False)
        self.count, self.interval_us = order["count"], order["interval_us"]
        # one in a job could send packets for a stream whose name was enough: its receiver chooses a secret
        self.secret = before.secret if before is not None and before.into == self.into else os.urandom(8)
        self.carried = bytes.fromhex(order["secret"])
        self.sends = bool(order["port"] and self.carried)
        self.ends = {family: (address, order["port"]) for family, address in reversed(order["ends"])}
        self.addresses = {address for _, address in order["ends"]}
        self.arrivals = Arrivals(self.count, self.interval_us, since_s)
        interval_s = self.interval_us / 1e6
        begin_s = phase_s + (int((since_s - phase_s) / interval_s) + 1) * interval_s
        self.departures = Departures(self.count, self.interval_us, begin_s)

    def same(self, order):
        """May it go on as it is? So may one whose name cannot be looked up now, and one of which a new leader
        does not know yet where it goes."""
        there = order if order["port"] else self.order
        kept = {"ends": order["ends"] or self.order["ends"], "port": there["port"], "secret": there["secret"]}
        return {**self.order, "histogram": 0} == {**order, **kept, "histogram": 0}


class Streams:
    def __init__(self):
        self.life = time.time_ns() // 1_000_000
        self.phase_s = time.monotonic() + random.random()
        self.links = {}  # family -> socket
        self.port = 0
        self.peers = {}  # what the daemon calls the stream to it -> _Peer
        self.coming = {}  # the secret of the stream from it -> _Peer
        self.results, self.kept_bytes, self.newest = collections.deque(), 0, 0
        self._listen(socket.AF_INET)

    def _listen(self, family):
        for port in (self.port,) if self.port else PORTS:
            link = socket.socket(family, socket.SOCK_DGRAM)
            try:
                if family == socket.AF_INET6:
                    link.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                link.bind(("", port))
            except OSError as error:
                link.close()
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            link.setblocking(False)
            for level, option, value in (
                (socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM_BYTES),
                (socket.SOL_SOCKET, _SO_RCVBUFFORCE, ROOM_BYTES),
                (socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1),
            ):
                with contextlib.suppress(OSError):
                    link.setsockopt(level, option, value)
            self.links[family], self.port = link, port
            return
        raise Refused("The UDP ports %d to %d are taken." % (PORTS[0], PORTS[-1]))

    # -- orders

    def follow(self, request):
        """One order; the answer. Streams that are ordered as before go on."""
        orders = request["streams"]
        if len(orders) > STREAMS or any(o["interval_us"] < SHORTEST_US or o["count"] < 1 for o in orders):
            raise Refused("Those are too many streams, or too fast ones.")
        now_s, peers = time.monotonic(), {}
        for order in orders:
            known = self.peers.get(order["out"])
            if known is None or not known.same(order):
                heard = known
                known = _Peer(order, now_s, self.phase_s, heard)
                if heard is not None and heard.into == known.into and heard.addresses == known.addresses:
                    known.arrivals = heard.arrivals  # only the way there is another one
            known.histogram = order.get("histogram", False)
            peers[order["out"]] = known
            if known.ends and not set(known.ends) & set(self.links) and socket.AF_INET6 in known.ends:
                self._listen(socket.AF_INET6)
        self.peers = peers
        self.coming = {peer.secret: peer for peer in peers.values()}
        if request.get("life") == self.life:
            self._forget(request.get("done", 0))
            after = request.get("after", 0)
        else:
            after = 0
        return {
            "life": self.life,
            "port": self.port,
            "now_us": _now_us(),
            "listening": [
                [peer.into, int((now_s - peer.arrivals.since_s) * 1e6), peer.arrivals.life]
                for peer in peers.values()
            ],
            "secrets": [[peer.into, peer.secret.hex()] for peer in peers.values()],
            **self._after(after),
        }

    def _forget(self, number):
        while self.results and self.results[0][0] <= number:
            self.kept_bytes -= len(self.results.popleft()[2])

    def _after(self, number):
        told, size = {"sent": [], "received": []}, 0
        last, more = number, False
        for its, kind, text in self.results:
            if its <= number:
                continue
            size += len(text)
            more = size > ANSWER_BYTES
            if more:
                break
            told[kind].append(json.loads(text))
            last = its
        return {**told, "last": last, "more": more}

    def _keep(self, kind, **result):
        self.newest += 1
        text = json.dumps(result, separators=(",", ":"))
        self.results.append((self.newest, kind, text))
        self.kept_bytes += len(text)
        while len(self.results) > KEPT or self.kept_bytes > KEPT_BYTES:
            self.kept_bytes -= len(self.results.popleft()[2])

    # -- packets

    def turn(self):
        """Send what is due, read what has arrived, and note the windows that are over; when to come again."""
        self._send()
        more = [self._read(link) for link in self.links.values()]
        now_s = time.monotonic()
        next_s = now_s if any(more) else now_s + LOOK_S
        for peer in self.peers.values():
            for number, window in peer.arrivals.over(now_s):
                life = peer.arrivals.life
                self._keep(
                    "received", stream=peer.into, life=life, window=number, **found(window, peer.histogram)
                )
            if peer.sends:
                next_s = min(next_s, peer.departures.due_s())
        return next_s

    def _send(self):
        pack, monotonic, clock = PACKET.pack, time.monotonic, time.time_ns
        for peer in self.peers.values():
            if not peer.sends or peer.departures.due_s() > monotonic():
                continue
            slot, over = peer.departures.depart(monotonic(), clock() // 1000)
            for number, begun_us, sent in over:
                self._keep(
                    "sent", stream=peer.out, life=peer.life, window=number, begun_us=begun_us, sent=sent
                )
            if slot is None:
                continue
            for family, end in peer.ends.items():
                link = self.links.get(family)
                if link is not None:
                    echo = peer.arrivals.echo
                    # no route, a full queue, a firewall's refusal: then it is lost
                    with contextlib.suppress(OSError):
                        link.sendto(
                            pack(MAGIC, peer.carried, peer.life, slot, clock() // 1000, echo[0], echo[1]), end
                        )
                    break

    def _read(self, link):
        """What has arrived; whether there may be more."""
        unpack, size, coming = PACKET.unpack, PACKET.size, self.coming
        now_s = time.monotonic()
        for _ in range(READ):
            try:
                data, extra, _, end = link.recvmsg(size + 1, 64)
            except BlockingIOError:
                return False
            except OSError:  # ICMP: port unreachable
                continue
            if len(data) != size or data[:4] != MAGIC:
                continue
            _, secret, life, slot, sent_us, echo_us, echoed_us = unpack(data)
            peer = coming.get(secret)
            if peer is None or end[0] not in peer.addresses:
                continue
            at_us = 0
            for _, kind, stamp in extra:
                if kind == _SO_TIMESTAMPNS and len(stamp) >= _STAMP.size:
                    seconds, nanoseconds = _STAMP.unpack_from(stamp)
                    at_us = seconds * 1_000_000 + nanoseconds // 1000
            at_us, echo = at_us or _now_us(), (echo_us, echoed_us)
            if possible(life, sent_us, at_us, echo):
                peer.arrivals.arrived(life, slot, sent_us, at_us, echo, now_s)
        return True

    def stood_still(self):
        now_s = time.monotonic()
        for peer in self.peers.values():
            peer.arrivals.forget(now_s)


def _now_us():
    return time.time_ns() // 1000


def serve(door, program):
    """Until it is over; `door` is where orders come in, `program` says which program this is."""
    streams = Streams()
    asked_s = turned_s = time.monotonic()
    while True:
        now_s = time.monotonic()
        if now_s - turned_s > FROZEN_S:
            streams.stood_still()
        turned_s = now_s
        if now_s - asked_s > GONE_S:
            return
        next_s = streams.turn()
        ready, _, _ = select.select([door], [], [], max(0.0, next_s - time.monotonic()))
        if ready:
            asked_s = time.monotonic()
            if not _answer(door, streams, program):
                return


def _answer(door, streams, program):
    """One order of the agent; False: the process is to end."""
    with contextlib.suppress(OSError, ValueError):
        peer, _ = door.accept()
        with peer:
            peer.settimeout(0.5)  # who asks writes at once, and packets wait meanwhile
            with peer.makefile("rb") as lines:
                request = json.loads(lines.readline(LINE_BYTES))
            if request.get("program") != program:
                return False
            try:
                answer = streams.follow(request)
            except (Refused, KeyError, TypeError, OSError) as error:
                answer = {"error": str(error) or type(error).__name__}
            peer.settimeout(2.0)
            peer.sendall(json.dumps(answer, separators=(",", ":")).encode() + b"\n")
            return bool(streams.peers) or answer.get("more", False)
    return True


def main(arguments):
    """In the folder of its state, of which it holds the lock."""
    folder, program = arguments
    os.chdir(folder)
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 0  # another one has it
    with contextlib.suppress(OSError):
        os.unlink("door")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind("door")  # relative: the folder's path may be longer than an address may be
        door.listen(8)
        try:
            serve(door, program)
        except Refused as error:
            sys.stderr.write("%s\n" % error)
            return 1
        finally:
            with contextlib.suppress(OSError):
                os.unlink("door")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
