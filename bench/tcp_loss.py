"""This kernel's TCP over a path that loses packets, beside the formula of the zone-first scenario.

`python -m bench.tcp_loss` (as root): two network namespaces, their devices joined by a program that drops
packets of one direction at random; 100 Mbit/s, cubic. docs/papers/zone-first.md quotes it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress

from rm.sim.papers._zone_first.tcp import throughput_bps

LOSSES = (0.0, 0.01, 0.05, 0.10, 0.20, 0.50)
SECONDS, RATE_BPS, RTT_S = 10.0, 100e6, 0.0002
NAMES = ("rmloss1", "rmloss2")
ADDRESSES = ("10.254.254.1", "10.254.254.2")
CLONE_NEWNET, TUNSETIFF, IFF_TUN_NO_PI = 0x40000000, 0x400454CA, 0x1001
LIBC = ctypes.CDLL(None, use_errno=True)


def enter(name: str) -> None:
    """Put this thread into a network namespace."""
    with open(f"/run/netns/{name}") as namespace:
        if LIBC.setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {name}")


def tun(name: str, address: str, found: list[int]) -> None:
    enter(name)
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"loss", IFF_TUN_NO_PI))
    for words in (
        f"ip addr add {address}/24 dev loss",
        "ip link set loss up",
        f"tc qdisc add dev loss root tbf rate {RATE_BPS / 1e6:.0f}mbit burst 32k latency 20ms",
    ):
        subprocess.run(words.split(), check=True)
    found.append(device)


def forward(devices: list[int], loss: float, seed: int, stop: threading.Event) -> None:
    rng = random.Random(seed)
    while not stop.is_set():
        for device in select.select(devices, [], [], 0.05)[0]:
            packet = os.read(device, 2048)
            if device == devices[1] or rng.random() >= loss:
                os.write(devices[device == devices[0]], packet)


def receive(ready: threading.Event, received: list[int]) -> None:
    enter(NAMES[1])
    with socket.create_server((ADDRESSES[1], 5000)) as server:
        ready.set()
        connection, _ = server.accept()
        with suppress(ConnectionResetError):  # the sender's end, with what is still under way
            while data := connection.recv(1 << 16):
                received[0] += len(data)


def send(received: list[int], rates: list[float]) -> None:
    enter(NAMES[0])
    with socket.socket() as sender:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        sender.settimeout(60)
        sender.connect((ADDRESSES[1], 5000))
        sender.settimeout(SECONDS)
        begin, before = time.monotonic(), received[0]
        try:
            while time.monotonic() < begin + SECONDS:
                sender.send(bytes(1 << 14))
        except TimeoutError:
            pass
        rates.append(8 * (received[0] - before) / (time.monotonic() - begin))
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def measure(loss: float, seed: int) -> float:
    """Payload in bit/s that arrives."""
    try:
        for name in NAMES:
            subprocess.run(["ip", "netns", "add", name], check=True)
        devices: list[int] = []
        for name, address in zip(NAMES, ADDRESSES, strict=True):
            join(threading.Thread(target=tun, args=(name, address, devices)))
        stop, ready = threading.Event(), threading.Event()
        received, rates = [0], list[float]()
        threading.Thread(target=forward, args=(devices, loss, seed, stop), daemon=True).start()
        threading.Thread(target=receive, args=(ready, received), daemon=True).start()
        ready.wait()
        join(threading.Thread(target=send, args=(received, rates)))
        stop.set()
        time.sleep(0.2)
        for device in devices:
            os.close(device)
        return rates[0]
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], check=False)


def join(thread: threading.Thread) -> None:
    thread.start()
    thread.join()


def main() -> int:
    if os.geteuid():
        print("Making network namespaces needs root.", file=sys.stderr)
        return 1
    print("loss %   measured Mbit/s (three runs)   formula Mbit/s")
    for loss in LOSSES:
        runs = sorted(measure(loss, seed) / 1e6 for seed in range(3))
        told = "  ".join(f"{run:8.3f}" for run in runs)
        print(f"{100 * loss:6.0f}   {told}   {throughput_bps(RATE_BPS, loss, RTT_S) / 1e6:14.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
