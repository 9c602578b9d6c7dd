"""Delays packets between network devices: the kernel's netem in a few lines, for kernels without it.

Every frame that arrives at a wire's first device leaves by its second one `delay` later, in order. Segments
that the kernel has merged and checksums it has not computed yet travel as they are (`PACKET_VNET_HDR`).
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Sequence

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_VNET_HDR = 15
PACKET_OUTGOING = 4
SO_RCVBUFFORCE = 33
BUFFER_BYTES = 8 * 1024 * 1024
BATCH = 64


def _open(device: str) -> socket.socket:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    try:
        end.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    except PermissionError:  # in a user namespace: as much as the system's limit allows
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    end.bind((device, ETH_P_ALL))
    end.setblocking(False)
    return end


def carry(wires: Sequence[tuple[str, str, float]]) -> None:
    """Carries frames for ever. `wires`: (from device, to device, delay in milliseconds)."""
    ends = {device: _open(device) for source, target, _ in wires for device in (source, target)}
    routes = {
        ends[source]: (ends[target], delay_ms / 1e3, deque[tuple[float, bytes]]())
        for source, target, delay_ms in wires
    }
    listening = list(routes)
    while True:
        dues = [held[0][0] for _, _, held in routes.values() if held]
        wait = max(0.0, min(dues) - time.monotonic()) if dues else None
        readable, _, _ = select.select(listening, [], [], wait)
        for end in readable:
            _, delay_s, held = routes[end]
            _receive(end, delay_s, held)
        now = time.monotonic()
        for target, _, held in routes.values():
            while held and held[0][0] <= now:
                _send(target, held.popleft()[1])


def _receive(end: socket.socket, delay_s: float, held: deque[tuple[float, bytes]]) -> None:
    for _ in range(BATCH):
        try:
            frame, address = end.recvfrom(1 << 17)
        except BlockingIOError:
            return
        if address[2] != PACKET_OUTGOING:
            held.append((time.monotonic() + delay_s, frame))


def _send(target: socket.socket, frame: bytes) -> None:
    try:
        target.send(frame)
    except (BlockingIOError, OSError):
        # a full queue or a link that has just gone: on a real wire the frame is lost, too
        return
