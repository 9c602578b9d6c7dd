"""What hostile clients of the API's socket come up against, and that nobody else notices."""

import gzip
import http.client
import json
import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from rm.adapters.hosts.pace import Pace
from rm.client.connection import Connection
from rm.config import Config, DaemonConfig, JobsConfig, LimitsConfig
from rm.core.store import Lease
from rm.errors import LimitReached, Standby
from rm.web import wire
from rm.web.callers.shares import FEW, PATIENCE_S, RESERVED, SPARE, Shares
from rm.web.doors import door, limits, malformed
from tests.fake_service import Daemon, serving
from tests.standing_by import standing_by
from tests.unit.test_web_api import SPEC, call

HEAD = b"GET /v1/status HTTP/1.1\r\nHost: rm\r\n"
POST = b"POST /v1/jobs HTTP/1.1\r\nHost: rm\r\nConnection: close\r\n"


@pytest.fixture
def daemon_of_all(tmp_path: Path) -> Iterator[Daemon]:
    """It keeps tokens, and looks for alerts."""
    with serving(tmp_path / "rm.sock") as daemon:
        daemon.service.tokens = daemon.service.alerting = object()
        yield daemon


class ManualClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def limited(folder: Path, monkeypatch: pytest.MonkeyPatch, **values: Any) -> Iterator[Daemon]:
    """A daemon to which whoever runs the tests is one user among others."""
    config = Config(jobs=JobsConfig(run_root_as="rmjob"), limits=LimitsConfig(**values))
    monkeypatch.setattr(limits.os, "geteuid", lambda: -5)
    monkeypatch.setattr(limits.Limits, "_key", lambda self, request, peer: peer)
    with serving(folder / "rm.sock", config) as daemon:
        yield daemon


def connected(daemon: Daemon) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(30)
    made.connect(daemon.socket)
    return made


def ends(connection: socket.socket) -> bytes:
    """What the daemon says before it closes the connection."""
    said = b""
    try:
        while data := connection.recv(1 << 16):
            said += data
    except ConnectionResetError:
        pass
    return said


def hears(connection: socket.socket, words: bytes) -> bytes:
    """What the daemon says up to these words: it may keep the connection for what is under way."""
    said = b""
    while words not in said:
        data = connection.recv(1 << 16)
        assert data, said
        said += data
    return said


# -- the arithmetic


def test_a_user_is_slowed_down_then_refused_and_recovers() -> None:
    clock = ManualClock()
    shares = Shares(LimitsConfig(requests_per_s=10, request_burst=5), 10_000, clock)
    assert [shares.take(1) for _ in range(5)] == [0.0] * 5
    waits = [shares.take(1) for _ in range(50)]
    assert (round(waits[0], 3), round(waits[-1], 3)) == (0.1, PATIENCE_S)
    with pytest.raises(LimitReached) as refused:
        shares.take(1)
    assert 5.0 < refused.value.retry_after_s < 5.2
    assert shares.take(2) == 0.0  # another user
    clock.now_s += 5.0
    assert round(shares.take(1), 3) == 0.1
    clock.now_s += 1_000.0
    assert [shares.take(1) for _ in range(6)][-2:] == [0.0, pytest.approx(0.1)]


def test_long_bodies_and_answers_count_for_many_requests() -> None:
    shares = Shares(LimitsConfig(requests_per_s=10, request_burst=100), 10_000, ManualClock())
    shares.take(1)
    shares.charge(1, 64 << 20)
    with pytest.raises(LimitReached):
        shares.take(1)


def test_a_few_descriptors_are_kept_for_users_who_have_few_connections() -> None:
    shares = Shares(LimitsConfig(connections=1_000), RESERVED + SPARE + 100)
    greedy, friend, honest = 1, 2, 3
    assert [shares.arrive(greedy) for _ in range(51)] == [True] * 50 + [False]
    assert [shares.arrive(friend) for _ in range(51)] == [True] * 50 + [False]
    assert [shares.arrive(honest) for _ in range(FEW + 1)] == [True] * FEW + [False]
    shares.leave(greedy)
    assert not shares.arrive(greedy)  # the honest one has that room now
    for _ in range(FEW):
        shares.leave(honest)
    assert shares.arrive(greedy)


def test_strangers_take_no_room_from_users_however_many_addresses_they_have() -> None:
    room = 200
    shares = Shares(LimitsConfig(connections=1_000), RESERVED + SPARE + room)
    strangers = [f"2001:db8:0:{n:x}::/64" for n in range(1_000)]
    assert sum(shares.arrive(one) for one in strangers) == room // 2 + SPARE
    assert sum(shares.arrive(1) for _ in range(room)) == room // 2 - SPARE
    assert shares.arrive(2)
    shares.leave(strangers[0])
    assert shares.arrive(strangers[-1])


