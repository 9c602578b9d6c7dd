"""What an agent says of troubles that are not its spool's, and how it goes on beside what does not end."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agent_process import AGENTS
from tests.fakes import PATIENCE_S

sys.path.insert(0, str(AGENTS))
import rm_attempts
import rm_attend
import rm_cgroup
import rm_room
import rm_spool
import rm_step_process
from rm_step_peer import SOCKET


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_host_without_descriptors_is_told_as_that(number: int) -> None:
    code, sentence = rm_spool.sentence_of(OSError(number, "", "/var/lib/rm/jobs/1.1"))
    assert (code, "no file descriptors left" in sentence) == ("no-descriptors", True)
    assert code in rm_room.TROUBLES


class Stuck:
    """A control group whose process does not end, however often it is killed."""

    kind = ""

    def __init__(self) -> None:
        self.left, self.killed, self.removed = [4711], 0, False

    def group(self, job: int, attempt: int) -> Stuck:
        return self

    def pids(self) -> list[int]:
        return self.left

    def kill(self) -> None:
        self.killed += 1

    def remove(self) -> None:
        self.removed = True


def test_a_process_that_does_not_end_keeps_no_other_attempt_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rm_attempts, "marks", lambda mark: [])
    monkeypatch.setattr(rm_attempts, "marked", lambda mark, path: [])
    now = [100.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0], time_ns=lambda: 1, sleep=lambda seconds: pytest.fail("waits")
    )
    monkeypatch.setattr(rm_attempts, "time", clock)
    told: list[dict[str, Any]] = []
    spool, stuck = rm_spool.Spool(str(tmp_path)), Stuck()
    folder = spool.folder(1, 1)
    (Path(folder.path) / "0").mkdir(parents=True)
    (Path(folder.path) / "meta.json").write_text('{"state": "running", "tasks": {"0": {"pid": 4711}}}')
    attempts = rm_attempts.Attempts(spool, stuck, None, told.append)
    attempts.find()
    assert (stuck.killed, [a.live() for a in attempts.known.values()]) == (1, [True])
    assert attempts.timeout_s() <= rm_attempts.SWEEP_S
    now[0] += rm_attempts.SWEEP_S
    attempts.tick()
    assert stuck.killed > 1
    assert told == []
    stuck.left = []
    now[0] += rm_attempts.SWEEP_S
    attempts.tick()
    assert (stuck.removed, told[0]["event"], told[0]["code"]) == (True, "exit", None)
    attempts.close()


def test_a_group_is_removed_with_those_that_its_job_made_below_it(tmp_path: Path) -> None:
    group = rm_cgroup.Group(str(tmp_path / "job_1_1"), {"pids": str(tmp_path / "gone")})
    (tmp_path / "job_1_1" / "pod" / "container").mkdir(parents=True)
    assert group.remove()
    assert not (tmp_path / "job_1_1").exists()


def test_a_removed_folder_takes_nothing_away_that_a_link_in_it_leads_to(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    folder = rm_spool.Folder(str(tmp_path / "1.1"), 1, 1)
    (tmp_path / "1.1" / "0").mkdir(parents=True)
    (tmp_path / "1.1" / "0" / "exit.json").touch()
    (tmp_path / "1.1" / "link").symlink_to(kept)
    folder.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "file").exists()


def test_who_enters_a_job_that_has_just_ended_is_told_that(tmp_path: Path) -> None:
    """Its step daemon has gone, the file of its socket not yet."""
    folder = rm_spool.Spool(str(tmp_path)).folder(7, 1)
    Path(folder.path).mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(folder.at(SOCKET))
    asked = {"job": 7, "attempt": 1, "session": "abcdefgh", "begin": {"argv": ["true"]}}
    done = subprocess.run(
        [sys.executable, str(AGENTS / "rm_agent.py"), "--attend"], input=json.dumps(asked) + "\n",
        env={"RM_AGENT_STATE": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert answer["code"] == "no-such-session"
    assert answer["error"].startswith("Job 7 does not run on ")


def test_a_door_that_could_not_be_made_can_be_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = rm_spool.Spool(str(tmp_path)).folder(7, 1)
    Path(folder.path).mkdir(parents=True)
    user = SimpleNamespace(uid=os.getuid(), gid=os.getgid())

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "")

    with monkeypatch.context() as full:
        full.setattr(os, "getuid", lambda: 0)
        full.setattr(os, "chown", refuse)
        with pytest.raises(OSError, match="28"):
            rm_step_process.listen(folder, user)
    rm_step_process.listen(folder, user).close()


@pytest.mark.parametrize(
    ("runs", "said"), [(True, "the host's disk takes nothing more"), (False, "does not run")]
)
def test_who_is_not_let_into_a_job_hears_whether_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: bool, said: str
) -> None:
    monkeypatch.setattr(rm_attend, "OPENS_S", 0.0)
    folder = rm_spool.Spool(str(tmp_path)).folder(7, 1)
    Path(folder.path).mkdir(parents=True)
    os.mkfifo(folder.at("control"))
    control, lock = os.open(folder.at("control"), os.O_RDWR), os.open(folder.path, os.O_RDONLY)
    if runs:
        rm_spool.fcntl.flock(lock, rm_spool.fcntl.LOCK_EX)
    asked = {"job": 7, "attempt": 1, "session": "abcdefgh", "begin": {"argv": ["true"]}}
    with pytest.raises(rm_spool.SpoolError, match=said):
        rm_attend._connected(str(tmp_path), asked)
    os.close(control)
    os.close(lock)


class Race:
    """The second of two agents asks while the first, which has looked already, is about to write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], object]) -> None:
        self.refused: list[str] = []
        self._ask, self._got_on = ask, threading.Event()
        self.second = threading.Thread(target=self._asks)
        flock = rm_spool.fcntl.flock
        monkeypatch.setattr(rm_spool.fcntl, "flock", lambda fd, how: self._waits(lambda: flock(fd, how)))
        for name in ("write_json", "write_in_room"):
            monkeypatch.setattr(rm_spool, name, partial(self._write, getattr(rm_spool, name)))

    def _asks(self) -> None:
        try:
            self._ask()
        except rm_spool.SpoolError as error:
            self.refused.append(error.code)

    def _waits(self, lock: Callable[[], None]) -> None:
        if threading.current_thread() is self.second:
            self._got_on.set()
        lock()

    def _write(self, write: Callable[..., None], *arguments: Any, **more: Any) -> None:
        if threading.current_thread() is self.second:
            write(*arguments, **more)
            self._got_on.set()
            return
        self.second.start()
        assert self._got_on.wait(PATIENCE_S)
        write(*arguments, **more)


