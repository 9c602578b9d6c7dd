"""The two ends of a stream, on made-up clocks: windows without a gap, and what each end knows of them."""

from __future__ import annotations

import importlib
import os
import random
import socket
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rm.protocol.latencybg import Latencybg

AGENTS = Path(__file__).parents[2] / "agents"
sys.path.insert(0, str(AGENTS))
rm_latencybg_window = importlib.import_module("rm_latencybg_window")
rm_latencybg_process = importlib.import_module("rm_latencybg_process")
sys.path.remove(str(AGENTS))

COUNT, INTERVAL_US = 10, 100_000
WINDOW_S = COUNT * INTERVAL_US / 1e6
LIFE = 7_000
FIRST_US = 1_000_000_000


class Way:
    """A way from one host to another, in steps of 10 ms, as their processes have it; `ahead_us`: how far the
    receiver's clock is ahead of the sender's."""

    def __init__(self, ahead_us: int = 0, delay_us: int = 300) -> None:
        self.now_s, self.ahead_us, self.delay_us = 100.0, ahead_us, delay_us
        self.departures = rm_latencybg_window.Departures(COUNT, INTERVAL_US, 100.05)
        self.arrivals = rm_latencybg_window.Arrivals(COUNT, INTERVAL_US, 99.0)
        self.life = LIFE
        self.sent: dict[int, int] = {}
        self.begun: dict[int, int] = {}
        self.found: dict[int, dict[str, Any]] = {}
        self.echo = 0, 0
        self.frozen = False

    def sender_us(self) -> int:
        return FIRST_US + round((self.now_s - 100.0) * 1e6)

    def go(self, seconds: float, lost: Any = lambda slot: False, copies: int = 1) -> None:
        for _ in range(round(seconds * 100)):
            self.now_s = round(self.now_s + 0.01, 2)
            if self.departures.due_s() <= self.now_s and not self.frozen:
                slot, over = self.departures.depart(self.now_s, self.sender_us())
                for number, begun_us, sent in over:
                    self.sent[number], self.begun[number] = sent, begun_us
                if slot is not None and not lost(slot):
                    for _ in range(copies):
                        self.arrive(slot)
            for number, window in self.arrivals.over(self.now_s):
                assert number not in self.found
                self.found[number] = rm_latencybg_window.found(window, True)

    def arrive(self, slot: int) -> None:
        sent_us = self.sender_us()
        at_us = sent_us + self.delay_us + self.ahead_us
        self.arrivals.arrived(self.life, slot, sent_us, at_us, self.echo, self.now_s)


def test_windows_follow_each_other_without_a_gap_and_both_ends_count_the_same() -> None:
    way = Way()
    way.go(10 * WINDOW_S)
    told = sorted(way.found)
    assert told == list(range(len(told)))
    assert len(told) >= 6  # the newest ones wait for late packets
    assert all(way.sent[number] == way.found[number]["received"] == COUNT for number in told)
    begun = [way.begun[number] for number in sorted(way.begun)]
    assert {b - a for a, b in pairwise(begun)} == {COUNT * INTERVAL_US}


def test_an_outage_of_three_seconds_is_seen_wherever_it_falls() -> None:
    for first in range(0, 20, 3):
        way = Way()
        way.go(12 * WINDOW_S, lambda slot, first=first: 30 + first <= slot < 60 + first)
        lost = {n: COUNT - told["received"] for n, told in way.found.items()}
        assert sum(lost.values()) == 30, first
        assert sorted(way.found) == list(range(len(way.found)))


def test_a_stream_that_falls_silent_goes_on_to_be_told() -> None:
    way = Way()
    way.go(2 * WINDOW_S)
    way.go(20 * WINDOW_S, lambda slot: True)
    assert way.found[10]["received"] == 0
    assert (way.sent[10], max(way.found) > 15) == (COUNT, True)


def test_what_the_sender_could_not_send_is_not_lost() -> None:
    way = Way()
    way.go(2 * WINDOW_S)
    way.frozen = True
    way.go(1.5 * WINDOW_S)
    way.frozen = False
    way.go(8 * WINDOW_S)
    assert sum(way.sent[n] for n in way.found) == sum(told["received"] for told in way.found.values())
    assert min(way.sent.values()) < COUNT
    assert sorted(way.found) == list(range(len(way.found)))


