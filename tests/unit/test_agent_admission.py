"""A real agent holds ranks until their communication is admitted; nobody waits for one that is gone."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from resource import RLIMIT_NOFILE, prlimit
from types import SimpleNamespace

import pytest

from tests.agent_process import AGENTS, Agent, Start, agents, until
from tests.unit.test_agent_signals import is_frozen

sys.path.insert(0, str(AGENTS))
import rm_admission
import rm_iteration
import rm_spool
import rm_turn

SLEEP = "#!/bin/sh\nexec sleep 600\n"
WAIT_US = 50_000_000  # longer than a busy machine takes for everything else
# a rank as patient as those of this process, when its job's agent listens
BEGIN = f"""#!/usr/bin/env python3
import os, rm_iteration, rm_turn, sys, time
rm_turn.ANSWER_S, rm_turn.LONGEST_S = {2 * WAIT_US / 1e6}, {WAIT_US / 1e6}
mine = rm_iteration.current()
while not os.path.exists(os.path.join(os.path.dirname(os.environ["RM_SCHEDULE"]), "admission")):
    time.sleep(0.01)
"""
# two ranks that communicate three times, and note when they were let go
RANK = (
    BEGIN
    + """
for number in range(3):
    mine.start()
    with rm_iteration.communication():
        print("began", number, flush=True)
    mine.end()
"""
)


@pytest.fixture
def start() -> Iterator[Start]:
    with agents() as made:
        yield made


@pytest.fixture
def agent(start: Start) -> Agent:
    return start()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank waits for the answer of a busy machine's agent, and as long as it says: by itself it would go on
    after 0.1 s."""
    monkeypatch.setattr(rm_turn, "ANSWER_S", 2 * WAIT_US / 1e6)
    monkeypatch.setattr(rm_turn, "LONGEST_S", WAIT_US / 1e6)


class Asking(threading.Thread):
    """A rank that asks, in a thread of its own."""

    def __init__(self, turn: rm_turn.Turn, number: int) -> None:
        super().__init__(daemon=True)
        self.turn, self.number = turn, number
        self.waited_us = -1
        self.start()

    def run(self) -> None:
        self.waited_us = self.turn.ask(self.number)

    def passed(self) -> int:
        self.join(60)
        assert not self.is_alive()
        return self.waited_us


def door(agent: Agent) -> str:
    return str(agent.state / "jobs" / "1.1" / "admission")


def opened(agent: Agent, most_us: int = WAIT_US, ranks: int = 1) -> str:
    agent.launch(SLEEP, ranks=ranks)
    agent.call("admission", job=1, attempt=1, most_us=most_us)
    return door(agent)


def test_ranks_wait_until_their_number_is_admitted_and_the_daemon_hears_of_rank_0(agent: Agent) -> None:
    path = opened(agent, ranks=2)
    first, second = Asking(rm_turn.Turn(path, 0), 4), Asking(rm_turn.Turn(path, 1), 4)
    agent.event("communication", job=1, attempt=1, number=4, ended=False)
    agent.call("admit", job=1, attempt=1, number=3)
    assert first.is_alive()
    agent.call("admit", job=1, attempt=1, number=4)
    assert first.passed() > 0
    second.passed()
    late = rm_turn.Turn(path, 1)
    assert late.ask(4) < WAIT_US  # what is admitted passes at once
    first.turn.over(4)
    second.turn.over(4)
    agent.event("communication", job=1, number=4, ended=True)
    told = [one for one in agent.events if one["event"] == "communication"]
    assert [(one["number"], one["ended"]) for one in told] == [(4, False), (4, True)]


def test_tasks_of_a_job_ask_and_their_waits_are_reported(agent: Agent) -> None:
    agent.launch(RANK, tasks=[{"rank": r, "gpus": [], "env": {"RM_RANK": str(r)}} for r in (0, 1)])
    agent.call("admission", job=1, attempt=1, most_us=WAIT_US)
    for number in (1, 2, 3):
        agent.event("communication", job=1, number=number, ended=False)
        agent.call("admit", job=1, attempt=1, number=number)
        agent.event("communication", job=1, number=number, ended=True)
    for rank in (0, 1):
        agent.event("exit", job=1, rank=rank, code=0)
        assert agent.log(rank=rank).split() == ["began", "0", "began", "1", "began", "2"]
    items = [item for one in agent.events if one["event"] == "iterations" for item in one["items"]]
    (last,) = [item for item in items if item[:2] == [0, 2]]
    assert last[4] > 0  # of which it waited
    assert last[5] < last[3]
    until(lambda: not os.path.exists(door(agent)), "the socket goes with the attempt")


