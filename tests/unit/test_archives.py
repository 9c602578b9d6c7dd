"""Results go to archives of others: as pScheduler's documents, again where one was away, secrets unshown."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from rm.adapters import sources
from rm.adapters.archives.opensearch import index_of, kept_of
from rm.adapters.archives.pscheduler import document_of, record_of
from rm.adapters.archives.sending import send
from rm.adapters.store.results_memory import MemoryResults
from rm.core.monitoring.archive import Archive, NotKept, Queue, Waiting, parse_archive
from rm.core.monitoring.mesh import Mesh, parse_mesh
from rm.core.monitoring.outcome import Outcome
from rm.core.monitoring.results import Cursor
from rm.core.monitoring.source import Source
from rm.daemon.monitoring.archiving import Archiving
from rm.errors import ConfigError, StoreError
from tests import builders
from tests.archive_servers import OpenSearch, serving
from tests.cluster import until
from tests.fakes import PATIENCE_S, ManualClock
from tests.pscheduler_schemas import RECORD_OF, misfit, must_be_a_run, must_fit
from tests.unit.test_monitor import House, Prober

DNS = parse_mesh({"name": "dns", "tests": ["dns"], "query": "www.example.org", "nameserver": "10.0.0.53"})
HTTP = parse_mesh({"name": "http", "tests": ["http"], "url": "http://10.0.0.9/status?a=b", "contains": "up"})
PAIRS = Mesh("all", tests=("latency", "throughput", "mtu", "trace", "clock"), packets=100)
MINUTE_US = 60_000_000
SECRET = "Basic c2VjcmV0"


class Kept:
    """An archive in memory; `only`: the meshes that it takes."""

    def __init__(self, only: str = "") -> None:
        self.outcomes: list[Outcome] = []
        self.only = only

    def takes(self, mesh: str) -> bool:
        return self.only in ("", mesh)

    def keep(self, outcomes: Iterable[Outcome]) -> None:
        self.outcomes += outcomes


def measured(*meshes: Mesh, agents: Prober | None = None) -> list[Outcome]:
    """What runs of these meshes hand to an archive."""
    kept, prober = Kept(), agents or Prober()
    prober.oneway |= {
        "offset_us": -250,
        "forward_histogram": [(280, 40), (300, 59)], "backward_histogram": [(-1, 1), (310, 49)],
    }  # fmt: skip
    prober.itself = "10.0.0.2"
    prober.services |= {
        "dns": {"time_us": 2_500, "records": ["192.0.2.7"], "nameserver": "10.0.0.53"},
        "http": {"time_us": 40_000, "status": 200, "found": True},
    } if agents is None else {}  # fmt: skip
    house = House(*meshes, agents=prober, archives=kept)
    for mesh in meshes:
        house.monitor.run(mesh.name)
    return kept.outcomes


def test_every_test_makes_a_document_that_fits_pschedulers_schemas() -> None:
    outcomes = measured(PAIRS, DNS, HTTP)
    documents = [document_of(outcome) for outcome in outcomes]
    for document in documents:
        must_be_a_run(json.loads(json.dumps(document)))
    assert {d["test"]["type"] for d in documents} == {*PAIRS.tests, "dns", "http"}
    assert len({d["id"] for d in documents}) == len(documents) == 2 * 5 + 2 * 2
    ends = {(d["test"]["spec"]["source"], d["test"]["spec"]["dest"]) for d in documents[:10]}
    assert ends == {("a.test", "b.test"), ("b.test", "a.test")}


def test_a_schema_notices_what_does_not_fit() -> None:
    document = document_of(measured(PAIRS)[0])
    for broken in (
        document | {"id": "7"},
        document | {"result": document["result"] | {"histogram-latency": {"fast": 1}}},
        document | {"result": document["result"] | {"packets-sent": -1}},
        document | {"test": {"type": "latency", "spec": {"source": "a"}}},
    ):
        with pytest.raises(misfit()):
            must_be_a_run(broken)


def test_the_numbers_are_in_the_units_of_pscheduler() -> None:
    found = {(o.test, o.source.name): document_of(o)["result"] for o in measured(PAIRS, DNS, HTTP)}
    there = found["latency", "a"]
    assert there["histogram-latency"] == {"0.28": 40, "0.30": 59}  # milliseconds
    assert (there["packets-sent"], there["packets-lost"], there["max-clock-error"]) == (100, 1, 0.04)
    back = found["latency", "b"]  # 99 questions arrived, and half of the answers did
    assert back["packets-sent"] - back["packets-lost"] == back["packets-received"] == 49
    assert back["histogram-latency"] == {"0.00": 1, "0.31": 49}
    assert found["throughput", "a"]["summary"]["summary"] == {
        "throughput-bits": 900.0, "throughput-bytes": 112.5
    }  # fmt: skip
    assert (found["mtu", "a"]["mtu"], found["mtu", "b"]["mtu"]) == (1500, 9000)
    assert [hop["ip"] for hop in found["trace", "a"]["paths"][0]] == ["10.0.0.1", "10.0.0.2"]
    clock = found["clock", "a"]
    assert (clock["difference"], clock["local"]["synchronized"]) == ("PT0.00025S", True)
    assert (found["dns", "a"]["record"], found["dns", "a"]["time"]) == (["192.0.2.7"], "PT0.0025S")
    assert (found["http", "b"]["status"], found["http", "b"]["found"]) == (200, True)


def test_what_failed_says_why() -> None:
    agents = Prober()
    agents.services |= {
        "dns": {"time_us": 5, "error": "NXDOMAIN"},
        "http": {"time_us": 6, "status": 503, "error": "status 503"},
    }  # fmt: skip
    agents.dumb = {"a", "b"}
    outcomes = measured(PAIRS, agents=agents)
    agents.dumb = set()
    outcomes += measured(DNS, HTTP, agents=agents)
    assert all(outcome.failed for outcome in outcomes if outcome.test != "trace")
    for outcome in outcomes:
        must_be_a_run(document_of(outcome))
    said = {o.test: document_of(o)["result"].get("error") for o in outcomes}
    assert said["dns"] == "dns: a of www.example.org at 10.0.0.53: NXDOMAIN"
    assert said["http"] == "http: http://10.0.0.9/status: status 503"
    assert said["mtu"] == "mtu: a is gone."


def test_what_rm_takes_for_impossible_goes_to_no_archive_as_a_result() -> None:
    agents = Prober()
    impossible = {"min": 280, "median": 10**14, "p95": 10**14, "max": 10**14}
    agents.oneway["forward_us"] = impossible
    outcomes = measured(Mesh("all", tests=("latency",), packets=100), agents=agents)
    said = {one.source.name: (one.failed, dict(one.found)) for one in outcomes}
    assert said["b"][0] == ""
    assert "impossible" in said["a"][0]
    assert said["a"][1] == {}


@pytest.mark.parametrize(
    ("kind", "records", "shape"),
    [
        ("a", ["192.0.2.1", "192.0.2.2"], ["192.0.2.1", "192.0.2.2"]),
        ("cname", ["www.example.org"], "www.example.org"),
        ("mx", ["10 mx.example.org"], [{"pref": 10, "mx": "mx.example.org"}]),
        (
            "soa", ["ns.example.org root.example.org 7 1 2 3 4"],
            {"nameserver": "ns.example.org", "owner": "root.example.org", "serial": 7, "refresh": 1,
             "retry": 2, "expire": 3, "minimum": 4},
        ),
        ("txt", ["v=spf1 -all"], ["v=spf1 -all"]),
    ],
)  # fmt: skip
def test_records_have_the_shape_of_their_type(kind: str, records: list[str], shape: Any) -> None:
    assert record_of(records, kind) == shape
    must_fit(shape, RECORD_OF[kind])


def test_what_is_sent_to_opensearch_is_what_rm_reads_from_such_an_archive() -> None:
    outcomes = measured(PAIRS)
    opensearch = OpenSearch()
    opensearch.documents = [
        kept_of(outcome) for outcome in outcomes if outcome.test in ("latency", "throughput", "mtu")
    ]
    assert {index_of(o) for o in outcomes} >= {"pscheduler_latency", "pscheduler_trace", "pscheduler_clock"}
    end_us = max(o.ended_us for o in outcomes)
    with serving(*opensearch.routes()) as url:
        span = sources.Span(end_us - MINUTE_US, end_us + 1, {"a.test": "a", "b.test": "b"})
        found = sources.read(Source("ma", "opensearch", url), span)
    values = {s.source: s.values for s in found.samples}
    assert (found.odd, found.strangers, found.message) == (0, 0, "")
    assert values["a"] == {
        "loss_pct": 1.0, "delay_us": 300.0, "clock_error_us": 40.0, "bandwidth_bps": 900.0, "mtu_bytes": 1500,
    }  # fmt: skip


# -- when


def outcome(mesh: str = "all", failed: str = "", at_us: int = 1_000) -> Outcome:
    a, b = builders.host("a"), builders.host("b")
    return Outcome(Mesh(mesh), "mtu", a, b, at_us, at_us, failed, {} if failed else {"bytes": 1500})


def test_a_policy_counts_as_pschedulers() -> None:
    archive = Archive("x", "http://x", retry_policy=((1, 10), (4, 60), (5, 3_600)))
    assert [archive.wait_us(n) for n in range(11)] == [10, *[60] * 4, *[3_600] * 5, None]


def test_a_result_waits_as_the_policy_says_and_is_given_up_at_its_end() -> None:
    queue = Queue(Archive("x", "http://x", retry_policy=((1, 10), (1, 60))))
    queue.put(outcome(), 100)
    for now_us, wait_us in ((100, 10), (110, 60)):
        waiting = queue.next(now_us)
        assert isinstance(waiting, Waiting)
        queue.failed(waiting, now_us, True)
        assert queue.next(now_us) == wait_us
    waiting = queue.next(170)
    assert isinstance(waiting, Waiting)
    queue.failed(waiting, 170, True)
    assert (len(queue), queue.dropped, queue.next(170)) == (0, 1, None)


def test_the_queue_is_bounded_and_what_is_too_old_goes() -> None:
    queue = Queue(Archive("x", "http://x", queue=2, ttl_us=50))
    for at_us in (1, 2, 3):
        queue.put(outcome(at_us=at_us), at_us)
    first = queue.next(4)
    assert isinstance(first, Waiting)
    assert (first.outcome.begun_us, queue.dropped) == (2, 1)
    assert (queue.next(53), queue.dropped) == (None, 2)


class Listed:
    """The queue as its description says, of which each step looks at all that waits."""

    def __init__(self, archive: Archive) -> None:
        self.archive, self.waiting, self.dropped = archive, list[Waiting](), 0

    def put(self, result: Outcome, now_us: int) -> None:
        self.waiting.append(Waiting(result, now_us))
        self.shorten()

    def shorten(self) -> None:
        while len(self.waiting) > self.archive.queue:
            del self.waiting[0]
            self.dropped += 1

    def next(self, now_us: int) -> Waiting | int | None:
        fresh = [one for one in self.waiting if one.outcome.ended_us + self.archive.ttl_us > now_us]
        self.dropped += len(self.waiting) - len(fresh)
        self.waiting = fresh
        first = min(fresh, key=lambda one: one.due_us, default=None)
        if first is None or first.due_us > now_us:
            return None if first is None else first.due_us - now_us
        self.waiting.remove(first)
        return first

    def failed(self, one: Waiting, now_us: int) -> None:
        wait_us = self.archive.wait_us(one.attempts)
        if wait_us is None:
            self.dropped += 1
        else:
            self.waiting.insert(0, replace(one, due_us=now_us + wait_us, attempts=one.attempts + 1))
            self.shorten()


@given(st.lists(st.tuples(st.sampled_from("pptfF"), st.integers(0, 20)), max_size=60))
def test_results_come_as_from_a_list(steps: list[tuple[str, int]]) -> None:
    archive = Archive("x", "http://x", queue=4, ttl_us=60, retry_policy=((2, 10), (1, 30)))
    queue, listed, now_us = Queue(archive), Listed(archive), 0
    for step, (kind, wait_us) in enumerate(steps):
        now_us += wait_us
        if kind == "p":
            result = outcome(mesh=f"m{step}", at_us=now_us - wait_us % 3)
            queue.put(result, now_us)
            listed.put(result, now_us)
            continue
        found, expected = queue.next(now_us), listed.next(now_us)
        if isinstance(found, Waiting) and isinstance(expected, Waiting):
            assert (found.outcome, found.attempts) == (expected.outcome, expected.attempts)
            if kind != "t":
                queue.failed(found, now_us, True)
                listed.failed(expected, now_us)
        else:
            assert found == expected
        assert (len(queue), queue.dropped) == (len(listed.waiting), listed.dropped)


def test_to_take_a_result_is_quick_however_many_wait() -> None:
    queue, result = Queue(Archive("x", "http://x", queue=100_000, queue_mib=10_000, ttl_us=10**9)), outcome()
    began_s = time.process_time()
    for now_us in range(100_000):
        queue.put(result, now_us)
    taken = 0
    while isinstance(waiting := queue.next(200_000), Waiting):
        taken += 1
        if waiting.attempts == 0 and taken % 2:
            queue.failed(waiting, 0, True)
    assert (taken, queue.dropped, len(queue)) == (100_000, 0, 50_000)
    assert time.process_time() - began_s < 60  # it took half an hour


def test_the_queue_is_bounded_by_what_it_takes_of_memory() -> None:
    queue = Queue(Archive("x", "http://x", queue_mib=1))
    long = {"histogram": tuple((delay_us, 1) for delay_us in range(1_000))}
    for at_us in range(1, 31):
        queue.put(replace(outcome(at_us=at_us), found=long), at_us)
    kept = len(queue)
    assert 2 < kept < 20
    assert queue.dropped == 30 - kept
    first = queue.next(40)
    assert isinstance(first, Waiting)
    assert first.outcome.begun_us == 31 - kept, "the oldest went"
    queue.failed(first, 40, True)
    assert len(queue) == kept
    while isinstance(found := queue.next(10**12), Waiting):
        assert found.size_bytes > 0
    for at_us in range(1_000):
        queue.put(outcome(at_us=at_us), at_us)
    assert len(queue) == 1_000, "short ones take little"


@pytest.mark.parametrize(
    ("runs", "taken"), [("succeeded", [""]), ("failed", ["no"]), ("all", ["", "no"])], ids=str
)
def test_an_archive_takes_its_runs_of_its_meshes(runs: str, taken: list[str]) -> None:
    archive = Archive("x", "http://x", runs=runs, meshes=("all",))
    some = [outcome(), outcome(failed="no"), outcome("other"), outcome("other", "no")]
    assert [o.failed for o in some if archive.takes(o)] == taken


# -- over HTTP


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
