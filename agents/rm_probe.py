"""Measures the network between two hosts: one-way loss, delay and jitter, round trip, throughput, path MTU.

One host reflects for a limited time (UDP reflector and TCP sink on one port), the other probes. The UDP
exchange carries four time-stamps as TWAMP does (RFC 5357): sent, received, sent back, received back. The
reflector's answer is never longer than the question, so that it cannot amplify.

Each answer carries the number of questions that have arrived, so that loss is known by direction. As the
last answers may be lost, the prober then asks for the number alone. Where no answer comes at all, only the
reflector knows: it says at the first question that it was `reached`, and at its end how many it `answered`.
"""

import contextlib
import errno
import os
import select
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rm_clock
import rm_dns
import rm_http
import rm_kernel
import rm_throughput
import rm_trace
from rm_delays import histogram, jitter, spread
from rm_kernel import KernelRefused, require

MAGIC = b"rmp1"
QUESTION = struct.Struct("!4sIIq")  # magic, session, sequence number, t1
ANSWER = struct.Struct("!4sIIqqqI")  # the question, then t2, t3, questions of this session seen so far
HOW_MANY = 0xFFFFFFFF  # the sequence number of a question that is only for the number of the others
HOW_MANY_S = 0.05  # between two of them
LATE_S = 1.0  # behind the last question its answers may come so late
STOOD_STILL_S = 0.5  # between two questions, half of what a reflector waits for: it may have ended meanwhile
LOOK_UP_S = 3.0  # for the names of who may ask, before an unknown peer is passed over
PASSES_S = 0.25  # that a packet of some size was answered
LONGEST_US = 600_000_000
ROOM_BYTES = 4 << 20
MAPPED = "::ffff:"  # an address of IPv4 on a socket of IPv6
# no route; a blackhole; a route that forbids; an address of IPv6 from a host without it
NO_WAY = (
    errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EINVAL, errno.EACCES,
    errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT,
)  # fmt: skip
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3


def _now_us():
    return time.time_ns() // 1000


def _family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def reflect(request):
    """Answer probes on `port` for `duration_us` (at most 10 minutes).

    Optional: `address` to listen on; `allow`, addresses or names of who gets answers; `idle_us`, to end
    when nothing came for so long after the first question; `tool` "iperf3", to serve one test of that
    instead. Notifies `reflecting` as soon as it listens, and again, with `reached`, at the first question;
    with `tell_sink` also `sinking` when a throughput test begins.
    """
    if request.get("tool") == "iperf3":
        return rm_throughput.serve_iperf(request)
    port, duration = require(request, "port", "duration_us")
    idle_us, quiet_since = request.get("idle_us") or LONGEST_US, None
    allow = _Allowed(request.get("allow") or ())
    end = time.monotonic() + min(duration, LONGEST_US) / 1e6
    seen, answered, received = {}, 0, 0
    with contextlib.ExitStack() as stack:
        udp, tcp = (
            stack.enter_context(_bound(kind, request.get("address") or "", port))
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM)
        )
        _give_room(udp)
        tcp.listen(8)
        if "notify" in request:
            request["notify"]({"event": "reflecting", "port": port})
        sinks, buffer = {}, bytearray(1 << 18)
        try:
            while True:
                left = end - time.monotonic()
                if quiet_since is not None:
                    left = min(left, quiet_since + idle_us / 1e6 - time.monotonic())
                if left <= 0:
                    return {"answered": answered, "received_bytes": received}
                ready, _, _ = select.select([udp, tcp, *sinks], [], [], left)
                if ready:
                    quiet_since = time.monotonic()
                for link in ready:
                    if link is udp:
                        data, peer = udp.recvfrom(65536)
                        arrived = _now_us()
                        if len(data) < ANSWER.size or data[:4] != MAGIC:
                            continue
                        if _plain(peer) not in allow:
                            continue
                        _, session, number, sent = QUESTION.unpack_from(data)
                        key = (peer, session)
                        if number != HOW_MANY:
                            seen[key] = seen.get(key, 0) + 1
                            if not answered and "notify" in request:
                                request["notify"]({"event": "reflecting", "port": port, "reached": True})
                            answered += 1
                        if len(seen) > 4096:  # someone invents sessions
                            seen.clear()
                        with contextlib.suppress(OSError):
                            udp.sendto(
                                ANSWER.pack(
                                    MAGIC, session, number, sent, arrived, _now_us(), seen.get(key, 0)
                                ),
                                peer,
                            )
                    elif link is tcp:
                        sink, peer = tcp.accept()
                        if len(sinks) < 16 and _plain(peer) in allow:
                            sinks[sink] = [0, 0, 0]
                            if request.get("tell_sink"):
                                request["notify"]({"event": "sinking", "port": port})
                        else:
                            sink.close()
                    else:
                        received += _drain(link, sinks, buffer)
        finally:
            for sink in sinks:
                sink.close()


