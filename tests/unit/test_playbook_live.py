"""The live view of a playbook run: what it draws at which size, and a run in a real pseudo-terminal."""

import io
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from rm.cli.playbook.live import LiveView, wanted
from rm.playbook.model.steps import TaskResult
from rm.playbook.run.report import Progress

RMX = Path(sys.executable).with_name("rmx")


def drawn(events, height=24, width=100, now_s=75.0):
    """The lines of the view after these events, which all came at 10 s."""
    clock = iter([10.0] * (len(events) + 1) + [now_s])
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    view = LiveView(False, console, lambda: next(clock))
    for event in events:
        view._note(event)
    with console.capture() as shown:
        console.print(view._group(height - 1, now_s))
    return shown.get().splitlines()


def start(host, task, more=0):
    return Progress("start", task, hosts=(host,), more=more)


def done(host, task, status, **given):
    return Progress("task", result=TaskResult(host, "p", task, "m", status, **given))


def test_a_few_hosts_have_a_row_each_with_what_they_do():
    events = [
        Progress("play", "Set up", hosts=("a", "b", "c")),
        *(start(host, "Install", 2) for host in "abc"),
        done("a", "Install", "changed"),
        done("b", "Install", "failed"),
        start("a", "Configure"),
    ]
    head, tasks, install, hosts, *rows = drawn(events)
    assert head.split() == ["Set", "up", "1:05", "3", "hosts,", "2", "at", "work,", "1", "failed"]
    assert tasks.split() == ["TASK", "OK", "CHANGED", "FAILED", "SKIPPED"]
    assert install.split() == ["Install", "·", "1", "1", "·"]
    assert hosts.split() == ["HOST", "NOW", "FOR", "OK", "CHANGED", "FAILED"]
    assert [row.split() for row in rows] == [
        ["a", "Configure", "1:05", "·", "1", "·"],
        ["b", "failed", "·", "·", "1"],
        ["c", "Install", "(+2)", "1:05", "·", "·", "·"],
    ]


@pytest.mark.parametrize("number", [1, 18, 24, 1000])
@pytest.mark.parametrize("height", [6, 24])
def test_it_never_grows_beyond_the_terminal(number, height):
    names = tuple(f"host{i:04}" for i in range(number))
    events = [Progress("play", "Set up\x1b[2J", hosts=names)]
    for task in range(20):
        events += [done(name, f"Task {task} " + "long " * 40, "ok") for name in names]
    events += [start(name, "The last") for name in names[-3:]]
    lines = drawn(events, height, 60)
    assert len(lines) <= height - 1
    assert all(len(line) <= 60 for line in lines)
    assert "\x1b[2J" not in "".join(lines)
    shown = {line.split()[0] for line in lines if line.startswith("host")}
    left_out = [line for line in lines if line.startswith("…")]
    assert len(shown) + (int(left_out[0].split()[2]) if left_out else 0) == number
    if height == 24:
        assert set(names[-3:]) <= shown  # who is at work is never left out
        assert any(line.startswith("Task 19") for line in lines)


def test_lines_are_chosen_off_a_terminal(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert wanted({"TERM": "xterm"}, False)
    assert not wanted({"TERM": "xterm"}, True)
    assert not wanted({"TERM": "dumb"}, False)
    assert not wanted({"TERM": "xterm", "CI": "true"}, False)


PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  vars_prompt: [{name: word, prompt: Which word, private: true}]
  tasks:
    - copy: {content: "{{ word }}\\n", dest: "DIR/file"}
      diff: true
    - name: Ask
      pause: {prompt: Go on}
      register: answer
    - debug: {msg: "typed {{ answer.user_input }}"}
    - command: "false"
"""


class Terminal:
    """`rmx` on a pseudo-terminal: everything that it writes there, and someone who types."""

    def __init__(self, *argv, **environ):
        self.seen = ""
        env = {k: v for k, v in os.environ.items() if k not in ("CI", "NO_COLOR", "TERM")}
        leader, follower = pty.openpty()
        self.leader = leader
        self.process = subprocess.Popen(
            [RMX, *map(str, argv)], stdin=follower, stdout=subprocess.PIPE, stderr=follower,
            env={**env, "TERM": "xterm-256color", **environ}, start_new_session=True, text=True,
        )  # fmt: skip
        os.close(follower)

    def until(self, words, wait_s=60):
        """Read until this was written since the last call."""
        deadline, begin = time.monotonic() + wait_s, len(self.seen)
        while words is None or words not in self.seen[begin:]:
            left = deadline - time.monotonic()
            assert left > 0, f"never {words!r} in {self.seen[begin:]!r}"
            if not select.select([self.leader], [], [], left)[0]:
                continue
            try:
                part = os.read(self.leader, 65536)
            except OSError:  # the other side is closed
                part = b""
            if not part:
                assert words is None, f"never {words!r} in {self.seen[begin:]!r}"
                return
            self.seen += part.decode(errors="replace")

    def type(self, text):
        os.write(self.leader, text.encode())

    def end(self):
        """(exit code, standard output)"""
        reader = threading.Thread(target=self.until, args=(None,))
        reader.start()
        out, _ = self.process.communicate(timeout=60)
        reader.join(60)
        os.close(self.leader)
        return self.process.returncode, out


@pytest.fixture
def play(tmp_path):
    path = tmp_path / "play.yml"
    path.write_text(PLAY.replace("DIR", str(tmp_path)))
    (tmp_path / "rm.toml").write_text(f'[daemon]\nstate_dir = "{tmp_path}/state"\n')
    return ["--config", tmp_path / "rm.toml", "playbook", "run", path, "-i", "localhost,", "--diff"]


def test_a_run_on_a_terminal_draws_asks_and_leaves_lines(play, tmp_path):
    terminal = Terminal(*play)
    terminal.until("Which word: ")
    terminal.type("abracadabra\n")
    terminal.until("Go on:")
    terminal.type("yes\n")
    code, out = terminal.end()
    assert (code, (tmp_path / "file").read_text()) == (2, "abracadabra\n")
    assert re.fullmatch(r"localhost : ok=3  changed=1  unreachable=0  failed=1 .*\n", out)
    seen = terminal.seen
    assert "\x1b[2K" in seen  # lines were drawn over
    assert "\x1b[33m" in seen  # in colour
    assert "at work" in seen
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    assert "+abracadabra" in plain  # the diff stays
    assert plain.count("abracadabra") == 1  # and what was typed was not echoed
    assert "localhost: ok        debug: typed yes" in plain
    assert "localhost: failed    command" in plain
    assert seen.rstrip().endswith("\x1b[?25h") or "\x1b[?25h" in seen  # the cursor is back


def test_a_plain_terminal_gets_lines_without_colours(play, tmp_path):
    terminal = Terminal(*play, "-e", "word=x", TERM="dumb")
    terminal.until("Go on:")
    terminal.type("\n")
    assert terminal.end()[0] == 2
    assert "\x1b" not in terminal.seen
    assert "localhost: failed    command" in terminal.seen


def test_ctrl_c_ends_a_question(play):
    terminal = Terminal(*play, "-e", "word=x")
    terminal.until("Go on:")
    terminal.process.send_signal(2)
    code, out = terminal.end()
    assert code == 130
    assert "not finished: localhost" in out
