"""The prober against its own reflector over loopback, and its arithmetic on made-up time-stamps."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agent_process import until
from tests.fakes import PATIENCE_S
from tests.ports import Kept

AGENTS = Path(__file__).parents[2] / "agents"
sys.path.insert(0, str(AGENTS))
spec = importlib.util.spec_from_file_location("rm_probe", AGENTS / "rm_probe.py")
assert spec is not None
assert spec.loader is not None
rm_probe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rm_probe)
rm_throughput = rm_probe.rm_throughput
sys.path.remove(str(AGENTS))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reflector that gets no processor for a while has lost nothing: here it is waited for."""
    monkeypatch.setattr(rm_probe, "LATE_S", PATIENCE_S)
    monkeypatch.setattr(rm_probe, "STOOD_STILL_S", PATIENCE_S)
    monkeypatch.setattr(rm_probe, "PASSES_S", PATIENCE_S)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """By how many seconds the prober's clock is ahead, first of all."""
    ahead_s, monotonic = [0.0], time.monotonic
    clock = SimpleNamespace(**vars(time) | {"monotonic": lambda: monotonic() + ahead_s[0]})
    monkeypatch.setattr(rm_probe, "time", clock)
    return ahead_s


def free_port() -> int:
    """One that nobody has: another program may have it before a reflector listens there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


@pytest.fixture
def port() -> Iterator[int]:
    """Of a reflector that listens."""
    command = [sys.executable, str(AGENTS / "rm_probe.py")]
    while True:
        number = free_port()
        ask = {"op": "reflect", "port": number, "duration_us": 600_000_000, "address": "127.0.0.1"}
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reflector:
            assert reflector.stdin is not None
            assert reflector.stdout is not None
            reflector.stdin.write(json.dumps(ask) + "\n")
            reflector.stdin.flush()
            told = json.loads(reflector.stdout.readline())
            if "Address already in use" not in told.get("error", ""):
                assert told["event"] == "reflecting"
                yield number
                reflector.kill()
                return


def reflecting(
    pool: ThreadPoolExecutor, told: list[dict[str, Any]], idle_s: float = PATIENCE_S, **more: Any
) -> tuple[int, Future[Any]]:
    """A reflector in the pool that listens: its port, and what it will have done. `told` gets its notes."""
    while True:
        number, begun = free_port(), threading.Event()

        def notify(message: dict[str, Any], begun: threading.Event = begun) -> None:
            told.append(message)
            begun.set()

        ask = {
            "port": number, "duration_us": int(PATIENCE_S * 1e6), "idle_us": int(idle_s * 1e6),
            "address": "127.0.0.1", "notify": notify, **more,
        }  # fmt: skip
        done = pool.submit(rm_probe.reflect, ask)
        done.add_done_callback(lambda _, begun=begun: begun.set())  # type: ignore[misc]
        assert begun.wait(PATIENCE_S)
        if told or "Address already in use" not in str(done.exception()):
            return number, done


def end_of_reflecting(port: int, passed: list[float]) -> None:
    """The reflector's time is over, as it sees when something wakes it."""
    passed[0] = 2 * PATIENCE_S
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"", ("127.0.0.1", port))