class _Allowed:
    """Who gets answers, by address; everybody where nobody is named. Names are looked up beside, and waited
    for when an unknown peer asks: a silent name server stops nobody whose address is said."""

    def __init__(self, names):
        self._names = names
        self._known = set(names)  # a name without an address lets nobody in
        self._until = time.monotonic() + LOOK_UP_S
        self._looking_up = threading.Thread(target=self._look_up, daemon=True)
        self._looking_up.start()

    def __contains__(self, address):
        if self._names and address not in self._known:
            self._looking_up.join(max(0.0, self._until - time.monotonic()))
        return not self._names or address in self._known

    def _look_up(self):
        for name in self._names:
            with contextlib.suppress(OSError, UnicodeError):
                found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
                self._known.update(about[4][0] for about in found)


def _literal(name):
    """An address of a name, by which this host reaches it."""
    try:
        return socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)[0][4][0]
    except (OSError, UnicodeError):
        raise KernelRefused("unreachable", "the name %s is not known here" % name) from None


def _plain(peer):
    """An address of IPv4 as itself, though it came over a socket of both."""
    return peer[0][len(MAPPED) :] if peer[0].startswith(MAPPED) else peer[0]


def _bound(kind, address, port):
    """A socket at that port: of IPv4 and IPv6 alike where no address says which and the host has both."""
    families = [_family(address)] if address else [socket.AF_INET6, socket.AF_INET]
    for family in families:
        try:
            with contextlib.ExitStack() as closing:
                link = closing.enter_context(socket.socket(family, kind))
                if family == socket.AF_INET6:
                    link.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                if kind == socket.SOCK_STREAM:
                    link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                link.bind((address, port))
                closing.pop_all()
                return link
        except OSError as error:
            why = error.strerror
    raise KernelRefused("unreachable", "port %d cannot be listened on: %s" % (port, why))


def _give_room(udp):
    """Datagrams that wait for a busy processor are not lost: with the right to, above the system's limit."""
    for option in (socket.SO_RCVBUF, 33):  # SO_RCVBUFFORCE
        with contextlib.suppress(OSError):
            udp.setsockopt(socket.SOL_SOCKET, option, ROOM_BYTES)


def _drain(sink, sinks, buffer):
    """Take what a TCP prober sent; at its end report how much came, and in how many microseconds."""
    tally, count = sinks[sink], 0
    with contextlib.suppress(OSError):
        count = sink.recv_into(buffer)
    if count:
        tally[2] = _now_us()
        if tally[1]:
            tally[0] += count
        else:
            tally[1] = tally[2]  # the rate counts what follows the first piece
        return count
    with contextlib.suppress(OSError):
        sink.sendall(rm_throughput.TALLY.pack(tally[0], tally[2] - tally[1]))
    del sinks[sink]
    sink.close()
    return 0


