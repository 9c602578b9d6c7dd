"""One question to a name server, over UDP and, where the answer is cut, over TCP (RFC 1035)."""

import contextlib
import os
import socket
import struct
import time

TYPES = {"a": 1, "ns": 2, "cname": 5, "soa": 6, "ptr": 12, "mx": 15, "txt": 16, "aaaa": 28}
CODES = {1: "format error", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "not implemented", 5: "REFUSED"}
_HEAD = struct.Struct("!HHHHHH")
_FIXED = struct.Struct("!HHIH")  # type, class, time to live, length
RECURSE, CUT, RESPONSE = 0x0100, 0x0200, 0x8000
PORT = 53
MOST = 100  # records that are returned
LONGEST = 300  # characters of one
JUMPS = 128  # of one compressed name


class Unfit(ValueError):
    """The server's answer is none, or not a good one; the text says why."""


def ask(query, record, nameserver="", timeout_us=10_000_000, port=PORT):
    """Returns {"time_us", "records", "error", "nameserver"}: `error` is "" if the server gave records of that
    type; the time is the whole exchange's, also of a refusal. Without a nameserver the first of
    /etc/resolv.conf is asked."""
    server = nameserver or usual_server()
    begin = time.monotonic()
    end = begin + timeout_us / 1e6
    try:
        records, error = answers(_exchange(server, port, question(query, record), end), TYPES[record]), ""
        if not records:
            error = "there is no record of this type"
    except socket.timeout:  # its name in Python 3.8
        records, error = [], "no answer within %g s" % (timeout_us / 1e6)
    except (OSError, ValueError, struct.error, IndexError) as problem:
        records, error = [], str(problem) or "the answer cannot be read"
    took_us = int((time.monotonic() - begin) * 1e6)
    return {"time_us": took_us, "records": records[:MOST], "error": error[:LONGEST], "nameserver": server}


def usual_server():
    """The first name server of the host, or the one that resolvers without any ask (resolv.conf(5))."""
    with contextlib.suppress(OSError), open("/etc/resolv.conf", errors="replace") as lines:
        for words in map(str.split, lines):
            if len(words) > 1 and words[0] == "nameserver":
                return words[1]
    return "127.0.0.1"


def question(query, record):
    """A query with a random id; an address asked for `ptr` becomes the name under which it stands."""
    if record == "ptr":
        query = reversed_name(query)
    name = b""
    for label in query.rstrip(".").split(".") if query.rstrip(".") else ():
        part = label.encode("idna") if not label.isascii() else label.encode()
        if not 0 < len(part) < 64:
            raise Unfit("%r is not a name" % query)
        name += bytes([len(part)]) + part
    number = struct.unpack("!H", os.urandom(2))[0]
    return _HEAD.pack(number, RECURSE, 1, 0, 0, 0) + name + b"\0" + struct.pack("!HH", TYPES[record], 1)


def reversed_name(query):
    for family, sign in ((socket.AF_INET, "."), (socket.AF_INET6, ":")):
        with contextlib.suppress(OSError):
            raw = socket.inet_pton(family, query)
            if sign == ".":
                return ".".join(str(byte) for byte in reversed(raw)) + ".in-addr.arpa"
            return ".".join(digit for byte in reversed(raw) for digit in ("%02x" % byte)[::-1]) + ".ip6.arpa"
    return query


def _exchange(server, port, asked, end):
    found = socket.getaddrinfo(server, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(found[0], socket.SOCK_DGRAM) as link:
        link.connect(found[4])
        link.settimeout(_left(end))
        link.send(asked)
        while True:
            data = link.recv(65535)
            if _fits(data, asked):
                break
            link.settimeout(_left(end))
    if not _HEAD.unpack_from(data)[1] & CUT:
        return data
    with socket.create_connection((server, port), _left(end)) as link:
        link.sendall(struct.pack("!H", len(asked)) + asked)
        length = struct.unpack("!H", _exactly(link, 2, end))[0]
        data = _exactly(link, length, end)
    if not _fits(data, asked):
        raise Unfit("the answer is not to this question")
    return data


def _left(end):
    left = end - time.monotonic()
    if left <= 0:
        raise socket.timeout
    return left


def _exactly(link, count, end):
    data = b""
    while len(data) < count:
        link.settimeout(_left(end))
        part = link.recv(count - len(data))
        if not part:
            raise Unfit("the server closed the connection")
        data += part
    return data


def _fits(data, asked):
    """Is it the answer to this question?"""
    if len(data) < _HEAD.size or data[:2] != asked[:2] or not _HEAD.unpack_from(data)[1] & RESPONSE:
        return False
    return data[_HEAD.size : len(asked)].lower() == asked[_HEAD.size :].lower()


def answers(data, kind):
    """The records of a type in an answer, as text in the order of a zone file; of a `cname` chain only what
    it leads to. Raises Unfit for a refusal."""
    _, flags, questions, count, _, _ = _HEAD.unpack_from(data)
    if flags & 0xF:
        raise Unfit(CODES.get(flags & 0xF, "the server refuses with code %d" % (flags & 0xF)))
    at = _HEAD.size
    for _ in range(questions):
        at = name(data, at)[1] + 4
    found = []
    for _ in range(count):
        at = name(data, at)[1]
        its, _, _, length = _FIXED.unpack_from(data, at)
        at += _FIXED.size
        if at + length > len(data):
            raise Unfit("the answer cannot be read")
        if its == kind and len(found) < MOST:
            found.append(_text(data, at, length, its)[:LONGEST])
        at += length
    return found


def _text(data, at, length, kind):
    if kind == TYPES["a"]:
        return socket.inet_ntop(socket.AF_INET, data[at : at + 4])
    if kind == TYPES["aaaa"]:
        return socket.inet_ntop(socket.AF_INET6, data[at : at + 16])
    if kind == TYPES["mx"]:
        return "%d %s" % (struct.unpack_from("!H", data, at)[0], name(data, at + 2)[0])
    if kind == TYPES["soa"]:
        server, then = name(data, at)
        owner, then = name(data, then)
        return " ".join([server, owner, *map(str, struct.unpack_from("!5I", data, then))])
    if kind == TYPES["txt"]:
        parts, end = b"", at + length
        while at < end:
            parts += data[at + 1 : at + 1 + data[at]]
            at += 1 + data[at]
        return parts.decode("utf-8", "backslashreplace")
    return name(data, at)[0]


def name(data, at):
    """A name at a place in the message, and the place behind it. Raises Unfit."""
    labels, behind = [], None
    for _ in range(JUMPS):
        length = data[at]
        if length & 0xC0 == 0xC0:
            behind = at + 2 if behind is None else behind
            at = struct.unpack_from("!H", data, at)[0] & 0x3FFF
        elif length:
            labels.append(data[at + 1 : at + 1 + length].decode("ascii", "backslashreplace"))
            at += 1 + length
        else:
            return ".".join(labels) or ".", at + 1 if behind is None else behind
    raise Unfit("a name in the answer has no end")