def probe(kind: str, port: int, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = rm_probe.probe({"kind": kind, "address": "127.0.0.1", "port": port, **more})
    return found


HAS_IPV6 = Path("/proc/sys/net/ipv6/conf/lo/disable_ipv6")


@pytest.mark.parametrize(
    ("allow", "towards", "answered"),
    [
        (["localhost"], "127.0.0.1", True),
        (["localhost"], "localhost", True),
        (["127.0.0.1", "::1"], "::1", True),
        (["nobody.invalid", "127.0.0.2"], "127.0.0.1", False),
    ],
)
def test_hosts_are_let_in_by_name_and_by_any_of_their_addresses(
    allow: list[str], towards: str, answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ":" in towards and not (HAS_IPV6.exists() and HAS_IPV6.read_text() == "0\n"):
        pytest.skip("this machine has no IPv6")
    if not answered:
        monkeypatch.setattr(rm_probe, "LATE_S", 0.1)
    real = socket.getaddrinfo

    def getaddrinfo(name: Any, *words: Any, **more: Any) -> Any:
        if name == "nobody.invalid":  # this machine's name servers are not asked
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(name, *words, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    told: list[dict[str, Any]] = []
    with ThreadPoolExecutor() as pool:
        number, done = reflecting(pool, told, 0.5, address="", allow=allow)
        found = rm_probe.probe(
            {"kind": "rtt", "address": towards, "port": number, "count": 5, "interval_us": 1000}
        )
        assert (found["received"] > 0) is answered
        done.cancel()


def test_a_silent_name_server_keeps_nobody_from_listening(
    monkeypatch: pytest.MonkeyPatch, passed: list[float]
) -> None:
    real, silent, asked = socket.getaddrinfo, threading.Event(), threading.Event()

    def getaddrinfo(name: Any, *words: Any, **more: Any) -> Any:
        if name == "a.example":
            asked.set()
            assert silent.wait(PATIENCE_S)
            name = "127.0.0.1"
        return real(name, *words, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(rm_probe, "LATE_S", 0.1)
    monkeypatch.setattr(rm_probe, "LOOK_UP_S", 0.0)
    told: list[dict[str, Any]] = []
    with ThreadPoolExecutor() as pool:
        number, _ = reflecting(pool, told, allow=["a.example", "127.0.0.2"])
        assert asked.wait(PATIENCE_S)
        assert probe("rtt", number, count=1)["received"] == 0  # nothing is known of 127.0.0.1 yet
        silent.set()
        until(lambda: probe("rtt", number, count=1)["received"], "the name counts once it is known")
        end_of_reflecting(number, passed)


def test_a_port_that_is_taken_is_named(port: int) -> None:
    ask = {"port": port, "duration_us": 1000, "address": "127.0.0.1"}
    with pytest.raises(rm_probe.KernelRefused, match=f"port {port} cannot be listened on: Address already"):
        rm_probe.reflect(ask)


def test_a_reflector_without_descriptors_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", none_left)
    with pytest.raises(rm_probe.KernelRefused, match="port 9 cannot be listened on: Too many open files"):
        rm_probe.reflect({"port": 9, "duration_us": 1000})


def test_everything_over_loopback(port: int) -> None:
    found = probe("oneway", port, count=50, interval_us=500)
    assert (found["received"], found["loss_forward_pct"], found["loss_backward_pct"]) == (50, 0.0, 0.0)
    assert found["rtt_us"]["min"] > 0
    assert abs(found["offset_us"]) <= found["clock_error_us"]  # one clock: the true offset is 0

    def flows() -> dict[str, Any] | None:
        """What a busy machine sends or reads in one piece shows no rate."""
        flow = probe("throughput", port, duration_us=300_000, rate_bps=40_000_000)
        assert flow["bytes"] <= 40_000_000 * 0.3 / 8 + rm_throughput.STREAM_BLOCK
        assert flow["throughput_bps"] == flow["bytes"] * 8_000_000 // max(1, flow["duration_us"])
        return flow if flow["bytes"] else None

    until(flows, "some of a flow is counted")
    assert probe("mtu", port)["mtu_bytes"] > 1500


OVER = b"over"  # to the reflector below: there are no more questions


def reflect_lossy(
    lost: Callable[[int, bool], bool], told: Callable[[], None]
) -> tuple[int, threading.Thread]:
    """A reflector behind a path that loses packet n, there (False) or back (True), as `lost` says; `told` is
    called when it has answered how many questions there were, behind all of them."""
    near, far = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    near.bind(("127.0.0.1", 0))
    far.bind(("127.0.0.1", 0))
    near.settimeout(PATIENCE_S)
    port: int = near.getsockname()[1]

    def answer() -> None:
        arrived = there = back = 0
        with near, far:
            while True:
                data, peer = near.recvfrom(65536)
                if data == OVER:
                    return
                magic, session, number, sent = rm_probe.QUESTION.unpack_from(data)
                there += 1
                if lost(there, False):
                    continue
                arrived += number != rm_probe.HOW_MANY
                at_us = now_us()
                back += 1
                if not lost(back, True):
                    near.sendto(
                        rm_probe.ANSWER.pack(magic, session, number, sent, at_us, at_us, arrived), peer
                    )
                    if number == rm_probe.HOW_MANY:
                        told()

    thread = threading.Thread(target=answer)
    thread.start()
    return port, thread


@pytest.mark.parametrize(
    ("lost", "forward", "backward"),
    [
        (lambda n, back: back and n % 20 > 9, 0.0, 50.0),  # among them the last answers
        (lambda n, back: not back and n <= 5, 25.0, 0.0),
    ],
)
def test_loss_is_told_by_direction_also_when_the_last_answers_are_lost(
    lost: Any, forward: float, backward: float, passed: list[float]
) -> None:
    port, thread = reflect_lossy(lost, lambda: passed.insert(0, 2 * PATIENCE_S))
    found = probe("oneway", port, count=20, interval_us=500)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.sendto(OVER, ("127.0.0.1", port))
    thread.join()
    assert found["loss_forward_pct"] == forward
    assert found["loss_backward_pct"] == pytest.approx(backward)


def test_the_reflector_tells_that_it_was_reached_and_how_often(passed: list[float]) -> None:
    told: list[dict[str, Any]] = []
    with ThreadPoolExecutor(1) as pool:
        number, done = reflecting(pool, told)
        probe("oneway", number, count=7, interval_us=500)
        end_of_reflecting(number, passed)
        assert done.result(PATIENCE_S) == {"answered": 7, "received_bytes": 0}
    assert told == [{"event": "reflecting", "port": number}, {**told[0], "reached": True}]


def test_a_reflector_that_hears_nothing_more_ends() -> None:
    with ThreadPoolExecutor(1) as pool:
        number, done = reflecting(pool, [], idle_s=0.1)
        probe("oneway", number, count=1)
        assert done.result(PATIENCE_S / 2) == {"answered": 1, "received_bytes": 0}


def test_answers_that_came_while_the_prober_stood_still_are_no_loss(
    monkeypatch: pytest.MonkeyPatch, passed: list[float]
) -> None:
    count = 20
    all_asked, still, answered = threading.Event(), threading.Event(), threading.Event()
    real = rm_probe.select.select

    def select(*words: Any) -> Any:
        if all_asked.is_set() and not answered.is_set():
            still.set()
            assert answered.wait(PATIENCE_S)
        return real(*words)

    def reflect() -> None:
        questions = [reflector.recvfrom(65536) for _ in range(count)]
        all_asked.set()
        assert still.wait(PATIENCE_S)
        for n, (question, prober) in enumerate(questions, start=1):
            answer = rm_probe.ANSWER.pack(
                *rm_probe.QUESTION.unpack(question[: rm_probe.QUESTION.size]), 0, 0, n
            )
            reflector.sendto(answer, prober)
        passed[0] = 2 * PATIENCE_S
        answered.set()

    monkeypatch.setattr(rm_probe, "select", SimpleNamespace(select=select))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reflector:
        reflector.bind(("127.0.0.1", 0))
        reflector.settimeout(PATIENCE_S)
        thread = threading.Thread(target=reflect, daemon=True)
        thread.start()
        rows, *numbers = rm_probe.exchange("127.0.0.1", reflector.getsockname()[1], count, 100)
        thread.join(PATIENCE_S)
    assert (len(rows), *numbers) == (count, count, count)


def test_a_prober_that_stood_still_for_long_sends_no_more_to_a_reflector_that_may_have_ended(
    passed: list[float],
) -> None:
    asked = 3

    def reflect() -> None:
        for n in range(1, asked + 1):
            question, prober = reflector.recvfrom(65536)
            words = rm_probe.QUESTION.unpack(question[: rm_probe.QUESTION.size])
            if n == asked:  # the others are due within a minute: the prober stands still for ten
                passed[0] = 10 * PATIENCE_S
            else:
                passed[0] += PATIENCE_S
            reflector.sendto(rm_probe.ANSWER.pack(*words, 0, 0, n), prober)

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reflector:
        reflector.bind(("127.0.0.1", 0))
        reflector.settimeout(PATIENCE_S)
        thread = threading.Thread(target=reflect, daemon=True)
        thread.start()
        interval_us = round(PATIENCE_S * 1e6)
        rows, arrived, sent = rm_probe.exchange("127.0.0.1", reflector.getsockname()[1], 100, interval_us)
        thread.join(PATIENCE_S)
    assert (len(rows), arrived, sent) == (asked, asked, asked)
    found = rm_probe.summarise(rows, sent, arrived)
    assert (found["sent"], found["loss_forward_pct"], found["loss_backward_pct"]) == (asked, 0.0, 0.0)


def test_a_prober_that_stood_still_before_the_first_question_asks_all(
    port: int, passed: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monotonic = rm_probe.time.monotonic

    def still() -> float:
        """Ahead of each look at the clock before the first question the prober stands still."""
        if not asked:
            passed[0] += 10 * PATIENCE_S
        now: float = monotonic()
        return now

    def question(*words: Any) -> bytes:
        asked.append(words)
        return packed(*words)

    asked: list[Any] = []
    packed = rm_probe.QUESTION.pack
    layout = SimpleNamespace(pack=question, size=rm_probe.QUESTION.size)
    monkeypatch.setattr(rm_probe, "QUESTION", layout)
    monkeypatch.setattr(rm_probe.time, "monotonic", still)
    rows, *numbers = rm_probe.exchange("127.0.0.1", port, 3, 100)
    assert (len(rows), *numbers) == (3, 3, 3)


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rm_probe, "LATE_S", 0.0)
    kept = Kept()  # no program listens at it
    found = probe("oneway", kept.number, count=3, interval_us=100)
    assert (found["received"], found["loss_pct"]) == (0, 100.0)
    with pytest.raises(rm_probe.KernelRefused, match="no TCP sink"):
        probe("throughput", kept.number, duration_us=1000)
    kept.close()


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


def now_us() -> int:
    return time.time_ns() // 1000


def test_a_test_in_bursts_keeps_to_its_windows(port: int) -> None:
    begin = now_us() + 60_000
    windows = [[begin - 10_000_000, 20_000], [begin, 20_000], [begin + 60_000, 20_000]]
    found = probe("throughput", port, windows=windows, rate_bps=80_000_000, buffer_bytes=1 << 15)
    assert found["bursts"] <= 2  # the first window had passed; a busy machine may miss another
    if found["bursts"]:
        assert 0 < found["throughput_bps"] == found["bytes"] * 8_000_000 // found["duration_us"]
        assert now_us() >= begin + 20_000
    late = probe("throughput", port, windows=[[begin - 1, 20_000]])
    assert (late["bursts"], late["throughput_bps"]) == (0, 0)


IPERF = {
    "end": {
        "sum_sent": {"bits_per_second": 1.1e9, "retransmits": 7},
        "sum_received": {"bits_per_second": 0.9e9, "bytes": 112_500_000, "seconds": 1.0002},
    }
}


def test_what_iperf_says() -> None:
    found = rm_throughput.read_iperf(json.dumps(IPERF).encode())
    assert found == {
        "throughput_bps": 900_000_000,
        "bytes": 112_500_000,
        "duration_us": 1_000_200,
        "retransmits": 7,
    }
    for text, said in (
        ("", "did not answer in JSON"),
        ('{"error": "unable to connect"}', "unable to connect"),
        ('{"end": {"sum_received": {"bytes": 5}}}', "lacks what was received"),
    ):
        with pytest.raises(rm_throughput.KernelRefused, match=said):
            rm_throughput.read_iperf(text)


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="needs iperf3")
def test_iperf_over_loopback() -> None:
    kept, listening = Kept(), threading.Event()
    number = kept.number
    ask = {"port": number, "duration_us": 9_000_000, "tool": "iperf3", "notify": lambda _: listening.set()}
    thread = threading.Thread(target=rm_probe.reflect, args=(ask,))
    thread.start()
    assert listening.wait(PATIENCE_S)
    found = probe("throughput", number, tool="iperf3", duration_us=1_000_000, rate_bps=20_000_000)
    thread.join()
    kept.close()
    assert 0 < found["throughput_bps"] < 30_000_000  # of which it is told; without it were gigabits
    assert probe("tools", 0)["iperf3"] is True