def exchange(address, port, count, interval_us, size=0):
    """Send `count` questions and collect the answers: ([(t1, t2, t3, t4)], how many arrived there, how many
    were sent).

    Fewer are sent where this process, or its host, stands still in the middle: a reflector waits for ten
    intervals, a second at least, and what nobody answers any more is no loss of the network.
    """
    session = struct.unpack("!I", os.urandom(4))[0]
    rows, arrived, asked = {}, 0, 0.0
    padding = b"\0" * max(0, max(size, ANSWER.size) - QUESTION.size)
    with socket.socket(_family(address), socket.SOCK_DGRAM) as link:
        try:
            link.connect((address, port))
        except OSError as error:
            if error.errno in NO_WAY:  # then everything that would be sent is lost
                return [], 0, count
            raise
        link.setblocking(False)
        _give_room(link)
        sent, end, longest_s = 0, None, max(STOOD_STILL_S, 5 * interval_us / 1e6)
        while True:
            now = time.monotonic()
            if not sent:  # until the first question a reflector waits
                begin = last = now
            if sent < count and now > last + longest_s:
                count, end = sent, now + LATE_S
            if sent < count and now >= begin + sent * interval_us / 1e6:
                last = now
                with contextlib.suppress(OSError):  # refused: nobody listens; counts as lost
                    link.send(QUESTION.pack(MAGIC, session, sent, _now_us()) + padding)
                sent += 1
                if sent == count:
                    end = time.monotonic() + LATE_S
                continue
            late = end is not None and now > end
            # what came while this process had to wait for a processor was not lost
            if len(rows) == count or (late and not select.select([link], [], [], 0)[0]):
                arrived = min(arrived, sent)  # the network may double them
                return [rows[n] for n in sorted(rows)], arrived, sent
            due = begin + sent * interval_us / 1e6
            if end is not None and not late:
                asked = asked or now  # the answers that are under way come first
                due = min(end, asked + HOW_MANY_S)
                if now >= due:
                    asked = now
                    with contextlib.suppress(OSError):
                        link.send(QUESTION.pack(MAGIC, session, HOW_MANY, _now_us()) + padding)
                    continue
            ready, _, _ = select.select([link], [], [], max(0.0, due - now))
            if not ready:
                continue
            try:
                data, t4 = link.recv(65536), _now_us()
            except OSError:  # ICMP: port unreachable
                time.sleep(0.001)
                continue
            if len(data) == ANSWER.size and data[:4] == MAGIC:
                _, its, number, t1, t2, t3, so_far = ANSWER.unpack(data)
                if its == session:
                    arrived = max(arrived, so_far)
                    if number < count:
                        rows.setdefault(number, (t1, t2, t3, t4))


