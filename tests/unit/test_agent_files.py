"""Files that users name for output: what tasks and attempts share is emptied once, if at all, and each
attempt finds its own part again."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent_process import USER, Agent, agents, until

SH = "#!/bin/sh\n"


@pytest.fixture
def agent() -> Iterator[Agent]:
    with agents() as start:
        yield start()


@pytest.fixture
def home(agent: Agent) -> Path:
    """A directory of the user's, which no agent's root rights are needed for."""
    place = agent.state / "home"
    place.mkdir()
    if os.getuid() == 0:
        account = pwd.getpwnam(USER)
        os.chown(place, account.pw_uid, account.pw_gid)
    return place


def old(file: Path, text: str = "from before\n") -> Path:
    file.write_text(text)
    file.chmod(0o666)
    return file


@pytest.mark.parametrize("hold", [False, True])
def test_tasks_that_share_a_file_all_keep_their_lines(agent: Agent, home: Path, hold: bool) -> None:
    shared = old(home / "all.out")
    count = 8
    tasks = [
        {"rank": r, "gpus": [], "env": {"RANK": str(r)}, "output": "all.out", "error": "all.err"}
        for r in range(count)
    ]
    script = SH + "for i in 1 2 3; do echo $RANK.$i; echo err $RANK >&2; done\n"
    agent.launch(script, tasks=tasks, chdir=str(home), hold=hold)
    if hold:
        assert shared.read_text() == ""  # before any host's task starts
        agent.call("start", job=1, attempt=1)
    for rank in range(count):
        agent.event("exit", job=1, rank=rank, code=0)
    wanted = sorted(f"{r}.{i}" for r in range(count) for i in (1, 2, 3))
    assert sorted(shared.read_text().splitlines()) == wanted
    assert sorted(agent.log(rank=3).splitlines()) == wanted
    assert len((home / "all.err").read_text().splitlines()) == 3 * count


@pytest.mark.parametrize(("mode", "kept"), [("append", "from before\n"), ("truncate", "")])
def test_a_file_is_emptied_only_when_asked(agent: Agent, home: Path, mode: str, kept: str) -> None:
    out, err = old(home / "out"), old(home / "err")
    agent.launch(SH + "echo one; echo two >&2", chdir=str(home), output="out", error="err", open_mode=mode)
    agent.event("exit", job=1, code=0)
    assert (out.read_text(), err.read_text()) == (kept + "one\n", kept + "two\n")
    assert (agent.log(), agent.log(stream="err")) == ("one\n", "two\n")


def test_each_attempts_part_of_a_file_is_found_again(agent: Agent, home: Path) -> None:
    file = home / "out"
    for attempt, mode in ((1, "truncate"), (2, "append"), (3, "append")):
        script = SH + f"echo attempt {attempt}\n"
        agent.launch(script, attempt=attempt, chdir=str(home), output="out", open_mode=mode)
        agent.event("exit", job=1, attempt=attempt, code=0)
    assert file.read_text() == "attempt 1\nattempt 2\nattempt 3\n"
    assert [agent.log(attempt=n) for n in (1, 2, 3)] == [f"attempt {n}\n" for n in (1, 2, 3)]
    tail = agent.call("logs", job=1, attempt=2, rank=0, stream="out", offset=8, limit=100)
    assert (tail["data"], tail["size"], tail["offset"], tail["done"]) == ("Mgo=", 10, 10, True)
    file.write_text("mine\n")  # its owner has written it anew
    assert agent.log(attempt=3) == "mine\n"


def test_a_running_attempts_part_grows(agent: Agent, home: Path) -> None:
    old(home / "out")
    script = SH + "echo begun; until [ -e go ]; do sleep 0.02; done; echo ended"
    agent.launch(script, chdir=str(home), output="out", open_mode="append")
    until(lambda: agent.log() == "begun\n", "the first line")
    (home / "go").touch()
    agent.event("exit", job=1, code=0)
    assert agent.log() == "begun\nended\n"


def test_what_is_no_file_of_the_user_is_left_alone(agent: Agent, home: Path) -> None:
    """Whoever reads a pipe does not see it end before the task opens it; others' files are not emptied."""
    os.mkfifo(home / "pipe")
    os.chmod(home / "pipe", 0o666)
    reader = os.open(home / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        agent.launch(SH + "echo through the pipe", chdir=str(home), output="pipe")
        agent.event("exit", job=1, code=0)
        assert os.read(reader, 100) == b"through the pipe\n"
    finally:
        os.close(reader)
    if os.getuid() == 0:
        (home.parent / "roots").write_text("precious\n")
        (home / "link").symlink_to(home.parent / "roots")
        agent.launch(SH + "echo", job=2, chdir=str(home), output="link")
        ended = agent.event("exit", job=2)
        assert "cannot be written" in ended["why"]
        assert (ended["code"], ended["signal"]) == (0, 53)
        assert (home.parent / "roots").read_text() == "precious\n"


def test_a_task_reads_the_file_that_was_named(agent: Agent, home: Path) -> None:
    (home / "in.0").write_text("from a file\n")
    tasks = [{"rank": rank, "gpus": [], "env": {}, "input": f"in.{rank}"} for rank in (0, 1)]
    agent.launch(SH + "cat", tasks=tasks, chdir=str(home))
    assert agent.event("exit", job=1, rank=0)["code"] == 0
    assert agent.log() == "from a file\n"
    ended = agent.event("exit", job=1, rank=1)
    assert ended["why"].startswith("The input in.1 cannot be read on ")
    assert ended["why"].endswith(": No such file or directory.")
    assert (ended["code"], ended["signal"]) == (0, 53)  # as Slurm's accounting says
    agent.launch(SH + "cat; echo end", job=2)
    agent.event("exit", job=2)
    assert agent.log(job=2) == "end\n"
