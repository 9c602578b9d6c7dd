"""Throughput tests: as fast as it goes, in bursts that spare the jobs of the hosts, or by another program.

A sink (rm_probe.py) counts what it gets and reports it at the end. A test in bursts sends only inside the
windows that it is given, by this host's clock: the gaps between the communication phases of jobs. iperf3
makes the test where both hosts have it and nobody must be spared.
"""

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rm_kernel import KernelRefused, require

TALLY = struct.Struct("!QQ")  # what the sink reports: bytes, and microseconds that they took
BLOCK = 1 << 14
STREAM_BLOCK = 1 << 15
STREAM_BUFFER = 1 << 17  # little may be under way at the end
STREAM_ANSWER_S = 10.0
LEAST_BUFFER = 1 << 13
CONNECT_S = 2.0
ANSWER_S = 5.0
IPERF = "iperf3"
CHUNK_US = 300  # a capped sender sends this long, then waits until it may again


def tools():
    """Programs for tests that this host has."""
    return {IPERF: _program(IPERF) != ""}


def _program(name):
    for folder in (os.environ.get("PATH") or "/usr/local/bin:/usr/bin:/bin").split(":"):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            return path
    return ""


def bursts(address, port, windows, rate_bps, buffer_bytes):
    """TCP throughput as the sink saw it, over all windows [begin_us, length_us]; a window that has begun is
    left out, and so is what the sink saw in one piece, which shows no rate."""
    received = took = done = 0
    for begin, length in windows:
        if time.time_ns() // 1000 > begin:
            continue
        tally = _burst(address, port, begin, length, rate_bps, buffer_bytes)
        if tally[1] > 0:
            received, took, done = received + tally[0], took + tally[1], done + 1
    rate = received * 8 * 1000000 // took if took else 0
    return {"throughput_bps": rate, "bytes": received, "duration_us": took, "bursts": done}


def _burst(address, port, begin, length, rate_bps, buffer_bytes):
    """(bytes, microseconds) that the sink counted, both without the first piece."""
    time.sleep(max(0.0, begin / 1e6 - time.time()))
    end = time.monotonic() + length / 1e6
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as link:
        # what is under way when the window closes still has to get through: keep it small
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, max(LEAST_BUFFER, buffer_bytes))
        link.settimeout(CONNECT_S)
        try:
            link.connect((address, port))
            _send_until(link, end, rate_bps)
            return _tally(link, ANSWER_S)
        except OSError as error:
            raise _broke(address, port, error) from None


def stream(address, port, duration_us, rate_bps):
    """TCP throughput as the sink saw it, never sending faster than `rate_bps` (0: no cap)."""
    block = bytes(STREAM_BLOCK)
    try:
        link = socket.create_connection((address, port), timeout=CONNECT_S + 3.0)
    except OSError as error:
        raise KernelRefused("unreachable", "no TCP sink at %s port %d: %s" % (address, port, error)) from None
    with link:
        link.settimeout(STREAM_ANSWER_S)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER)
        begin, sent = time.monotonic(), 0
        try:
            while time.monotonic() < begin + duration_us / 1e6:
                if rate_bps:
                    ahead = begin + sent * 8 / rate_bps - time.monotonic()
                    if ahead > 0:
                        time.sleep(min(ahead, 0.05))
                        continue
                sent += link.send(block)
            received, took = _tally(link, STREAM_ANSWER_S)
        except OSError as error:
            raise _broke(address, port, error) from None
    return {"throughput_bps": received * 8 * 1000000 // max(1, took), "bytes": received, "duration_us": took}


def _tally(link, within_s):
    """End the sending; (bytes, microseconds) as the sink counted them."""
    link.shutdown(socket.SHUT_WR)
    link.settimeout(within_s)
    answer = b""
    while len(answer) < TALLY.size:
        piece = link.recv(TALLY.size - len(answer))
        if not piece:
            raise OSError("the sink ended early")
        answer += piece
    return TALLY.unpack(answer)


def _broke(address, port, error):
    return KernelRefused("unreachable", "TCP to %s port %d broke: %s" % (address, port, error))


def _send_until(link, end, rate_bps):
    block, begin, sent = bytes(BLOCK), time.monotonic(), 0
    while True:
        now = time.monotonic()
        if now >= end:
            return
        if rate_bps and begin + sent * 8 / rate_bps > now:
            time.sleep(min(CHUNK_US / 1e6, end - now))
            continue
        link.settimeout(max(0.001, end - now))  # a full buffer must not keep us beyond the window
        try:
            sent += link.send(block)
        except socket.timeout:  # its name in Python 3.8
            return


def serve_iperf(request):
    """Run iperf3's server for one test, at most for `duration_us`. Notifies `reflecting` when it listens."""
    port, duration = require(request, "port", "duration_us")
    command = [_iperf(), "--server", "--one-off", "--port", str(port), "--json"]
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        end = time.monotonic() + duration / 1e6
        while not _listens(port):
            if server.poll() is not None or time.monotonic() > end:
                raise KernelRefused("iperf3", "iperf3 does not serve on port %d." % port)
            time.sleep(0.005)
        if "notify" in request:
            request["notify"]({"event": "reflecting", "port": port})
        with contextlib.suppress(subprocess.TimeoutExpired):  # nobody came
            server.communicate(timeout=max(0.0, end - time.monotonic()))
    finally:
        server.kill()
        server.wait()
    return {}


def _listens(port):
    """Does a TCP socket of this host listen on the port? Looked up, for a try would be taken for the test."""
    wanted = ":%04X" % port
    for name in ("tcp", "tcp6"):
        try:
            with open("/proc/net/" + name) as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == "0A":
                return True
    return False


def iperf(address, port, duration_us, rate_bps):
    """iperf3's own test towards a host that serves one."""
    seconds = max(1, round(duration_us / 1e6))
    command = [_iperf(), "--client", address, "--port", str(port), "--time", str(seconds), "--json"]
    if rate_bps:
        command += ["--bitrate", str(rate_bps)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=seconds + 8,
        )
    except subprocess.TimeoutExpired:
        raise KernelRefused("iperf3", "iperf3 to %s port %d took too long." % (address, port)) from None
    return read_iperf(done.stdout)


def read_iperf(text):
    """What iperf3 --json says of a TCP test, as the receiver saw it."""
    try:
        told = json.loads(text)
    except ValueError:
        raise KernelRefused("iperf3", "iperf3 did not answer in JSON.") from None
    if told.get("error"):
        raise KernelRefused("iperf3", "iperf3: %s." % told["error"])
    try:
        end = told["end"]
        got = end["sum_received"]
        return {
            "throughput_bps": int(got["bits_per_second"]),
            "bytes": int(got["bytes"]),
            "duration_us": int(got["seconds"] * 1e6),
            "retransmits": end.get("sum_sent", {}).get("retransmits"),
        }
    except (KeyError, TypeError, ValueError):
        raise KernelRefused("iperf3", "iperf3's answer lacks what was received.") from None


def _iperf():
    path = _program(IPERF)
    if not path:
        raise KernelRefused("no-iperf3", "iperf3 is not installed on %s." % os.uname().nodename)
    return path
