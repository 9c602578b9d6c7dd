"""What takes long says so, also where there is no terminal."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import click
import pytest

from rm.adapters.store.opening import open_store
from rm.cli.backup import restore, upgrade
from rm.cli.heartbeat import EVERY_S, Heartbeat
from rm.cli.main import run
from rm.cli.playbook.lines import Lines
from rm.cli.session import Session
from rm.errors import RmError
from rm.playbook.model.steps import TaskResult
from rm.playbook.run.report import Progress
from tests.cluster import until
from tests.fakes import PATIENCE_S


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_word_comes_when_nothing_was_said_for_long(capsys: pytest.CaptureFixture[str]) -> None:
    clock, doing = Clock(), ["counting"]
    heart = Heartbeat(lambda: doing[0], clock)
    heart.beat()
    clock.now_s += EVERY_S
    heart.spoke()
    clock.now_s += EVERY_S - 1
    heart.beat()
    assert capsys.readouterr().err == ""
    clock.now_s += 1
    heart.beat()
    heart.beat()
    assert capsys.readouterr().err == "    8 s  counting\n"
    clock.now_s, doing[0] = clock.now_s + EVERY_S, ""
    heart.beat()
    assert capsys.readouterr().err == ""
    assert EVERY_S < 5


def test_what_cannot_beat_soon_says_at_once_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with Heartbeat(lambda: "loading", Clock(), at_once=True):
        assert capsys.readouterr().err == "    0 s  loading\n"


@pytest.mark.parametrize(
    ("command", "words", "said"), [(restore, ["copy"], "is restored"), (upgrade, [], "is upgraded")]
)
def test_what_loads_a_database_says_so_before_its_libraries(
    command: click.Command,
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "rm.bootstrap.database", None)  # no import gets behind it
    with pytest.raises(ModuleNotFoundError):
        command.main(words, standalone_mode=False, obj=Session(None, None))
    assert said in capfd.readouterr().err


def test_it_beats_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rm.cli.heartbeat.EVERY_S", 0.0)
    monkeypatch.setattr("rm.cli.heartbeat.LOOK_S", 0.001)
    import threading

    asked = threading.Event()

    def doing() -> str:
        asked.set()
        return ""

    with Heartbeat(doing):
        assert asked.wait(PATIENCE_S)


def test_the_lines_of_a_playbook_name_the_hosts_that_take_long(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = Lines(False, clock)
    lines.tell(Progress("play", "Drain", hosts=("a", "b")))
    for name in ("d", "a", "b", "c"):
        lines.tell(Progress("start", f"Restart\x1b {name}", hosts=(name,)))
        clock.now_s += 1
    lines.tell(Progress("task", result=TaskResult("b", "Drain", "Restart", "reboot", "ok")))
    capsys.readouterr()
    lines.heartbeat.beat()
    said = "d: Restart? d (4 s), a: Restart? a (3 s), c: Restart? c (1 s)"
    assert capsys.readouterr().err == f"    4 s  {said}\n"
    lines.tell(Progress("start", "Restart", hosts=("e",)))
    assert lines.doing().endswith(", and 1 more hosts")
    clock.now_s += 3
    lines.tell(Progress("task", result=TaskResult("a", "Drain", "Restart", "reboot", "changed")))
    clock.now_s += 3
    lines.heartbeat.beat()
    assert "4 s  " not in capsys.readouterr().err


QUESTION = {
    "capacity_mbps": 1,
    "jobs": [{"name": "a", "period_ms": 9, "duty_cycle": 0.3, "bandwidth_mbps": 1}],
}


@pytest.mark.parametrize(
    ("words", "slow", "said"),
    [
        (("backup", "FOLDER/copy"), "rm.adapters.store.backup.back_up_to", "the database is copied to"),
        (
            ("restore", "FOLDER/old"),
            "rm.bootstrap.database.restore_database",
            "the database is restored from",
        ),
        (("upgrade",), "rm.bootstrap.database.upgrade_database", "the database is upgraded"),
        (("upgrade", "--check"), "rm.bootstrap.database.look", "a copy of the database is upgraded"),
        (("sim", "replay", "--export", "FOLDER/j"), "rm.sim.journal_source.export", "is exported"),
        (("sim", "replay"), "rm.sim.replay.verify", "is replayed"),
        (("sim", "replay", "--queue=fifo"), "rm.sim.recording.read", "and with the others"),
        (
            ("interleave", "FOLDER/jobs.json"),
            "rm.policies.interleave.answer.answer",
            "time-shifts are searched",
        ),
    ],
)
def test_a_command_that_takes_long_is_not_silent(
    words: tuple[str, ...],
    slow: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """What `slow` names goes on only when the command has said something, and then fails."""
    url, beaten, beat = f"sqlite:///{tmp_path}/rm.sqlite3", threading.Event(), Heartbeat.beat
    open_store(url).close()
    (tmp_path / "rm.toml").write_text(
        f'[daemon]\nsocket = "{tmp_path}/rm.sock"\nstate_dir = "{tmp_path}"\ndatabase = "{url}"\n'
    )
    (tmp_path / "jobs.json").write_text(json.dumps(QUESTION))
    monkeypatch.setattr("rm.cli.heartbeat.EVERY_S", 0.0)
    monkeypatch.setattr("rm.cli.heartbeat.LOOK_S", 0.001)

    def beats(self: Heartbeat) -> None:
        beat(self)
        beaten.set()

    def waits(*_: Any, **__: Any) -> None:
        beaten.clear()
        assert beaten.wait(PATIENCE_S)
        raise RmError("Enough.")

    monkeypatch.setattr(Heartbeat, "beat", beats)
    monkeypatch.setattr(slow, waits)
    named = [word.replace("FOLDER", str(tmp_path)) for word in words]
    assert run(["--config", str(tmp_path / "rm.toml"), *named]) == RmError.exit_code
    told = capfd.readouterr().err
    assert said in told
    assert "Enough." in told


@pytest.mark.parametrize("sent", ["", "    delegate_to: localhost\n"], ids=["with-others", "alone"])
def test_a_host_is_named_at_its_task_also_behind_tasks_that_it_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, sent: str
) -> None:
    monkeypatch.setattr("rm.cli.heartbeat.EVERY_S", 0.0)
    monkeypatch.setattr("rm.cli.heartbeat.LOOK_S", 0.01)
    play = tmp_path / "play.yml"
    play.write_text(
        "- hosts: all\n  connection: local\n  gather_facts: false\n  tasks:\n"
        "  - name: Skipped\n    command: 'true'\n    when: false\n"
        f"  - name: Slow\n    shell: until [ -e {tmp_path}/go ]; do sleep 0.05; done\n{sent}"
    )
    codes: list[int] = []
    words = ["playbook", "run", str(play), "-i", "localhost,", "--no-record"]
    thread = threading.Thread(target=lambda: codes.append(run(words)))
    thread.start()
    try:
        until(lambda: ": Slow (" in capsys.readouterr().err, "it is named")
    finally:
        (tmp_path / "go").touch()
        thread.join(PATIENCE_S)
    assert codes == [0]
