"""Streams between the hosts of a step: over a way that loses and repeats, between a job's hosts only."""

from __future__ import annotations

import random
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from rm.daemon.execution.streams import PIECE_BYTES, UNDER_WAY_BYTES, Streams
from rm.errors import Unreachable
from rm.protocol.notifications import Streamed

sys.path.insert(0, str(Path(__file__).parents[2] / "agents"))
from rm_step_link import AGAIN_S, WINDOW_BYTES, Link


def carry(seed: int, loss: float) -> None:
    chance = random.Random(seed)
    ends = Link(), Link()
    texts = [chance.randbytes(chance.randrange(1, 700_000)) for _ in ends]
    written, read = [0, 0], [bytearray(), bytearray()]
    way: list[tuple[int, dict[str, Any]]] = []
    now = 0.0
    for _ in range(100_000):
        if all(end.over() for end in ends):
            break
        now += AGAIN_S / 20
        for n, end in enumerate(ends):
            count = min(end.room(), chance.randrange(1, 100_000))
            if written[n] < len(texts[n]):
                end.write(texts[n][written[n] : written[n] + count])
                written[n] += count
            elif not end.closed:
                end.close()
            assert len(end.out) <= WINDOW_BYTES
            assert len(end.inbox) <= WINDOW_BYTES
            while end.due(now):
                message = end.message(now)
                copies = 0 if chance.random() < loss else 1 + (chance.random() < loss)
                way += [(1 - n, message)] * copies
            taken = chance.randrange(0, len(end.inbox) + 1)
            read[n] += end.inbox[:taken]
            end.consume(taken)
        if loss:
            chance.shuffle(way)
        for to, message in way:
            ends[to].take(message)
        way.clear()
    assert [bytes(text) for text in read] == [texts[1], texts[0]]
    assert all(end.over() for end in ends)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("loss", [0, 0.3])
def test_everything_arrives_once_and_in_order(seed: int, loss: float) -> None:
    carry(seed, loss)


def test_an_end_that_reads_nothing_stops_the_other() -> None:
    writer, reader = Link(), Link()
    sent = 0
    for turn in range(200):
        room = writer.room()
        writer.write(bytes(room))
        sent += room
        while writer.due(turn * AGAIN_S):
            reader.take(writer.message(turn * AGAIN_S))
        while reader.due(turn * AGAIN_S):
            writer.take(reader.message(turn * AGAIN_S))
    assert sent == len(reader.inbox) == WINDOW_BYTES


class Fleet:
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.futures: list[Future[Any]] = []
        self.away = False
        self.answers = True

    def call(self, host: str, request: Any, timeout_s: float = 0) -> Future[Any]:
        if self.away:
            raise Unreachable("away")
        self.calls.append((host, request))
        self.futures.append(Future())
        if self.answers:
            self.futures[-1].set_result(None)
        return self.futures[-1]

    def clock_offset_us(self, name: str) -> int | None:
        return None


def piece(job: int = 1, attempt: int = 1, place: int = 1, **more: Any) -> Streamed:
    given = {"stream": "0", "offset": 0, "data": "", "ack": 0, **more}
    return Streamed(job=job, attempt=attempt, place=place, **given)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def streams(fleet: Fleet, acts: bool = True) -> Streams:
    def hosts_of(job: int, attempt: int) -> tuple[str, ...]:
        return ("a", "b") if (job, attempt) == (1, 1) else ()

    return Streams(hosts=fleet, epoch=7, hosts_of=hosts_of, may_act=lambda: acts)


def test_a_piece_goes_to_the_host_it_is_for_and_says_whence_it_came(fleet: Fleet) -> None:
    streams(fleet).pass_on("a", piece(data="eA==", end=True, ack=5))
    ((host, request),) = fleet.calls
    assert (host, request.place, request.epoch, request.data, request.end, request.ack) == (
        "b",
        0,
        7,
        "eA==",
        True,
        5,
    )


@pytest.mark.parametrize("wrong", [piece(job=2), piece(attempt=2), piece(place=2)])
def test_nothing_goes_where_the_attempt_is_not(fleet: Fleet, wrong: Streamed) -> None:
    streams(fleet).pass_on("a", wrong)
    assert not fleet.calls


def test_a_host_reaches_no_job_of_others(fleet: Fleet) -> None:
    streams(fleet).pass_on("c", piece())
    assert not fleet.calls


def test_a_daemon_that_may_not_act_passes_nothing_on(fleet: Fleet) -> None:
    streams(fleet, acts=False).pass_on("a", piece())
    assert not fleet.calls


def test_a_host_that_is_away_costs_nothing(fleet: Fleet) -> None:
    fleet.away = True
    streams(fleet).pass_on("a", piece())


def test_what_a_host_does_not_answer_is_bounded_and_goes_on_when_it_does(fleet: Fleet) -> None:
    """A host that lies, beside one that is slow or lies too, fills no memory and holds up nothing else."""
    fleet.answers = False
    passing = streams(fleet)
    full = piece(data="A" * 80_000)
    for _ in range(1000):
        passing.pass_on("a", full)
    under_way = len(fleet.calls)
    assert under_way == UNDER_WAY_BYTES // (80_000 + PIECE_BYTES)
    passing.pass_on("b", piece(place=0))  # the other way is another one
    assert fleet.calls[-1][0] == "a"
    fleet.futures[0].set_result(None)
    fleet.futures[1].set_exception(Unreachable("It did not answer."))
    for _ in range(5):
        passing.pass_on("a", full)
    assert len(fleet.calls) == under_way + 1 + 2


def test_a_host_that_is_away_holds_nothing_up_when_it_is_back(fleet: Fleet) -> None:
    fleet.away = True
    passing = streams(fleet)
    for _ in range(200):
        passing.pass_on("a", piece(data="A" * 80_000))
    fleet.away = False
    passing.pass_on("a", piece())
    assert len(fleet.calls) == 1
