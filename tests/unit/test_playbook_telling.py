"""What `rmx playbook run` tells the daemon of a run in a shell: all of it, once, and without secrets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm.api.playbooks import NOTES_MOST
from rm.cli.playbook import telling as module
from rm.cli.playbook.telling import Telling
from rm.cli.playbook.work import MESSAGE_MOST
from rm.errors import Unreachable
from rm.playbook.model.steps import TaskResult
from rm.playbook.run.report import Progress, Report
from tests.command_line import Rmx

RUN = {"id": 7, "playbook": "/srv/site.yml", "by": "ann", "state": "running", "asked_us": 1, "options": {}}


class Daemon:
    """A session, and the daemon that it reaches; `told` are the bodies of its requests. The answers to the
    first `lost` of them get lost."""

    def __init__(self, lost: int = 0, before: Callable[[], None] = lambda: None) -> None:
        self.told: list[dict[str, Any]] = []
        self.lost = lost
        self.before = before
        self.address = "/run/rm.sock"

    def new_connection(self) -> Any:
        return SimpleNamespace(open=self.before, close=lambda: None, ask=self.ask, address=self.address)

    def ask(self, method: str, path: Any, query: Any, body: bytes, within_s: Any) -> bytes:
        if path[-1] == "progress":
            self.told.append(json.loads(body))
            self.lost -= 1
            if self.lost >= 0:
                raise Unreachable("The answer is lost.")
        return json.dumps({"run": RUN, "api_version": 1}).encode()


def run(daemon: Daemon, *events: Progress) -> list[str]:
    """The notes that a run with these events makes."""
    notes: list[str] = []
    telling = Telling(daemon, {"playbook": "/srv/site.yml"}, set(), notes.append)  # type: ignore[arg-type]
    for event in events:
        telling.tell(event)
    telling.finish(Report("p", False))
    return notes


def test_of_many_notes_each_request_has_as_many_as_the_daemon_takes() -> None:
    daemon = Daemon()
    assert run(daemon, *(Progress("note", str(n)) for n in range(250))) == []
    assert [note for one in daemon.told for note in one["notes"]] == [str(n) for n in range(250)]
    assert max(len(one["notes"]) for one in daemon.told) <= NOTES_MOST
    assert daemon.told[-1]["end"]["state"] == "ok"


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_defect_of_the_record_is_one_note_and_no_traceback() -> None:
    def defect() -> None:
        raise ValueError("no number")

    (note,) = run(Daemon(before=defect), Progress("note", "hello"))
    assert note.startswith("The daemon keeps no report of this run: rm met a defect of its own")


def test_a_batch_whose_answer_is_lost_is_sent_again_under_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    daemon = Daemon(lost=2)
    assert run(daemon, *(Progress("note", str(n)) for n in range(101))) == []
    assert [one["batch"] for one in daemon.told] == [1, 1, 1, 2]
    assert daemon.told[0] == daemon.told[2]


def test_where_a_message_is_cut_no_part_of_a_password_is_left() -> None:
    daemon, secret = Daemon(), "hunter2-of-the-mirror"
    telling = Telling(daemon, {"playbook": "/srv/site.yml"}, set(), print)  # type: ignore[arg-type]
    telling.hide(secret)
    message = "x" * (MESSAGE_MOST - 8) + secret
    telling.tell(Progress("task", result=TaskResult("h1", "Play", "Task", "command", "ok", message=message)))
    telling.finish(Report("p", False))
    (outcome,) = [one for told in daemon.told for one in told["outcomes"]]
    assert outcome["message"] == "x" * (MESSAGE_MOST - 8) + "********"


PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - debug: {msg: "{{ ansible_become_password }} {{ ansible_ssh_pass }} {{ ansible_password }} {{ word }}"}
"""


def test_passwords_among_extra_variables_are_not_told(
    rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, (file, extra, config) = Daemon(), (tmp_path / name for name in ("p.yml", "extra.yml", "rm.toml"))
    monkeypatch.setattr("rm.cli.playbook.playbook._may_answer", lambda session: True)
    monkeypatch.setattr("rm.cli.session.Session.new_connection", lambda session: daemon.new_connection())
    file.write_text(PLAY)
    extra.write_text("ansible_ssh_pass: of-a-file\n")
    config.write_text(f'[daemon]\nstate_dir = "{tmp_path}/state"\n')
    given = ("ansible_become_password=of-words word=shown", f"@{extra}", '{"ansible_password": "of-json"}')
    options = [text for one in given for text in ("-e", one)]
    done = rmx("--config", str(config), "playbook", "run", str(file), "-i", "localhost,", *options)
    assert done.code == 0, done.err
    (outcome,) = [one for told in daemon.told for one in told["outcomes"]]
    assert "******** ******** ******** shown" in outcome["message"]
