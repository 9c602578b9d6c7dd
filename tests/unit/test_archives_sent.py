"""Results go to archives of others: again where one was away, secrets unshown."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rm.adapters.archives.sending import send
from rm.adapters.store.results_memory import MemoryResults
from rm.core.monitoring.archive import Archive, NotKept, Queue, parse_archive
from rm.core.monitoring.outcome import Outcome
from rm.core.monitoring.results import Cursor
from rm.daemon.monitoring.archiving import Archiving
from rm.errors import ConfigError, StoreError
from tests.archive_servers import serving
from tests.archived import MINUTE_US, SECRET, outcome
from tests.cluster import until
from tests.fakes import PATIENCE_S, ManualClock
from tests.pscheduler_schemas import must_be_a_run


class Server:
    """Answers with the next of `statuses`, then with 201; `seen` are (method, path, headers, body)."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.seen: list[tuple[str, str, dict[str, str], Any]] = []
        self.arrived = threading.Semaphore(0)

    def routes(self) -> list[web.RouteDef]:
        return [web.route("*", "/{path:.*}", self.take)]

    async def take(self, request: web.Request) -> web.Response:
        self.seen.append((request.method, request.path, dict(request.headers), await request.json()))
        self.arrived.release()
        return web.Response(status=self.statuses.pop(0) if self.statuses else 201)


def test_a_document_goes_by_its_method_with_the_headers_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "headers.json"
    file.write_text(json.dumps({"Authorization": SECRET, "x-ps-observer": "rm", "X-None": None}))
    server = Server()
    with serving(*server.routes()) as url:
        send(Archive("x", url + "/logstash", op="put", headers_file=str(file)), outcome())
        send(Archive("x", url + "/logstash", op="post"), outcome())
        send(Archive("x", url, kind="opensearch"), outcome())
    assert [(method, path) for method, path, _, _ in server.seen] == [
        ("PUT", "/logstash"), ("POST", "/logstash"), ("POST", "/pscheduler_mtu/_doc")
    ]  # fmt: skip
    headers = server.seen[0][2]
    assert (headers["Authorization"], headers["Content-Type"]) == (SECRET, "application/json")
    assert (headers["x-ps-observer"], "X-None" in headers) == ("rm", False)
    must_be_a_run(server.seen[0][3])


@pytest.mark.parametrize(
    ("status", "again"), [(500, True), (429, True), (401, True), (400, False), (302, False)]
)
def test_a_refusal_says_whether_to_try_again_and_shows_no_secret(
    tmp_path: Path, status: int, again: bool
) -> None:
    file = tmp_path / "headers.json"
    file.write_text(json.dumps({"Authorization": SECRET}))
    with serving(*Server(status).routes()) as url, pytest.raises(NotKept) as refused:
        send(Archive("x", url + "/token-1234", headers_file=str(file)), outcome())
    said = str(refused.value)
    assert (refused.value.again, said) == (
        again,
        f"Archive x at 127.0.0.1 answered with HTTP status {status}.",
    )


@pytest.mark.parametrize("content", ["[]", "{", '{"a": "b\\r\\nc: d"}'])
def test_a_file_of_headers_that_is_none_is_said_without_its_content(tmp_path: Path, content: str) -> None:
    file = tmp_path / "headers.json"
    file.write_text(content)
    with pytest.raises(NotKept, match=r"archive x (is not JSON|does not map names)") as refused:
        send(Archive("x", "http://127.0.0.1:9", headers_file=str(file)), outcome())
    assert refused.value.again  # its administrator may mend it


def test_headers_in_place_of_their_files_name_are_never_shown() -> None:
    with pytest.raises(NotKept, match="headers_file of archive x cannot be read: No such file") as refused:
        send(Archive("x", "http://127.0.0.1:9", headers_file="Authorization: Bearer s3cr3t"), outcome())
    assert "s3cr3t" not in str(refused.value)


