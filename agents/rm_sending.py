"""How a process sends to other hosts: how fast (SO_MAX_PACING_RATE), with which code point (IP_TOS, ip(7)).

For programs that do not know their own connections, such as one that calls a library of collectives: they are
found among the process's descriptors. Needs no rights; RDMA is not concerned.
"""

import contextlib
import os
import socket
import stat
import struct

SO_MAX_PACING_RATE = 47
UNLIMITED = (1 << 32) - 1
DESCRIPTORS = "/proc/self/fd"
FAMILIES = socket.AF_INET, socket.AF_INET6


def send(rate_bps, dscp):
    """Send no faster than this to any one other host, 0: as fast as it goes, and with this code point; how
    many connections that concerns. Those to one host share its rate."""
    by_peer = {}
    for name in os.listdir(DESCRIPTORS):
        with contextlib.suppress(OSError):
            link = _connection(int(name))
            if link is not None:
                by_peer.setdefault(_host(link), []).append(link)
    found = 0
    for host, links in by_peer.items():
        rate = rate_bps // 8 // len(links) if rate_bps else UNLIMITED
        for link in links:
            with link, contextlib.suppress(OSError):
                if host is not None:
                    found += 1
                    _set(link, max(1, min(UNLIMITED, rate)), dscp)
    return found


def _set(link, rate, dscp):
    """`rate` in bytes per second."""
    link.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("=I", rate))
    if _family(link) == socket.AF_INET6:
        link.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)
    link.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)  # IPv6 may lead to an IPv4 address, too


def _connection(fd):
    """A TCP connection, by a descriptor of our own; None when it is none. It is not made by `fileno` alone:
    where the program has set a default timeout, its library's socket would then no longer block."""
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return None
    link = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, 0, os.dup(fd))
    if link.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM and _family(link) in FAMILIES:
        return link
    link.close()
    return None


def _family(link):
    return link.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN)


def _host(link):
    """Who is at the other end; None: nobody, or this host."""
    try:
        there, here = link.getpeername()[0], link.getsockname()[0]
    except OSError:
        return None
    return None if there == here or there.startswith("127.") else there
