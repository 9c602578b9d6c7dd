"""Which peer is silent: one that was asked and says nothing while this process is awake and listens."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from rm.adapters.hosts.pulse import QUIET_S, Pulse, WatchedSocket
from tests.fakes import PATIENCE_S

DEAD_AFTER_S = 6.0
ASKED_S = 1000.0


@pytest.fixture
def ends() -> Iterator[tuple[WatchedSocket, socket.socket]]:
    """A socket that was asked at 1,000 s, and its peer."""
    ours, theirs = socket.socketpair()
    watched = WatchedSocket(ours, DEAD_AFTER_S)
    watched.heard_at = ASKED_S - 1
    assert not watched.silent(ASKED_S)
    watched.asked_at = ASKED_S
    with ours, theirs:
        yield watched, theirs


def looks(watched: WatchedSocket, until_s: float) -> list[bool]:
    """What two looks a second say, after the last one at `ASKED_S`."""
    return [watched.silent(ASKED_S + n / 2) for n in range(1, int(2 * until_s) + 1)]


def test_a_peer_that_does_not_answer_is_silent(ends: tuple[WatchedSocket, socket.socket]) -> None:
    assert looks(ends[0], DEAD_AFTER_S) == [False] * 8 + [True] * 4


def test_while_this_process_stood_still_no_peer_was_silent(ends: tuple[WatchedSocket, socket.socket]) -> None:
    watched, _ = ends
    assert not watched.silent(ASKED_S + 1)
    assert not watched.silent(ASKED_S + 100)  # it was stopped, or had no processor
    assert [watched.silent(ASKED_S + 100 + n) for n in (1, 2, 3)] == [False, False, True]


def test_what_has_arrived_and_is_not_read_yet_was_said_in_time(
    ends: tuple[WatchedSocket, socket.socket],
) -> None:
    watched, peer = ends
    peer.send(b"here")
    assert not any(looks(watched, 2 * DEAD_AFTER_S))
    assert watched.recv(9) == b"here"
    watched.heard_at = ASKED_S + 20  # the test's clock is another
    assert not watched.silent(ASKED_S + 21)
    watched.asked_at = ASKED_S + 21
    assert [watched.silent(ASKED_S + 21 + n) for n in (1, 2, 3, 4, 5)] == [False, False, False, False, True]


def test_who_reads_rests_until_something_comes_or_the_connection_ends() -> None:
    """Paramiko's timeout is a tenth of a second, which each host would cost ten wake-ups a second."""
    ours, theirs = socket.socketpair()
    watched = WatchedSocket(ours, DEAD_AFTER_S)
    watched.settimeout(0.1)
    assert ours.gettimeout() == QUIET_S
    watched.settimeout(None)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.extend(iter(lambda: watched.recv(9), b"")), daemon=True)
    reader.start()
    theirs.send(b"news")
    assert theirs.recv(0) == b""
    while not got:
        time.sleep(0.001)
    watched.close()
    reader.join(PATIENCE_S)
    assert (got, reader.is_alive()) == ([b"news"], False)
    assert theirs.recv(9) == b""  # the peer, too, knows that it has ended
    theirs.close()


def cut(watched: WatchedSocket) -> None:
    watched.cut()
    watched.close()


def killed(watched: WatchedSocket) -> None:
    os.close(watched.detach())  # as the kernel does it then


@pytest.mark.parametrize(("end", "delivered"), [(cut, False), (killed, False), (WatchedSocket.close, True)])
def test_what_a_peer_has_not_got_comes_only_after_an_orderly_end(
    end: Callable[[WatchedSocket], None], delivered: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
    with ours, peer:
        ours.setblocking(False)
        watched, sent = WatchedSocket(ours, DEAD_AFTER_S), 0
        with suppress(BlockingIOError):
            while True:  # what is in neither buffer of the peer waits here
                sent += watched.send(bytes(1 << 16))
        end(watched)
        got = 0
        with suppress(ConnectionResetError):
            while data := peer.recv(1 << 20):
                got += len(data)
    assert (got == sent) is delivered


def test_a_peer_that_takes_nothing_in_keeps_no_other_from_being_asked() -> None:
    """Else no other host that is lost is noticed any more."""
    pulse, over, asked = Pulse(), threading.Event(), threading.Event()
    with ExitStack() as stack:
        stack.callback(over.set)
        ours, theirs, others, its = (*socket.socketpair(), *socket.socketpair())
        for end in (ours, theirs, others, its):
            stack.enter_context(end)
        ours.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                ours.send(bytes(1 << 16))
        for sock, ask in ((ours, lambda: over.wait(PATIENCE_S)), (others, asked.set)):
            watched = WatchedSocket(sock, 0.6)
            pulse.watch(watched, ask, lambda: not over.is_set())
        assert asked.wait(PATIENCE_S / 2)


def test_a_question_that_found_no_room_is_asked_as_soon_as_there_is() -> None:
    """Else a peer that was busy at that instant, and owes no answer, is taken for lost."""
    pulse, over, asked = Pulse(), threading.Event(), threading.Event()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        watched = WatchedSocket(ours, DEAD_AFTER_S)
        with suppress(BlockingIOError):
            while True:
                ours.send(bytes(1 << 16))

        def ask() -> None:
            asked.set()
            watched.heard_at = time.monotonic()

        pulse.watch(watched, ask, lambda: not over.is_set())
        while watched.asked_at == 0.0:  # there was no room for it
            time.sleep(0.001)
        theirs.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                theirs.recv(1 << 20)
        assert asked.wait(PATIENCE_S)
        over.set()
        assert ours.send(b"still open") > 0
