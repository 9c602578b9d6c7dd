"""A distributed training job without the training: emulated computation, real ring all-reduce over TCP.

Every iteration computes (sleeps) for --compute-ms and then all-reduces --bytes between the ranks, with
reduce-scatter and all-gather as NCCL's and Gloo's rings do, so that each rank sends 2(N-1)/N times
--bytes to its neighbour. The reduction is a bitwise exclusive-or and its result is checked. Ranks find
each other by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. At the end each rank prints one JSON line.

Standard library only. Iterations are announced through rm_iteration when it can be imported.
"""

import argparse
import json
import os
import queue
import random
import socket
import struct
import sys
import threading
import time
import zlib

try:
    import rm_iteration
except ImportError:  # not started by rm
    rm_iteration = None

PIECE = 1 << 18  # bytes per receive call, which sleeps in the kernel until they are there


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--compute-ms", type=float, default=120.0)
    parser.add_argument("--bytes", type=int, default=900_000, help="size of the all-reduced buffer")
    parser.add_argument(
        "--buckets", type=int, default=1, help="reduce it in N parts, one after the other, as DDP does"
    )
    parser.add_argument(
        "--jitter", type=float, default=0.0, help="standard deviation of compute time, fraction"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start-delay", type=float, default=0.0, help="seconds before the first iteration")
    parser.add_argument(
        "--congestion-control", default="", help="TCP congestion control of the ring, e.g. cubic"
    )
    parser.add_argument("--unhooked", action="store_true", help="do not announce iterations to rm")
    parser.add_argument("--durations", action="store_true", help="print every iteration's duration")
    return parser.parse_args()


def connect(address, patience_s=60.0):
    """A connection to a peer that may not listen yet."""
    end = time.monotonic() + patience_s
    while True:
        try:
            link = socket.create_connection(address, timeout=5.0)
            link.settimeout(None)
            return link
        except OSError as error:
            if time.monotonic() > end:
                raise SystemExit("cannot reach %s:%d: %s" % (address[0], address[1], error)) from None
            time.sleep(0.05)


def receive(link, view):
    """Fill `view` from the connection."""
    done = 0
    while done < len(view):
        size = min(PIECE, len(view) - done)
        count = link.recv_into(view[done : done + size], size, socket.MSG_WAITALL)
        if count == 0:
            raise SystemExit("a neighbour ended early")
        done += count


def listen(port):
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("", port))
    server.listen(256)
    return server