def test_who_connects_without_end_is_turned_away_for_a_while() -> None:
    clock = ManualClock()
    given = LimitsConfig(connections=100, requests_per_s=10, request_burst=50)
    shares = Shares(given, 10_000, clock, privileged=frozenset({0}))

    def connected(user: int) -> bool:
        there = shares.arrive(user)
        if there:
            shares.leave(user)
        return there

    assert [connected(1) for _ in range(201)] == [True] * 200 + [False]
    assert connected(2)
    assert all(connected(0) for _ in range(1_000))
    clock.now_s += 1.0
    assert [connected(1) for _ in range(21)] == [True] * 20 + [False]


def test_an_address_connects_at_a_bounded_rate_and_is_forgotten_when_it_is_as_a_new_one() -> None:
    clock = ManualClock()
    given = LimitsConfig(connections=100, requests_per_s=10, request_burst=50)
    shares = Shares(given, 10_000, clock)

    def connected(address: str) -> bool:
        there = shares.arrive(address)
        if there:
            shares.leave(address)
        return there

    assert [connected("192.0.2.1") for _ in range(201)] == [True] * 200 + [False]
    assert all(connected(f"198.51.100.{n}") for n in range(200))
    assert len(shares) == 201
    clock.now_s += 9.0
    shares.forget()
    assert len(shares) == 1  # who has come without end is remembered
    assert [connected("192.0.2.1") for _ in range(181)] == [True] * 180 + [False]
    clock.now_s += 10.0
    shares.forget()
    assert len(shares) == 0


# -- on the socket


def test_a_user_has_a_bounded_number_of_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with limited(tmp_path, monkeypatch, connections=5) as daemon, ExitStack() as stack:
        idle = [stack.enter_context(connected(daemon)) for _ in range(5)]
        for _ in range(20):
            with connected(daemon) as sixth:
                assert b"LimitReached" in ends(sixth)
        client = Connection(daemon.socket)
        told = threading.Timer(0.2, idle[0].close)
        told.start()
        assert "daemon" in client.get("status")  # the command line waits for its turn
        client.close()
        told.join()


def test_others_connect_while_one_user_has_all_that_one_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = [1234]
    monkeypatch.setattr(door, "peer_uid", lambda peer: uid[0])
    with limited(tmp_path, monkeypatch, connections=5) as daemon, ExitStack() as stack:
        for _ in range(6):
            last = stack.enter_context(connected(daemon))
        assert b" 429 " in ends(last)
        uid[0] = 4321
        assert call(daemon, "GET", "/v1/status")[0] == 200


@pytest.mark.parametrize("said", [b"", HEAD + b"X-Slow: ", HEAD + b"\r\n"])
def test_a_connection_that_says_nothing_more_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(door, "SWEEP_S", 0.02)
    whole = said.endswith(b"\r\n\r\n")  # it comes in time
    header_s = 60.0 if whole else 0.1
    with limited(tmp_path, monkeypatch, header_s=header_s, idle_s=0.1) as daemon, ExitStack() as stack:
        connection = stack.enter_context(connected(daemon))
        with suppress(BrokenPipeError, ConnectionResetError):  # it is over already
            connection.sendall(said)
        assert ends(connection).startswith(b"HTTP/1.1 200 OK") == whole


def test_a_header_that_comes_byte_by_byte_gains_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "SWEEP_S", 0.02)
    with limited(tmp_path, monkeypatch, header_s=0.5, idle_s=60.0) as daemon, connected(daemon) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # it is over already
            connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        stop = threading.Event()

        def drip() -> None:
            try:
                while not stop.wait(0.01):
                    connection.sendall(b"x")
            except OSError:
                pass

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert ends(connection) == b""
        finally:
            stop.set()
            dripping.join()


def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = b""
    with limited(tmp_path, monkeypatch, header_s=0.5) as daemon:
        while b"came too slowly" not in said:  # a head that itself comes too late is not answered
            assert said == b""
            with connected(daemon) as connection, suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: rm\r\nContent-Length: 50\r\n\r\n{")
                while b"came too slowly" not in said and (data := connection.recv(1 << 16)):
                    said += data


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_has_a_bounded_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunked: bool) -> None:
    with limited(tmp_path, monkeypatch, body_bytes=1000) as daemon, connected(daemon) as connection:
        if chunked:
            head, body = b"Transfer-Encoding: chunked", b"7d0\r\n" + b" " * 2000 + b"\r\n0\r\n\r\n"
        else:
            head, body = b"Content-Length: 1000000000000", b""
        connection.sendall(POST + head + b"\r\n\r\n" + body)
        said = hears(connection, b"larger than 1000 bytes")
        assert b" 413 " in said.splitlines()[0]