def test_windows_that_began_before_the_receiver_listened_are_not_told() -> None:
    way = Way()
    way.arrivals = rm_latencybg_window.Arrivals(COUNT, INTERVAL_US, 10**9)
    way.go(3.4 * WINDOW_S, lambda slot: True)
    way.arrivals = rm_latencybg_window.Arrivals(COUNT, INTERVAL_US, way.now_s)
    way.go(8 * WINDOW_S)
    assert min(way.found) == 4
    assert all(told["received"] == COUNT for told in way.found.values())


def test_windows_of_which_nothing_arrived_before_the_first_packet_are_told() -> None:
    way = Way()
    way.go(3 * WINDOW_S + 0.2, lambda slot: True)
    way.go(8 * WINDOW_S)
    assert [way.found[n]["received"] for n in range(5)] == [0, 0, 0, COUNT - 2, COUNT]


def test_a_receiver_that_stood_still_blames_nobody() -> None:
    way = Way()
    way.go(3.5 * WINDOW_S)
    for _ in range(100):  # both hosts go on, this process does not
        way.now_s += 0.1
        way.departures.depart(way.now_s, way.sender_us())
    way.arrivals.forget(way.now_s)
    way.go(8 * WINDOW_S)
    assert all(told["received"] == COUNT for told in way.found.values())
    assert max(way.found) > 15


def test_a_sender_that_begins_anew_is_counted_anew() -> None:
    way = Way()
    way.go(4 * WINDOW_S)
    way.found.clear()
    way.life += 1
    way.departures = rm_latencybg_window.Departures(COUNT, INTERVAL_US, way.now_s + 0.05)
    way.go(8 * WINDOW_S)
    assert sorted(way.found) == list(range(len(way.found)))
    assert all(told["received"] == COUNT for told in way.found.values())


def test_duplicates_and_packets_out_of_order_are_counted_apart() -> None:
    way = Way()
    way.go(2 * WINDOW_S, copies=2)
    way.go(5 * WINDOW_S)
    assert (way.found[0]["received"], way.found[0]["duplicates"]) == (COUNT, COUNT)
    late = Way()
    for slot in (0, 2, 1, 3, 4, 5, 6, 7, 9, 8):
        late.arrive(slot)
    late.now_s += 100
    (_, window), *_ = late.arrivals.over(late.now_s)
    assert rm_latencybg_window.found(window, False) == {
        "received": COUNT, "duplicates": 0, "reordered": 2, "offset_us": 0, "jitter_us": 0,
        "delay_us": {"min": 300, "median": 300, "p95": 300, "max": 300},
    }  # fmt: skip


@pytest.mark.parametrize("ahead_us", [0, 5_000_000, -70_000])
def test_the_clocks_difference_is_taken_out_of_delays(ahead_us: int) -> None:
    """As the packets of the opposite stream show it: they take as long."""
    way = Way(ahead_us=ahead_us)
    for _ in range(60):
        back_us = way.sender_us() + ahead_us - 40_000  # when the other host sent its newest packet
        way.echo = back_us, back_us - ahead_us + way.delay_us
        way.go(0.1)
    told = way.found[1]
    assert abs(told["offset_us"] - ahead_us) <= told["clock_error_us"] <= 310
    assert abs(told["delay_us"]["median"] - way.delay_us) <= told["clock_error_us"]
    assert sum(packets for _, packets in told["histogram"]) == COUNT


def test_a_slot_that_no_sender_can_be_at_changes_nothing() -> None:
    way = Way()
    way.go(2 * WINDOW_S)
    way.arrive(10**9)
    way.go(6 * WINDOW_S)
    assert all(told["received"] == COUNT for told in way.found.values())


