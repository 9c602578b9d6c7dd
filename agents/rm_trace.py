"""The way to another host: which routers answer for packets that live too short to get there.

UDP with a rising TTL, as traceroute does. The kernel hands the routers' ICMP answers to the socket that sent
(IP_RECVERR, ip(7)), so that this needs no rights. A router answers seldom (Linux: six at once, then one a
second), so that packets to one hop are spaced; a hop that answers nothing may still pass everything on.
"""

import contextlib
import errno
import select
import socket
import struct
import time

from rm_kernel import KernelRefused

FIRST_PORT = 33_434  # traceroute's
MOST_HOPS = 30
FURTHER = 3  # hops asked beyond the last that answered, before the rest is given up
SPACING_S = 0.03
WAIT_S = 1.0  # for the last answers
_ERRQUEUE = 0x2000
# the level, options RECVERR and the TTL, the types of ICMP "time exceeded" and "unreachable"
_V4 = (socket.IPPROTO_IP, 11, socket.IP_TTL, 11, 3)
_V6 = (socket.IPPROTO_IPV6, 25, socket.IPV6_UNICAST_HOPS, 3, 1)
_EXTENDED = struct.Struct("=IBBBBII")  # struct sock_extended_err: errno, origin, type, code, pad, info, data


def trace(address, tries=5, round_us=0, most=MOST_HOPS):
    """Ask each hop `tries` times, a round of all hops every `round_us` at most.

    Returns {"hops": [{"address", "answered", "rtt_us"}, …], "sent": tries to each, "reached": bool}.

    `hops` ends with the host itself if it was `reached`; a hop that never answered has the address "".
    """
    six, itself = ":" in address, _canonical(address)
    level, recverr, ttl_option, exceeded, unreachable = _V6 if six else _V4
    found = {}  # by hop: [address, round trips]
    sent, end = {}, most
    with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.setsockopt(level, recverr, 1)
        link.setblocking(False)

        def take():
            nonlocal end
            while True:
                try:
                    _, ancillary, _, target = link.recvmsg(512, 512, _ERRQUEUE)
                except OSError:
                    return
                when = sent.get(target[1])
                for its_level, kind, data in ancillary:
                    if (its_level, kind) != (level, recverr) or len(data) < _EXTENDED.size or when is None:
                        continue
                    _, _, what, _, _, _, _ = _EXTENDED.unpack_from(data)
                    hop, at = when
                    who = _offender(data[_EXTENDED.size :])
                    if what not in (exceeded, unreachable) or not who:
                        continue
                    entry = found.setdefault(hop, [who, []])
                    entry[1].append(int((time.monotonic() - at) * 1e6))
                    if who == itself or what == unreachable:
                        end = min(end, hop)

        def wait(until):
            while True:
                left = until - time.monotonic()
                if left <= 0:
                    return
                if select.select([link], [], [], left)[0]:
                    take()
                    with contextlib.suppress(OSError):  # the error again; or somebody has answered
                        link.recv(512)

        number = 0
        for attempt in range(tries):
            due = time.monotonic() + round_us / 1e6
            for hop in range(1, most + 1):
                if hop > end or hop > max(found, default=0) + FURTHER + (0 if attempt else 2):
                    break
                link.setsockopt(level, ttl_option, hop)
                port = FIRST_PORT + number
                number += 1
                for _ in range(3):
                    try:
                        sent[port] = (hop, time.monotonic())
                        link.sendto(b"rm trace", (address, port))
                        break
                    except OSError as error:
                        if error.errno in (errno.ENETUNREACH, errno.EINVAL, errno.EACCES):
                            raise KernelRefused("unreachable", "there is no route to %s" % address) from None
                        take()  # the answer to an earlier one
                wait(time.monotonic() + SPACING_S)
            wait(due)
        wait(time.monotonic() + WAIT_S)
    hops = [
        {
            "address": found[hop][0] if hop in found else "",
            "answered": min(tries, len(found[hop][1])) if hop in found else 0,
            "rtt_us": min(found[hop][1]) if hop in found else None,
        }
        for hop in range(1, min(end, max(found, default=0)) + 1)
    ]
    return {"hops": hops, "sent": tries, "reached": bool(hops) and hops[-1]["address"] == itself}


def _canonical(address):
    """An address as `_offender` writes it: `0:0::1%eth0` is `::1`."""
    plain = address.partition("%")[0]
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            return socket.inet_ntop(family, socket.inet_pton(family, plain))
    return address


def _offender(data):
    """Who sent the ICMP message; "" if the kernel does not say."""
    with contextlib.suppress(ValueError, struct.error, IndexError):
        family = struct.unpack_from("=H", data)[0]
        if family == socket.AF_INET:
            return socket.inet_ntop(family, data[4:8])
        if family == socket.AF_INET6:
            return socket.inet_ntop(family, data[8:24])
    return ""