def test_a_compressed_body_is_refused_before_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it grows to would count for nobody."""
    grown = b" " * (4 << 20)
    with limited(tmp_path, monkeypatch, bytes_under_way=1 << 16) as daemon:
        for method, path in (("POST", "/v1/jobs"), ("POST", "/v1/tokens"), ("DELETE", "/v1/jobs")):
            status, told = call(
                daemon, method, path, raw=gzip.compress(grown), headers={"Content-Encoding": "gzip"}
            )
            assert (status, told["error"]["kind"]) == (400, "UsageError")
            assert "compressed" in told["error"]["message"]
        told = {"Content-Encoding": "identity"}
        assert call(daemon, "POST", "/v1/jobs", {"spec": SPEC}, headers=told)[0] == 201


@pytest.mark.parametrize("path", ["tokens", "hosts/h1/drain", "network/measure", "alerts/silences"])
def test_no_long_body_is_read_in_the_event_loop_but_for_what_needs_one(
    daemon_of_all: Daemon, path: str
) -> None:
    status, told = call(daemon_of_all, "POST", f"/v1/{path}", raw=b'{"name":[' + b"[]," * (1 << 20) + b"[]]}")
    assert (status, told["error"]["kind"]) == (400, "UsageError")
    assert "this one may have" in told["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/hosts", {"hosts": [{"name": f"h{n}", "cpus": 1, "mem_bytes": 1} for n in range(3_000)]}),
        ("/v1/jobs", {"specs": [{**SPEC, "comment": "c" * 2_000}] * 50}),
        ("/v1/alerts/silences", {"comment": "c" * 100_000}),
        ("/v1/alerts/acknowledge", {"comment": "c" * 100_000}),
        ("/v1/reservations", {"name": "c" * 100_000}),
        ("/v1/reservations/r", {"name": "c" * 100_000}),
        ("/v1/playbooks/drain/start", {"limit": "c" * 100_000}),
        ("/v1/channels/h1/steps", {"kind": "c" * 100_000}),
    ],
)
def test_what_may_be_long_is_taken_apart_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    seen: set[str] = set()

    def noting(decode: Any) -> Any:
        def noted(body: Any, *more: Any) -> Any:
            seen.add(threading.current_thread().name)
            return decode(body, *more)

        return noted

    monkeypatch.setattr(wire, "decode", noting(wire.decode))
    monkeypatch.setattr(wire, "submission", noting(wire.submission))
    with serving(tmp_path / "rm.sock") as daemon:
        daemon.service.alerting = daemon.service.playbooks = daemon.service.steps = object()
        loop: list[str] = []
        daemon.loop.call_soon_threadsafe(lambda: loop.append(threading.current_thread().name))
        call(daemon, "POST", path, body)
    assert seen
    assert seen.isdisjoint(loop)


def test_bodies_under_way_are_bounded_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: rm\r\nContent-Length: 600\r\n\r\n"
    with limited(tmp_path, monkeypatch, bytes_under_way=1000) as daemon, connected(daemon) as first:
        first.sendall(head)
        while call(daemon, "POST", "/v1/jobs", raw=b" " * 600)[0] != 429:
            pass  # the first may not have been read yet
        first.sendall(b" " * 600)
        assert first.recv(1000).startswith(b"HTTP/1.1 400")
        assert call(daemon, "POST", "/v1/jobs", {"spec": SPEC})[0] == 201


def test_a_user_reads_a_bounded_number_of_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with limited(tmp_path, monkeypatch, followers=2) as daemon, ExitStack() as stack:
        call(daemon, "POST", "/v1/jobs", {"spec": SPEC})
        for _ in range(2):
            follower = stack.enter_context(connected(daemon))
            follower.sendall(b"GET /v1/jobs/1/logs?follow=1 HTTP/1.1\r\nHost: rm\r\n\r\n")
            assert follower.recv(1000).startswith(b"HTTP/1.1 200")
        connection = http.client.HTTPConnection("rm")
        connection.sock = connected(daemon)
        connection.request("GET", "/v1/jobs/1/logs?follow=1")
        response = connection.getresponse()
        assert (response.status, response.getheader("Retry-After")) == (429, "5")
        assert "reading 2 logs" in json.loads(response.read())["error"]["message"]
        connection.close()


def test_a_flood_of_requests_is_refused_with_the_time_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REFUSE_S", 0.0)
    with limited(tmp_path, monkeypatch, requests_per_s=0.001, request_burst=3) as daemon:
        assert [call(daemon, "GET", "/v1/status")[0] for _ in range(5)] == [200, 200, 200, 429, 429]


def test_the_command_line_waits_as_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REFUSE_S", 0.0)
    monkeypatch.setattr("rm.web.callers.shares.PATIENCE_S", 0.0)
    clock, waited = ManualClock(), list[float]()
    monkeypatch.setattr(limits, "Shares", partial(Shares, clock=clock))

    def wait(seconds: float) -> None:
        waited.append(seconds)
        clock.now_s += seconds

    with limited(tmp_path, monkeypatch, requests_per_s=0.5, request_burst=1) as daemon:
        client = Connection(daemon.socket)
        monkeypatch.setattr("rm.client.connection.time", SimpleNamespace(monotonic=monotonic, sleep=wait))
        assert all("daemon" in client.get("status") for _ in range(3))
        assert waited == [2.0, 2.0]
        client.close()


def test_root_and_the_daemons_user_are_not_slowed_down_but_those_they_ask_for(tmp_path: Path) -> None:
    config = Config(
        jobs=JobsConfig(run_root_as="rmjob"), limits=LimitsConfig(requests_per_s=0.001, request_burst=2)
    )
    with serving(tmp_path / "rm.sock", config) as daemon:
        assert {call(daemon, "GET", "/v1/status")[0] for _ in range(10)} == {200}


def test_without_descriptors_connections_are_turned_away_and_the_log_is_not_flooded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with limited(tmp_path, monkeypatch) as daemon, ExitStack() as stack:
        clients = [socket.socket(socket.AF_UNIX) for _ in range(20)]
        for client in clients:
            stack.enter_context(client).settimeout(30)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, before[1]))
        taken: list[int] = []
        try:
            with suppress(OSError):  # until no descriptor is left
                while True:
                    taken.append(os.dup(0))
            for client in clients:
                client.connect(daemon.socket)
                assert b" 429 " in ends(client)
        finally:
            for fd in taken:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert call(daemon, "GET", "/v1/status")[0] == 200
    assert [r.getMessage() for r in caplog.records] == [
        "connections cannot be accepted: Too many open files (1 times)"
    ]


def refused(path: str) -> str:
    """What a waiting daemon says, as soon as there is room for one more connection."""
    while True:
        client = Connection(path, patience_s=0)
        try:
            client.get("status")
        except LimitReached:
            continue
        except Standby as error:
            return str(error)
        finally:
            client.close()


def test_at_a_waiting_daemon_a_user_has_a_bounded_number_of_connections_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs its descriptors when it takes over."""
    monkeypatch.setattr(door, "SWEEP_S", 0.02)
    path = str(tmp_path / "standby.sock")

    def silent(stack: ExitStack) -> socket.socket:
        made = stack.enter_context(socket.socket(socket.AF_UNIX))
        made.settimeout(60)
        made.connect(path)
        return made

    def config(header_s: float) -> Config:
        limits = LimitsConfig(connections=5, header_s=header_s)
        return Config(daemon=DaemonConfig(socket=path), limits=limits)

    with standing_by(config(header_s=600), Lease), ExitStack() as stack:
        here = [silent(stack) for _ in range(5)]
        assert b" 429 " in ends(silent(stack))
        here.pop().close()
        assert "waits for its turn" in refused(path)
    with standing_by(config(header_s=0.1), Lease), ExitStack() as stack:
        here = [silent(stack) for _ in range(5)]
        with suppress(BrokenPipeError, ConnectionResetError):  # it is over already
            here[0].sendall(HEAD)
        assert [ends(one) for one in here] == [b""] * 5


def test_what_is_no_http_is_a_few_short_records_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(malformed.malformed, "_pace", Pace(3, 0.0))
    with limited(tmp_path, monkeypatch) as daemon:
        for _ in range(10):
            with connected(daemon) as connection:
                connection.sendall(HEAD + b"X: \x00 ERROR rm: forged\r\n\r\n")
                assert b" 400 " in ends(connection)
    found = [record for record in caplog.records if record.name == "aiohttp.server"]
    assert len(found) == 3
    for record in found:
        assert record.getMessage().startswith("a request is no HTTP: ")
        assert record.getMessage().isprintable()
        assert (record.exc_info, record.levelname) == (None, "WARNING")