def test_two_agents_of_one_machine_give_it_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (rm_spool.Spool(str(tmp_path)) for _ in range(2))
    assert [first.known_as(), second.known_as()] == ["", ""]
    names: list[str] = []
    race = Race(monkeypatch, lambda: names.append(second.take_name("h2", "")))
    names.append(first.take_name("h1", ""))
    race.second.join(PATIENCE_S)
    assert names == ["h1", "h1"]


def test_two_agents_of_one_machine_belong_to_one_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (rm_spool.Spool(str(tmp_path)) for _ in range(2))
    assert [first.cluster(), second.cluster()] == [("", ""), ("", "")]
    race = Race(monkeypatch, lambda: second.join("b", "there", ""))
    first.join("a", "here", "")
    race.second.join(PATIENCE_S)
    assert race.refused == ["foreign-cluster"]
    assert {spool.cluster() for spool in (first, second)} == {("a", "here")}
    monkeypatch.undo()
    second.join("b", "there", "a")  # adopted from it
    assert first.cluster() == ("b", "there")


def test_an_older_leader_never_overwrites_the_epoch_of_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (rm_spool.Spool(str(tmp_path)) for _ in range(2))
    race = Race(monkeypatch, lambda: second.check_epoch(6))
    first.check_epoch(7)
    race.second.join(PATIENCE_S)
    assert race.refused == ["stale-epoch"]
    assert [first.epoch(), rm_spool.Spool(str(tmp_path)).epoch()] == [7, 7]
