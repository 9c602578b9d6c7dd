"""The words of `rmx forward`, and the relay that runs on the host."""

import subprocess
import sys
import threading

import pytest

from rm.cli.jobs.enter import one_number
from rm.cli.jobs.forward import listening, ports
from rm.cli.session import Session
from rm.client.forwarding import REFUSED, RELAY
from rm.errors import UsageError
from tests.ports import Kept


def test_ports() -> None:
    assert ports("8888") == (8888, 8888)
    assert ports("8888:9999") == (8888, 9999)
    assert ports("8888:0") == (8888, 0)


@pytest.mark.parametrize("word", ["", "0", "65536", "8888:", "8888:x", "-1", "8888:65536", "1:2:3", "٣"])
def test_what_is_no_port_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="names no port"):
        ports(word)


@pytest.mark.parametrize("word", ["42.0", "42.batch"])
def test_a_step_is_no_job_to_enter(word: str) -> None:
    with pytest.raises(UsageError, match=f"'{word}' is a step"):
        one_number(Session(None, None), word)


def test_a_port_that_is_taken_is_said() -> None:
    with listening("127.0.0.1", 0) as taken, pytest.raises(UsageError, match="Address already in use"):
        listening("127.0.0.1", taken.getsockname()[1])


def relay(port: int, data: bytes) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-S", "-E", "-c", RELAY, str(port)]
    return subprocess.run(command, input=data, capture_output=True, timeout=60)


def test_the_relay_passes_every_byte_and_the_end_of_input() -> None:
    data = bytes(range(256)) * 2000
    with listening("127.0.0.1", 0) as at:

        def answer() -> None:
            near, _ = at.accept()
            with near, near.makefile("rb") as file:
                near.sendall(file.read()[::-1])

        thread = threading.Thread(target=answer)
        thread.start()
        done = relay(at.getsockname()[1], data)
        thread.join()
    assert (done.returncode, done.stdout, done.stderr) == (0, data[::-1], b"")


def test_the_relay_says_that_nothing_listens() -> None:
    kept = Kept()
    assert relay(kept.number, b"").returncode == REFUSED
    kept.close()