def test_an_agent_that_ends_lets_everybody_pass_at_once(agent: Agent) -> None:
    path = opened(agent)
    rank = Asking(rm_turn.Turn(path, 0), 1)
    agent.event("communication", job=1, number=1, ended=False)
    began = time.monotonic()
    agent.kill()
    assert rank.passed() < WAIT_US
    assert time.monotonic() - began < WAIT_US / 1e6
    assert rank.turn.ask(2) < WAIT_US  # its socket is still there, and nobody listens
    assert rm_turn.Turn(path + "s", 0).ask(1) == 0


def test_a_daemon_that_no_longer_asks_lets_everybody_pass(agent: Agent) -> None:
    path = opened(agent)
    rank = Asking(rm_turn.Turn(path, 0), 1)
    agent.event("communication", job=1, number=1, ended=False)
    agent.call("admission", job=1, attempt=1, most_us=0)
    assert rank.passed() < WAIT_US
    assert not os.path.exists(path)


def test_a_daemon_that_never_admits_costs_what_was_said_twice_and_then_nothing(agent: Agent) -> None:
    path = opened(agent, most_us=30_000)
    turn = rm_turn.Turn(path, 0)
    for number in (1, 2):
        assert turn.ask(number) >= 30_000
    assert turn.ask(3) == 0


def test_a_rank_that_dies_has_communicated(agent: Agent) -> None:
    turn = rm_turn.Turn(opened(agent), 0)
    rank = Asking(turn, 1)
    agent.event("communication", job=1, number=1, ended=False)
    agent.call("admit", job=1, attempt=1, number=1)
    rank.passed()
    turn.close()
    agent.event("communication", job=1, number=1, ended=True)


@pytest.mark.parametrize(
    "text",
    [b"[" * 4_000 + b"\n", b"nonsense\n",
     b'["ask",0]\n', b'["ask",0,-1]\n', b'["ask",true,1]\n', b"[" * 5_000, b'{"a":1}\n',
     b'["ask",0,9007199254740993]\n', b'["steal",0,1]\n', b'[["ask"],0,1]\n'],
)  # fmt: skip
def test_what_is_no_question_closes_the_connection_and_nothing_else(agent: Agent, text: bytes) -> None:
    path = opened(agent)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        sock.sendall(text)
        sock.settimeout(60)
        with suppress(ConnectionResetError):
            assert sock.recv(100) == b""
    rank = Asking(rm_turn.Turn(path, 0), 1)
    agent.event("communication", job=1, number=1, ended=False)
    agent.call("admit", job=1, attempt=1, number=1)
    rank.passed()


def test_who_talks_without_end_is_no_longer_listened_to(agent: Agent) -> None:
    path = opened(agent)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        question = json.dumps(["over", 0, 1]).encode() + b"\n"
        try:
            for _ in range(100):
                sock.sendall(question * 1_000)
        except OSError:
            pass
    until(lambda: not os.path.exists(path), "the socket is closed")
    assert agent.call("ping")["now_us"] > 0


def test_who_asks_the_daemon_without_end_is_no_longer_listened_to(agent: Agent) -> None:
    path, began_s = opened(agent), time.monotonic()

    def is_closed() -> bool:
        with socket.socket(socket.AF_UNIX) as sock, suppress(OSError):
            sock.connect(path)
            for number in range(2 * rm_admission.TOLD_BURST):
                sock.sendall(json.dumps(["ask", 0, number]).encode() + b"\n")
        return not os.path.exists(path)

    until(is_closed, "the socket is closed")  # a slow machine asks seldom enough at first
    agent.call("ping")
    told = sum(one["event"] == "communication" for one in agent.events)
    passed_s = time.monotonic() - began_s
    assert told <= rm_admission.TOLD_BURST + rm_admission.TOLD_PER_S * passed_s + 1  # and that it is over


def test_a_later_program_of_the_script_counts_anew(agent: Agent) -> None:
    path = opened(agent)
    for number in (7, 1):
        turn = rm_turn.Turn(path, 0)
        rank = Asking(turn, number)
        agent.event("communication", job=1, number=number, ended=False)
        agent.call("admit", job=1, attempt=1, number=number)
        assert rank.passed() < WAIT_US
        turn.close()
        agent.event("communication", job=1, number=number, ended=True)