def test_an_archive_that_is_away_is_tried_again_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from rm.daemon.monitoring import archiving as module

    monkeypatch.setattr(module, "REST_S", 0.0)
    server, clock = Server(503), ManualClock()
    with serving(*server.routes()) as url:
        archive = Archive("x", url, retry_policy=((3, 0),))
        archiving = Archiving(
            archives=[archive, replace(archive, name="y", meshes=("other",))],
            malformed=(),
            send=send,
            clock=clock,
            results=MemoryResults(),
        )
        archiving.start()
        archiving.keep([outcome()])
        for _ in range(2):
            assert server.arrived.acquire(timeout=PATIENCE_S)
        archiving.keep([outcome("other", "it failed")])
        archiving.close()
    row = archiving.rows()["archives"][0]
    assert (row["name"], row["host"], row["dropped"], row["waiting"]) == ("x", "127.0.0.1", 0, 0)
    assert [archiving.takes(mesh) for mesh in ("all", "other")] == [True, True]
    assert len(server.seen) == 2  # the other archive takes no failed run
    assert server.seen[0][3]["id"] == server.seen[1][3]["id"]


class Gate:
    """An archive that takes results while it is `open`."""

    def __init__(self) -> None:
        self.open = True
        self.got: list[tuple[str, int]] = []
        self.tried = threading.Semaphore(0)

    def send(self, archive: Archive, outcome: Outcome) -> None:
        try:
            if not self.open:
                raise NotKept(f"{archive.name} is away.")
            self.got.append((archive.name, outcome.begun_us))
        finally:
            self.tried.release()

    def until(self, count: int) -> None:
        for _ in range(count):
            assert self.tried.acquire(timeout=PATIENCE_S)


def archives_over(results: MemoryResults, gate: Gate, *archives: Archive, clock: ManualClock) -> Archiving:
    made = Archiving(archives=archives, malformed=(), send=gate.send, clock=clock, results=results)
    made.start()
    return made


def until_idle(archiving: Archiving) -> None:
    until(lambda: all(not row["waiting"] for row in archiving.rows()["archives"]), "nothing waits")


def test_what_waits_is_sent_by_the_next_leader_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    from rm.daemon.monitoring import archiving as module

    monkeypatch.setattr(module, "REST_S", 0.0)
    results, gate, clock = MemoryResults(), Gate(), ManualClock()
    x, y = Archive("x", "http://x"), Archive("y", "http://y", meshes=("other",))
    first = archives_over(results, gate, x, y, clock=clock)
    first.keep([outcome(at_us=1), outcome("other", at_us=2)])
    gate.until(3)
    until_idle(first)
    gate.open = False
    first.keep([outcome(at_us=3), outcome(at_us=4)])
    gate.until(2)
    until(lambda: results.cursors()["x"].left == (3, 4), "it is durable that two are left")
    first.close()  # as if it had been killed: nothing more is noted
    first.keep([outcome(at_us=5)])
    gate.open = True
    second = archives_over(results, gate, x, y, clock=clock)
    gate.until(3)
    until_idle(second)
    assert [at_us for name, at_us in gate.got if name == "x"] == [1, 2, 3, 4, 5]
    assert [at_us for name, at_us in gate.got if name == "y"] == [2]
    assert [row["dropped"] for row in second.rows()["archives"]] == [0, 0]
    until(lambda: results.cursors() == {"x": Cursor(5), "y": Cursor(5)}, "all is settled")
    second._prune()
    assert results.after(0, 9) == ([], 0)
    second.close()


def test_a_new_archive_gets_what_is_found_from_now_on() -> None:
    results, gate, clock = MemoryResults(), Gate(), ManualClock()
    results.add([outcome(at_us=1)])
    archiving = archives_over(results, gate, Archive("x", "http://x"), clock=clock)
    archiving.keep([outcome(at_us=2)])
    gate.until(1)
    archiving.close()
    assert gate.got == [("x", 2)]
    archives_over(results, gate, clock=clock).close()
    assert results.cursors() == {}  # it is no more