def test_of_packets_lost_at_random_none_is_counted_twice() -> None:
    chance = random.Random(5)
    way = Way()
    dropped: set[int] = set()

    def lost(slot: int) -> bool:
        if chance.random() < 0.2:
            dropped.add(slot)
            return True
        return False

    way.go(40 * WINDOW_S, lost)
    for number, told in way.found.items():
        missing = sum(slot // COUNT == number for slot in dropped)
        assert told["received"] == COUNT - missing


def test_a_stream_that_begins_anew_has_another_life() -> None:
    order = {
        "out": 1,
        "into": 2,
        "ends": [[2, "127.0.0.1"]],
        "port": 8750,
        "secret": "00" * 8,
        "count": 10,
        "interval_us": 100_000,
    }
    first = rm_latencybg_process._Peer(order, 5.0, 0.0)
    assert first.same(dict(order, histogram=True))
    assert first.same(dict(order, ends=[]))  # its name cannot be looked up just now
    assert first.same(dict(order, port=0, secret=""))  # a daemon has just taken over
    assert not first.same(dict(order, port=8751))
    assert not first.same(dict(order, secret="11" * 8))
    lives = [first.life]
    for _ in range(3):
        first = rm_latencybg_process._Peer(dict(order, port=8751), 5.0, 0.0, first)
        lives.append(first.life)
    assert lives == sorted(set(lives))


@pytest.fixture
def streams() -> Iterator[Any]:
    """A host's process, without its door."""
    process = rm_latencybg_process.Streams()
    yield process
    for link in process.links.values():
        link.close()


INTO = 2


def order(**more: Any) -> dict[str, Any]:
    """To listen to another process of this host, in windows of one packet."""
    ends = [[int(socket.AF_INET), "127.0.0.1"]]
    stream = {
        "out": 1,
        "into": INTO,
        "ends": ends,
        "port": 0,
        "secret": "",
        "count": 1,
        "interval_us": 10_000,
    }
    return {"streams": [{**stream, "histogram": True, **more}]}


def send(streams: Any, *packets: tuple[int, int, int, int, int]) -> None:
    """From a process that knows the secret: (life, slot, when sent, its echo)."""
    ((_, secret),) = streams.follow(order())["secrets"]
    send_with(streams, bytes.fromhex(secret), *packets)


def send_with(streams: Any, secret: bytes, *packets: tuple[int, int, int, int, int]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        for life, *rest in packets:
            packet = rm_latencybg_process.PACKET.pack(rm_latencybg_process.MAGIC, secret, life, *rest)
            link.sendto(packet, ("127.0.0.1", streams.port))


def answer_of(streams: Any, most_s: float = 5.0) -> Latencybg:
    """The first answer with a window, as the daemon reads it; after that time any."""
    until_s = time.monotonic() + most_s
    while not streams.results and time.monotonic() < until_s:
        streams.turn()
        time.sleep(0.01)
    return msgspec.convert(streams.follow(order()), Latencybg)


@pytest.mark.parametrize(
    ("life", "sent_us", "echo"),
    [
        (1 << 63, None, (0, 0)),
        ((1 << 64) - 1, None, (0, 0)),
        (LIFE, -(1 << 62), (0, 0)),
        (LIFE, (1 << 63) - 1, (0, 0)),
        (LIFE, 1 << 53, (0, 0)),
        (LIFE, None, (1, 1 << 62)),
        (LIFE, None, (-(1 << 63), (1 << 63) - 1)),
    ],
)
def test_no_packet_of_a_stranger_makes_an_answer_that_the_daemon_refuses(
    life: int, sent_us: int | None, echo: tuple[int, int], streams: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a host that was taken over: it knows the secrets of its streams."""
    monkeypatch.setattr(rm_latencybg_window, "LATE_S", 0.05)
    streams.follow(order())
    time.sleep(0.4)  # windows that began earlier are not told
    now_us = time.time_ns() // 1000
    send(streams, (life, 0, now_us if sent_us is None else sent_us, *echo))
    told = answer_of(streams, 0.3)
    assert (told.received, [life for _, _, life in told.listening]) == ([], [0])
    send(streams, (LIFE, 0, now_us, 0, 0))
    assert [one.received for one in answer_of(streams).received][:1] == [1]


def test_a_packet_without_the_secret_of_its_stream_does_not_count(
    streams: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job's process may send to this port from a peer's address, and a stream's name can be worked out."""
    monkeypatch.setattr(rm_latencybg_window, "LATE_S", 0.05)
    told = streams.follow(order())
    time.sleep(0.4)  # windows that began earlier are not told
    now_us = time.time_ns() // 1000
    for secret in (bytes(8), INTO.to_bytes(8, "big"), (1).to_bytes(8, "big"), os.urandom(8)):
        send_with(streams, secret, (LIFE, 0, now_us, 0, 0))
    before = answer_of(streams, 0.3)
    assert (before.received, [life for _, _, life in before.listening]) == ([], [0])
    send(streams, (LIFE, 0, now_us, 0, 0))
    assert [one.received for one in answer_of(streams).received][:1] == [1]
    other = order(port=8751, secret="00" * 8)
    assert streams.follow(other)["secrets"] == told["secrets"]  # what comes in goes on


def test_each_stream_has_a_secret_of_its_own_and_each_process_another_one(streams: Any) -> None:
    def secrets_of(process: Any) -> set[str]:
        orders = [dict(order(out=n, into=n)["streams"][0]) for n in range(1, 9)]
        return {secret for _, secret in process.follow({"streams": orders})["secrets"]}

    again = rm_latencybg_process.Streams()
    try:
        assert len(secrets_of(streams) | secrets_of(again)) == 16
    finally:
        for link in again.links.values():
            link.close()


def test_a_stream_goes_on_while_another_daemon_takes_over(streams: Any) -> None:
    known = order(port=streams.port, secret="00" * 8)
    streams.follow(known)
    (before,) = streams.peers.values()
    streams.follow(order())  # it does not know yet where the other host listens
    streams.follow(known)
    assert [peer.life for peer in streams.peers.values() if peer.sends] == [before.life]


def test_nothing_is_sent_to_who_has_told_no_secret(streams: Any) -> None:
    streams.follow(order(port=streams.port))
    (peer,) = streams.peers.values()
    assert not peer.sends
    streams.follow(order(port=streams.port, secret="00" * 8))
    (peer,) = streams.peers.values()
    assert peer.sends


def test_a_flood_of_packets_does_not_keep_the_process_from_answering(
    streams: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each packet that is read is followed by another one, as by a sender that is as fast as the reader."""
    monkeypatch.setattr(rm_latencybg_process, "READ", 50)
    streams.follow(order())
    (link,) = streams.links.values()
    count = 0

    class Flooded:
        def recvmsg(self, *sizes: int) -> Any:
            nonlocal count
            count += 1
            if count > 10_000:
                raise AssertionError("the turn does not end")
            send(streams, (0, 0, 0, 0, 0))
            return link.recvmsg(*sizes)

    streams.links = {socket.AF_INET: Flooded()}
    assert streams.turn() <= time.monotonic()  # it is to go on at once
    assert count == 50
    streams.links = {socket.AF_INET: link}
    began_s = time.monotonic()
    assert streams.turn() >= began_s + rm_latencybg_process.LOOK_S  # all is read


def test_slots_that_run_away_make_a_bounded_number_of_windows_at_one_look() -> None:
    arrivals = rm_latencybg_window.Arrivals(1, 10_000, 0.0)
    for number in range(100):
        arrivals.arrived(LIFE, number * 6_000, FIRST_US, FIRST_US, (0, 0), 100.0)
    for _ in range(3):
        assert len(arrivals.over(100.0)) == rm_latencybg_window.TOLD


def test_what_wrong_clocks_tell_is_what_the_daemon_takes(streams: Any) -> None:
    most, apart = rm_latencybg_window.LARGEST, rm_latencybg_window.APART_US
    for sent_us, at_us, echo in (
        (apart, 0, (apart, 0)),
        (most, most - apart, (0, apart)),
        (0, apart, (1, 0)),
    ):
        arrivals = rm_latencybg_window.Arrivals(1_000, INTERVAL_US, 0.0)
        for slot, (one_us, there_us) in enumerate(((sent_us, at_us), (at_us, sent_us), (5, 7))):
            assert rm_latencybg_window.possible(most, one_us, there_us, echo)
            arrivals.arrived(most, slot, one_us, there_us, echo, 1.0)
        (window,) = arrivals.open.values()
        window.duplicates = 10**18
        found = rm_latencybg_window.found(window, True)
        streams._keep("received", stream=INTO, life=most, window=0, **found)
    told = msgspec.convert(streams.follow({"streams": []}), Latencybg)
    assert [one.duplicates for one in told.received] == [rm_latencybg_window.DUPLICATES] * 3


def test_a_process_has_no_more_to_tell_when_all_was_taken(streams: Any) -> None:
    """Also for a leader that has not heard of it before: else it would be asked for ever."""
    for number in range(3):
        streams._keep("sent", stream=1, life=LIFE, window=number, begun_us=1, sent=COUNT)
    told = streams.follow({"streams": []})
    assert (told["last"], told["more"], len(told["sent"])) == (3, False, 3)
    streams.follow({"streams": [], "life": told["life"], "after": 3, "done": 3})
    told = streams.follow({"streams": []})
    assert (told["last"], told["more"], told["sent"]) == (0, False, [])
