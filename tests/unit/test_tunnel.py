"""The connection through a program: how it ends."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from rm.adapters.hosts.tunnel import Tunnel

THREADS = 4


@pytest.fixture
def threads_that_change_often() -> Iterator[None]:
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual_s)


@pytest.mark.usefixtures("threads_that_change_often")
def test_a_tunnel_that_several_threads_end_at_once_ends_once_and_keeps_its_last_word() -> None:
    together = threading.Barrier(THREADS)

    def end(tunnel: Tunnel) -> None:
        together.wait()
        tunnel.close()

    with ThreadPoolExecutor(THREADS) as threads:
        for _ in range(60):
            tunnel = Tunnel(["sh", "-c", "echo 'no such host' >&2; exec cat"], 5)
            tunnel.sendall(b"x")
            assert tunnel.recv(1) == b"x"
            for ended in [threads.submit(end, tunnel) for _ in range(THREADS)]:
                ended.result()
            assert tunnel.said() == "no such host"