def test_the_end_of_a_rank_that_has_just_asked_is_told_last(agent: Agent) -> None:
    path = opened(agent)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        os.kill(agent.process.pid, signal.SIGSTOP)
        sock.sendall(b'["ask",0,1]\n["ask",0,2]\n')
    os.kill(agent.process.pid, signal.SIGCONT)
    agent.event("communication", job=1, number=1, ended=True)
    agent.call("ping")
    told = [(one["number"], one["ended"]) for one in agent.events if one["event"] == "communication"]
    assert told == [(1, False), (1, True)]


def test_a_rank_that_finds_the_socket_is_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It found one at which nobody listened yet, or that was still root's, and went on without its turn."""
    (tmp_path / "script").touch()
    listen, seen = socket.socket.listen, []

    def noting(sock: socket.socket, *backlog: int) -> None:
        seen.append((tmp_path / rm_admission.NAME).exists())
        listen(sock, *backlog)

    monkeypatch.setattr(socket.socket, "listen", noting)
    with selectors.DefaultSelector() as selector:
        admission = rm_admission.Admission(selector, print)
        attempt = SimpleNamespace(folder=rm_spool.Folder(str(tmp_path), 1, 1), live=lambda: True)
        admission.order(attempt, WAIT_US)
        assert (seen, (tmp_path / rm_admission.NAME).is_socket()) == ([False], True)
        admission.order(attempt, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["script"]


def test_many_connections_leave_the_agent_its_descriptors(agent: Agent) -> None:
    path = opened(agent)

    def descriptors() -> set[int]:
        """Those that it keeps: it may be reading a file at one of the looks."""
        looks = [
            {*map(int, os.listdir(f"/proc/{agent.process.pid}/fd"))} for _ in range(3) if agent.call("ping")
        ]
        return set.intersection(*looks)

    before = descriptors()
    socks = [socket.socket(socket.AF_UNIX) for _ in range(rm_admission.MOST_PEERS + 1)]
    for sock in socks:
        sock.connect(path)
        sock.settimeout(60)
    assert socks[-1].recv(1) == b""  # it passes
    for sock in socks:
        sock.close()
    until(lambda: descriptors() == before, "the agent has closed them")
    free = min({*range(1_000)} - before)
    prlimit(agent.process.pid, RLIMIT_NOFILE, (free, free))
    with socket.socket(socket.AF_UNIX) as one_more:
        one_more.settimeout(60)
        with suppress(OSError):
            one_more.connect(path)
            assert one_more.recv(1) == b""
    until(lambda: not os.path.exists(path), "the socket is closed")
    assert agent.call("ping")["now_us"] > 0


def test_who_takes_all_connections_keeps_no_other_job_from_asking(agent: Agent) -> None:
    path = opened(agent)
    socks = [socket.socket(socket.AF_UNIX) for _ in range(rm_admission.MOST_PEERS)]
    for sock in socks:
        sock.connect(path)
        agent.call("ping")
    agent.launch(SLEEP, job=2)
    agent.call("admission", job=2, attempt=1, most_us=WAIT_US)
    rank = Asking(rm_turn.Turn(str(agent.state / "jobs" / "2.1" / "admission"), 0), 1)
    agent.event("communication", job=2, number=1, ended=False)
    agent.call("admit", job=2, attempt=1, number=1)
    assert rank.passed() > 0
    for sock in socks:
        sock.close()


# writes while it communicates
WRITING = (
    BEGIN
    + """
mine.start()
with rm_iteration.communication(), open(sys.argv[1], "w") as file:
    while True:
        print("x", end="", file=file, flush=True)
        time.sleep(0.01)
"""
)


class Communicating:
    """A task that communicates for ever."""

    def __init__(self, agent: Agent, folder: str) -> None:
        self.agent = agent
        os.chmod(folder, 0o777)  # the task is another user's
        self.written = Path(folder) / "written"
        launched = agent.launch(WRITING, args=[str(self.written)])["result"]
        # not by what it writes: that ends, too, where it only gets no processor for a while
        self.is_still = partial(is_frozen, launched["cgroup"], launched["tasks"][0]["pid"])
        agent.call("admission", job=1, attempt=1, most_us=WAIT_US)
        agent.event("communication", job=1, number=1, ended=False)
        agent.call("admit", job=1, attempt=1, number=1)
        until(self.written.exists, "it communicates")

    def hold(self, most_us: int = WAIT_US) -> None:
        self.agent.call("hold", job=1, attempt=1, number=1, most_us=most_us)

    def goes_on(self) -> None:
        before = self.written.stat().st_size
        until(lambda: self.written.stat().st_size > before, "it goes on")

    def stands_still(self) -> None:
        until(self.is_still, "it stands still")


def open_files(pid: int) -> list[str]:
    """None where the process has ended meanwhile."""
    try:
        return [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


def holders(agent: Agent) -> list[int]:
    """Of the agent's children those that have one socket, and nothing else: none that freezes just now."""
    pid = agent.process.pid
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    held = {one: open_files(one) for one in children}
    return [one for one, fds in held.items() if [fd[:7] for fd in fds if fd != os.devnull] == ["socket:"]]


def holder_of(agent: Agent) -> int:
    (found,) = until(lambda: holders(agent), "there is a holder")
    return int(found)


@pytest.fixture
def communicating(agent: Agent) -> Iterator[Communicating]:
    with tempfile.TemporaryDirectory() as folder:
        yield Communicating(agent, folder)


def test_what_communicates_is_held_until_it_is_admitted_again(
    agent: Agent, communicating: Communicating
) -> None:
    for _ in range(2):
        communicating.hold()
        communicating.stands_still()
        late = Asking(rm_turn.Turn(door(agent), 1), 1)  # a rank that comes later waits meanwhile
        agent.call("admit", job=1, attempt=1, number=1)
        communicating.goes_on()
        assert late.passed() < WAIT_US
    assert holder_of(agent)


def test_what_is_over_or_is_not_there_is_not_held(agent: Agent) -> None:
    path = opened(agent)
    rank = Asking(rm_turn.Turn(path, 0), 1)
    agent.event("communication", job=1, number=1, ended=False)
    agent.call("admit", job=1, attempt=1, number=1)
    rank.passed()
    rank.turn.over(1)
    agent.event("communication", job=1, number=1, ended=True)
    for job, number in ((1, 1), (1, 0), (8, 1)):
        agent.call("hold", job=job, attempt=1, number=number, most_us=WAIT_US)
    assert holders(agent) == []
    again = Asking(rm_turn.Turn(path, 0), 2)  # what was held is past
    agent.event("communication", job=1, number=2, ended=False)
    agent.call("admit", job=1, attempt=1, number=2)
    assert again.passed() < WAIT_US


@pytest.mark.parametrize("how", ["time", "agent ends", "agent is killed", "no admission", "holder is killed"])
def test_nothing_is_held_without_end(agent: Agent, communicating: Communicating, how: str) -> None:
    began = time.monotonic()

    def held_for_a_moment() -> bool:
        communicating.hold(500_000)
        return communicating.is_still()

    if how == "time":
        until(held_for_a_moment, "it is seen to stand still")  # however slow who looks is
    else:
        communicating.hold()
        communicating.stands_still()
    if how == "agent ends":
        agent.end()
    elif how == "agent is killed":
        agent.kill()
    elif how == "no admission":
        agent.call("admission", job=1, attempt=1, most_us=0)
    elif how == "holder is killed":
        os.kill(holder_of(agent), signal.SIGKILL)
        agent.call("admit", job=1, attempt=1, number=1)
    communicating.goes_on()
    assert time.monotonic() - began < WAIT_US / 1e6


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_nothing_is_left_of_a_holder_that_was_ended(
    agent: Agent, communicating: Communicating, how: signal.Signals
) -> None:
    communicating.hold()
    communicating.stands_still()
    holder = holder_of(agent)
    os.kill(holder, how)

    def gone() -> bool:
        communicating.hold(1)  # what it does not read fills its socket
        return not Path(f"/proc/{holder}").exists()

    until(gone, "it has ended, and the agent has heard of it")
    communicating.goes_on()


def test_only_the_user_of_the_job_may_ask(agent: Agent) -> None:
    path = Path(opened(agent))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_uid == (path.parent / "script").stat().st_uid


def test_without_a_schedule_nobody_is_asked(tmp_path: Path) -> None:
    mine = rm_iteration.Iterations({"RM_REPORTS": str(tmp_path / "reports")})
    mine.start()
    mine.communication_starts()
    mine.communication_ends()
    assert mine.waited_us == 0
    mine.close()
    assert json.loads((tmp_path / "reports").read_text())[4] == 0