def summarise(rows, sent, arrived, offset_us=None, offset_error_us=None, histograms=False):
    """One-way figures of a session. Pure.

    Without a given clock offset (reflector minus prober) it is taken from the fastest exchange, whose
    halves are then equal by assumption; the error bound is half its round trip.
    """
    round_trips = [(t4 - t1) - (t3 - t2) for t1, t2, t3, t4 in rows]
    result = {
        "sent": sent, "received": len(rows),
        "loss_forward_pct": round(100.0 * (sent - arrived) / sent, 3) if sent else 0.0,
        "loss_backward_pct": round(100.0 * (arrived - len(rows)) / arrived, 3) if arrived else None,
        "loss_pct": round(100.0 * (sent - len(rows)) / sent, 3) if sent else 0.0,
    }  # fmt: skip
    if not rows:
        return result
    fastest = min(range(len(rows)), key=round_trips.__getitem__)
    bound = max(1, round_trips[fastest] // 2)
    if offset_us is None or offset_error_us is None or offset_error_us > bound:
        t1, t2, t3, t4 = rows[fastest]
        offset_us, offset_error_us = ((t2 - t1) + (t3 - t4)) // 2, bound
    forward = [t2 - t1 - offset_us for t1, t2, _, _ in rows]
    backward = [t4 - t3 + offset_us for _, _, t3, t4 in rows]
    for name, delays in (("forward", forward), ("backward", backward), ("rtt", round_trips)):
        result[name + "_us"] = spread(delays)
        result["jitter_%s_us" % name] = jitter(delays)
        if histograms and name != "rtt":
            result[name + "_histogram"] = histogram(delays)
    result.update(offset_us=offset_us, clock_error_us=offset_error_us)
    return result


def path_mtu(address, port):
    """Largest packet that gets there undivided (IP header included), by bisection with DF set."""
    six = _family(address) == socket.AF_INET6
    header = 48 if six else 28
    with socket.socket(_family(address), socket.SOCK_DGRAM) as link:
        if six:
            link.setsockopt(socket.IPPROTO_IPV6, 23, _IP_PMTUDISC_PROBE)  # IPV6_MTU_DISCOVER
        else:
            link.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
        link.connect((address, port))
        link.settimeout(PASSES_S)

        def passes(size):
            padding = b"\0" * (size - header - QUESTION.size)
            for number in range(3):
                session = struct.unpack("!I", os.urandom(4))[0]
                try:
                    link.send(QUESTION.pack(MAGIC, session, number, _now_us()) + padding)
                    while True:
                        data = link.recv(65536)
                        if len(data) >= 8 and struct.unpack_from("!I", data, 4)[0] == session:
                            return True
                except socket.timeout:  # its name in Python 3.8
                    continue
                except OSError:  # too long for the interface, or nobody there
                    return False
            return False

        low, high = 576, 9217
        if not passes(low):
            raise KernelRefused("unreachable", "no reflector answers at %s port %d" % (address, port))
        while high - low > 1:
            middle = (low + high) // 2
            if passes(middle):
                low = middle
            else:
                high = middle
    return {"mtu_bytes": low}


def probe(request):
    """Measure towards a host that reflects: `kind` oneway, rtt, throughput or mtu; or find the way to any
    host (`trace`), ask a service (`dns`, `http`), or say which `tools` there are, or the `clock`'s state.

    A throughput test may be confined to `windows`, [begin_us, length_us] by this host's clock, with
    `buffer_bytes` under way at most; or be made by the `tool` iperf3, which then also reflects.
    `offset_us` and `offset_error_us` (reflector's clock minus ours, and its bound) are used when they are
    better than the exchange's own.
    """
    if request.get("kind") == "tools":
        return rm_throughput.tools()
    if request.get("kind") == "clock":
        return rm_clock.state()
    timeout_us = max(100_000, min(60_000_000, int(request.get("timeout_us") or 10_000_000)))
    if request.get("kind") == "dns":
        query, record = require(request, "query", "record")
        if record not in rm_dns.TYPES:
            raise KernelRefused("bad-request", "there is no record %r" % (record,))
        return rm_dns.ask(query, record, request.get("nameserver") or "", timeout_us)
    if request.get("kind") == "http":
        (url,) = require(request, "url")
        return rm_http.fetch(url, request.get("contains") or "", timeout_us)
    if request.get("kind") == "trace":
        tries = max(1, min(100, int(request.get("tries") or 5)))
        address = _literal(*require(request, "address"))
        return rm_trace.trace(address, tries, min(10_000_000, int(request.get("round_us") or 0)))
    kind, name, port = require(request, "kind", "address", "port")
    address = _literal(name)
    if kind in ("oneway", "rtt"):
        count = max(1, min(100_000, int(request.get("count") or 100)))
        interval = max(100, int(request.get("interval_us") or 5_000))
        rows, arrived, sent = exchange(address, port, count, interval, int(request.get("size_bytes") or 0))
        given = request.get("offset_us"), request.get("offset_error_us")
        full = summarise(rows, sent, arrived, *given, bool(request.get("histogram")))
        if kind == "oneway":
            return full
        return {n: full[n] for n in ("sent", "received", "loss_pct", "rtt_us", "jitter_rtt_us") if n in full}
    if kind == "throughput":
        duration, rate = (
            min(LONGEST_US, int(request.get("duration_us") or 1_000_000)),
            request.get("rate_bps"),
        )
        if "windows" in request:
            buffer = int(request.get("buffer_bytes") or 1 << 17)
            return rm_throughput.bursts(address, port, request["windows"], int(rate or 0), buffer)
        if request.get("tool") == "iperf3":
            return rm_throughput.iperf(address, port, duration, int(rate or 0))
        return rm_throughput.stream(address, port, duration, int(rate or 0))
    if kind == "mtu":
        return path_mtu(address, port)
    raise KernelRefused(
        "bad-request",
        "there is no probe %r; there are oneway, rtt, throughput, mtu, trace, "
        "dns, http, clock, tools" % (kind,),
    )


OPS = {}
SLOW_OPS = {"reflect": reflect, "probe": probe}

if __name__ == "__main__":
    rm_kernel.serve_lines(SLOW_OPS)