def test_what_a_malformed_archive_is_still_to_get_stays_until_it_is_mended() -> None:
    results, gate, clock = MemoryResults(), Gate(), ManualClock()
    results.add([outcome(at_us=n) for n in (1, 2, 3)])
    for name, cursor in (("x", Cursor(3)), ("y", Cursor(3, (2,)))):
        results.put_cursor(name, cursor)
    x, y = Archive("x", "http://x"), Archive("y", "http://y")
    wrong = [("y", "url: it is none."), ("new", "It has no url.")]
    without = Archiving(archives=[x], malformed=wrong, send=gate.send, clock=clock, results=results)
    without.start()
    without._prune()
    without.close()
    archiving = archives_over(results, gate, x, y, clock=clock)
    gate.until(1)
    until_idle(archiving)
    archiving.close()
    assert gate.got == [("y", 2)]


def test_of_more_than_may_wait_the_oldest_are_given_up() -> None:
    results, gate, clock = MemoryResults(), Gate(), ManualClock()
    archive = Archive("x", "http://x", queue=3)
    results.put_cursor("x", Cursor(1))
    results.add([outcome(at_us=n) for n in range(1, 8)])
    archiving = archives_over(results, gate, archive, clock=clock)
    gate.until(3)
    until_idle(archiving)
    assert [at_us for _, at_us in gate.got] == [5, 6, 7]
    assert archiving.rows()["archives"][0]["dropped"] == 3
    archiving.close()


def test_how_far_an_archive_has_got_is_not_put_together_for_each_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rm.daemon.monitoring import archiving as module

    monkeypatch.setattr(module, "NOTE_S", 1e9)
    looks, numbers = [0], Queue.numbers

    def counted(queue: Queue) -> tuple[int, ...]:
        looks[0] += 1
        return numbers(queue)

    monkeypatch.setattr(Queue, "numbers", counted)
    results, gate, clock = MemoryResults(), Gate(), ManualClock()
    results.put_cursor("x", Cursor(0))
    results.add([outcome(at_us=n) for n in range(1, 201)])
    archiving = archives_over(results, gate, Archive("x", "http://x"), clock=clock)
    gate.until(200)
    until(lambda: results.cursors() == {"x": Cursor(200)}, "all is settled")
    archiving.close()
    assert looks[0] < 20


class Meanwhile(MemoryResults):
    """`then` happens while the first reading is answered."""

    then: Callable[[], None] | None = None

    def after(self, number: int, limit: int) -> tuple[list[tuple[int, Outcome]], int]:
        found = super().after(number, limit)
        then, self.then = self.then, None
        if then is not None:
            then()
        return found


def test_what_is_found_while_the_store_is_read_is_not_passed_over() -> None:
    results, gate, clock = Meanwhile(), Gate(), ManualClock()
    results.put_cursor("x", Cursor(0))
    results.add([outcome(at_us=n) for n in (1, 2, 3)])
    results.prune(4, 9, 1 << 20)
    archiving = Archiving(
        archives=[Archive("x", "http://x")], malformed=(), send=gate.send, clock=clock, results=results
    )
    results.then = lambda: archiving.keep([outcome(at_us=4)])
    archiving.start()
    gate.until(1)
    until_idle(archiving)
    archiving.close()
    row = archiving.rows()["archives"][0]
    assert (gate.got, row["dropped"]) == ([("x", 4)], 3)


class Damaged(MemoryResults):
    """The first 150 results cannot be read."""

    def after(self, number: int, limit: int) -> tuple[list[tuple[int, Outcome]], int]:
        found, last = super().after(number, limit)
        return [one for one in found if one[0] > 150], last


