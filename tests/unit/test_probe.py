"""The prober against its own reflector over loopback, and its arithmetic on made-up time-stamps."""

from __future__ import annotations

import importlib.util
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

AGENTS = Path(__file__).parents[2] / "agents"
sys.path.insert(0, str(AGENTS))
spec = importlib.util.spec_from_file_location("rm_probe", AGENTS / "rm_probe.py")
assert spec is not None
assert spec.loader is not None
rm_probe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rm_probe)
sys.path.remove(str(AGENTS))


@pytest.fixture
def port() -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    ask = {"op": "reflect", "port": number, "duration_us": 3_000_000, "address": "127.0.0.1"}
    thread = threading.Thread(target=rm_probe.reflect, args=(ask,))
    thread.start()
    yield number
    thread.join()


def probe(kind: str, port: int, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = rm_probe.probe({"kind": kind, "address": "127.0.0.1", "port": port, **more})
    return found


def test_everything_over_loopback(port: int) -> None:
    for _ in range(100):  # until the reflector listens
        if probe("rtt", port, count=1, interval_us=100)["received"]:
            break
    found = probe("oneway", port, count=50, interval_us=500)
    assert (found["received"], found["loss_forward_pct"], found["loss_backward_pct"]) == (50, 0.0, 0.0)
    assert found["rtt_us"]["min"] > 0
    assert abs(found["offset_us"]) <= found["clock_error_us"]  # one clock: the true offset is 0
    flow = probe("throughput", port, duration_us=300_000, rate_bps=40_000_000)
    assert 0 < flow["throughput_bps"] < 60_000_000
    assert flow["bytes"] > 500_000
    assert probe("mtu", port)["mtu_bytes"] > 1500


def test_nobody_there() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    found = probe("oneway", number, count=3, interval_us=100)
    assert (found["received"], found["loss_pct"]) == (0, 100.0)
    with pytest.raises(rm_probe.KernelRefused, match="no TCP sink"):
        probe("throughput", number, duration_us=1000)


def test_clock_offset_loss_and_delay_arithmetic() -> None:
    offset, rows = 5_000_000, []
    for n in range(8):  # forward 300 us (every second one 500), back 300 us, two of ten lost going, none back
        t1 = n * 10_000
        t2 = t1 + offset + (500 if n % 2 else 300)
        t3 = t2 + 20
        rows.append((t1, t2, t3, t3 - offset + 300))
    found = rm_probe.summarise(rows, 10, 8)
    assert (found["loss_forward_pct"], found["loss_backward_pct"], found["loss_pct"]) == (20.0, 0.0, 20.0)
    assert (found["offset_us"], found["clock_error_us"]) == (offset, 300)
    assert (found["forward_us"]["min"], found["forward_us"]["max"]) == (300, 500)
    assert found["backward_us"]["max"] == 300
    assert (found["jitter_forward_us"], found["jitter_backward_us"]) == (200, 0)
    # a better known clock is believed
    told = rm_probe.summarise(rows, 10, 8, offset_us=offset - 100, offset_error_us=10)
    assert (told["forward_us"]["min"], told["backward_us"]["min"]) == (400, 200)