class Ring:
    """The ring of all ranks: a connection to the next one, a connection from the one before."""

    def __init__(self, rank, size, master, congestion_control):
        self.rank, self.size = rank, size
        server = listen(0)
        addresses = self._rendezvous(server.getsockname()[1], master)
        following = connect(addresses[(rank + 1) % size])
        previous, _ = server.accept()
        server.close()
        for link in (following, previous):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if congestion_control:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
        self.following, self.previous = following, previous
        self._todo, self._sent = queue.SimpleQueue(), queue.SimpleQueue()
        threading.Thread(target=self._send, daemon=True).start()

    def _rendezvous(self, port, master):
        """Rank 0 collects everyone's address and gives all of them to everyone."""
        if self.rank:
            link = connect(master)
            link.sendall(struct.pack("!II", self.rank, port))
            with link, link.makefile() as lines:
                return [tuple(address) for address in json.loads(lines.readline())]
        server, links, addresses = listen(master[1]), [], {0: (master[0], port)}
        while len(addresses) < self.size:
            link, peer = server.accept()
            greeting = bytearray(8)
            receive(link, memoryview(greeting))
            rank, its_port = struct.unpack("!II", greeting)
            addresses[rank] = (peer[0], its_port)
            links.append(link)
        table = [addresses[rank] for rank in range(self.size)]
        for link in links:
            with link:
                link.sendall((json.dumps(table) + "\n").encode())
        server.close()
        return table

    def _send(self):
        while True:
            view = self._todo.get()
            try:
                self.following.sendall(view)
            except OSError as error:
                self._sent.put(error)
            else:
                self._sent.put(None)

    def all_reduce(self, data, spare):
        """Exclusive-or of every rank's `data`, in place. `spare` holds one chunk."""
        n, view = self.size, memoryview(data)
        edges = [len(data) * i // n for i in range(n + 1)]
        for step in range(2 * (n - 1)):
            gathering = step >= n - 1
            turn = step - (n - 1) - 1 if gathering else step
            out, into = (self.rank - turn) % n, (self.rank - turn - 1) % n
            target = view[edges[into] : edges[into + 1]]
            self._todo.put(view[edges[out] : edges[out + 1]])
            if gathering:
                receive(self.previous, target)
            else:
                arrived = spare[: len(target)]
                receive(self.previous, arrived)
                both = int.from_bytes(target, "little") ^ int.from_bytes(arrived, "little")
                target[:] = both.to_bytes(len(target), "little")
            failure = self._sent.get()
            if failure is not None:
                raise SystemExit("the next rank is gone: %s" % failure)


def compute(length_s):
    end = time.monotonic() + length_s
    while True:
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(left - 0.001 if left > 0.002 else min(left, 0.00025))


def content(seed, rank, size):
    return random.Random("%d %d" % (seed, rank)).getrandbits(8 * size).to_bytes(size, "little")


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main():
    chosen = options()
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    master = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29400")))
    hooked = rm_iteration is not None and not chosen.unhooked
    iterations = rm_iteration.current() if hooked else None
    ring = Ring(rank, size, master, chosen.congestion_control) if size > 1 else None
    own = content(chosen.seed, rank, chosen.bytes)
    data, spare = bytearray(own), memoryview(bytearray(chosen.bytes // max(1, size) + 1))
    edges = [len(data) * n // chosen.buckets for n in range(chosen.buckets + 1)]
    buckets = [memoryview(data)[edges[n] : edges[n + 1]] for n in range(chosen.buckets)]
    chance = random.Random(chosen.seed)  # the same on every rank: the job as a whole is late or early
    time.sleep(chosen.start_delay)
    origins, communications, began = [], [], time.time()
    for _ in range(chosen.iterations):
        if iterations:
            iterations.start()
        origins.append(time.monotonic())
        compute(chosen.compute_ms / 1000 * max(0.1, 1 + chosen.jitter * chance.gauss(0, 1)))
        data[:] = own
        if iterations:
            iterations.communication_starts()
        mark = time.monotonic()
        for bucket in buckets if ring else ():
            ring.all_reduce(bucket, spare)
        communications.append(time.monotonic() - mark)
        if iterations:
            iterations.communication_ends()
            iterations.end()
    origins.append(time.monotonic())
    expected = 0
    for other in range(size):
        expected ^= int.from_bytes(content(chosen.seed, other, chosen.bytes), "little")
    durations = [1000 * (origins[n + 1] - origins[n]) for n in range(chosen.iterations)]
    summary = {
        "rank": rank,
        "iterations": chosen.iterations,
        "started_s": round(began, 6),
        "mean_ms": round(sum(durations) / len(durations), 3),
        "p90_ms": round(percentile(durations, 0.90), 3),
        "p99_ms": round(percentile(durations, 0.99), 3),
        "communication_ms": round(1000 * sum(communications) / len(communications), 3),
        "waited_ms": round(iterations.waited_us / 1000, 3) if iterations else 0.0,
        "checksum": zlib.crc32(data),
        "correct": int.from_bytes(data, "little") == expected,
    }
    if chosen.durations:
        summary["durations_ms"] = [round(d, 3) for d in durations]
        summary["communications_ms"] = [round(1000 * c, 3) for c in communications]
    print(json.dumps(summary), flush=True)
    return 0 if summary["correct"] else 1


if __name__ == "__main__":
    sys.exit(main())