def test_results_that_cannot_be_read_hide_none_that_can() -> None:
    results, gate, clock = Damaged(), Gate(), ManualClock()
    results.put_cursor("x", Cursor(0))
    results.add([outcome(at_us=n) for n in range(1, 153)])
    archiving = archives_over(results, gate, Archive("x", "http://x"), clock=clock)
    gate.until(2)
    until_idle(archiving)
    archiving.close()
    assert gate.got == [("x", 151), ("x", 152)]
    assert archiving.rows()["archives"][0]["dropped"] == 150


def test_a_new_archive_counts_nothing_that_was_forgotten_before() -> None:
    results, gate, clock = MemoryResults(), Gate(), ManualClock()
    results.add([outcome(at_us=n) for n in range(1, 501)])
    results.prune(501, 9, 1 << 20)
    archiving = archives_over(results, gate, Archive("x", "http://x", queue=100), clock=clock)
    archiving.keep([outcome(at_us=501)])
    gate.until(1)
    until_idle(archiving)
    archiving.close()
    assert (gate.got, archiving.rows()["archives"][0]["dropped"]) == ([("x", 501)], 0)


class Away(MemoryResults):
    """A database that takes nothing."""

    def add(self, outcomes: Iterable[Outcome]) -> int:
        raise StoreError("It is away.")


def test_without_a_database_results_wait_in_memory() -> None:
    gate, clock = Gate(), ManualClock()
    archiving = archives_over(Away(), gate, Archive("x", "http://x"), clock=clock)
    archiving.keep([outcome(at_us=7)])
    gate.until(1)
    archiving.close()
    assert gate.got == [("x", 7)]


class Blinking(MemoryResults):
    """A database that is away for the first `times` readings of what is left."""

    times = 2

    def some(self, numbers: Collection[int]) -> list[tuple[int, Outcome]]:
        self.times -= 1
        if self.times >= 0:
            raise StoreError("It is away.")
        return super().some(numbers)


def test_a_database_that_blinks_at_the_start_delays_archives_and_ends_no_daemon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rm.daemon.monitoring import archiving as module

    monkeypatch.setattr(module, "REST_S", 0.01)
    results, gate, clock = Blinking(), Gate(), ManualClock()
    results.add([outcome(at_us=n) for n in (1, 2, 3)])
    results.put_cursor("x", Cursor(2, (1,)))
    archiving = archives_over(results, gate, Archive("x", "http://x"), clock=clock)
    archiving.keep([outcome(at_us=4)])
    gate.until(3)
    until_idle(archiving)
    archiving.close()
    assert sorted(gate.got) == [("x", 1), ("x", 3), ("x", 4)]
    assert archiving.rows()["archives"][0]["dropped"] == 0


def test_a_malformed_archive_is_named_with_what_to_write() -> None:
    good = parse_archive(
        {"name": "c", "url": "https://ma.example.org/logstash/", "op": "post", "runs": "all", "timeout": "5s",
         "retry_policy": [{"attempts": 2, "wait": "1m"}], "ttl": "1d", "meshes": ["latency"]}
    )  # fmt: skip
    assert (good.url, good.retry_policy) == ("https://ma.example.org/logstash", ((2, MINUTE_US),))
    for wrong, said in (
        ({"url": "https://user:pw@x/"}, "url: The address has more than host and path"),
        ({"url": "http://[1.2]/"}, "url: It is not an address of an archive"),
        ({"url": "http://x:65536/"}, "url: It is not an address of an archive"),
        ({"url": "http://a\u2100b/"}, "url: It is not an address of an archive"),
        ({"op": "get"}, "op: 'get' is not one of put, post."),
        ({"retry_policy": [{"attempts": 2}]}, "has not just 'attempts' and 'wait'"),
        ({"headers": {}}, "has no key 'headers'"),
        ({"queue": 0}, "queue: 0 is not a whole number"),
    ):
        with pytest.raises(ConfigError, match=said):
            parse_archive({"name": "c", "url": "https://x"} | wrong)
