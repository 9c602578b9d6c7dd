"""Tasks that begin without a fork: what they are at their first instruction, and when they are forked."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "agents"))
import rm_spawn

NOBODY = pwd.getpwnam("nobody")
ME = os.geteuid()
TOLD = """\
echo "$SLURM_TASK_PID $$ $PWD $GREETING $1"
read words < /proc/self/stat && set -- $words && [ "$6" = $$ ] && echo its own session
grep -E '^(Uid|Gid|Groups|SigIgn|Umask):' /proc/self/status | tr '\\t' ' '
ulimit -n; readlink /proc/self/fd/0
"""

pytestmark = pytest.mark.skipif(rm_spawn.code() is None, reason="tasks are forked on this processor")


def spawned(out: int, chdir: str = "/", script: str = TOLD) -> Any:
    user = SimpleNamespace(uid=NOBODY.pw_uid, gid=NOBODY.pw_gid, groups=[NOBODY.pw_gid])
    arguments = ["-c", script, "sh", "an argument"]
    environ = {"GREETING": "good day", "SLURM_TASK_PID": "1"}
    return rm_spawn.Spawned(user, chdir, out, (100, 200), "/bin/sh", arguments, environ, rm_spawn.Texts())


def output(entrance: int, exit_: int, task: Any) -> tuple[str, int]:
    os.close(entrance)
    with os.fdopen(exit_) as words:
        said = words.read()
    return said, os.waitstatus_to_exitcode(os.waitpid(task.pid, 0)[1])


def test_a_task_is_its_user_in_its_directory_with_its_limits_and_environment() -> None:
    exit_, entrance = os.pipe()
    task = spawned(entrance)
    assert task.begin(-1, []) > 0
    said, code = output(entrance, exit_, task)
    lines = said.splitlines()
    assert (code, task.failed()) == (0, False)
    assert lines[0] == f"{task.pid} {task.pid} / good day an argument"
    assert lines[1] == "its own session"
    facts = dict(line.split(": ", 1) for line in lines[2:-2])
    uid, gid = (NOBODY.pw_uid, NOBODY.pw_gid) if ME == 0 else (ME, os.getgid())
    assert facts["Uid"].split() == [str(uid)] * 4
    assert facts["Gid"].split() == [str(gid)] * 4
    if ME == 0:
        assert facts["Groups"].split() == [str(gid)]
    assert facts["Umask"] == "0022"
    assert lines[-2:] == ["100", "/dev/null"]


def test_a_number_of_a_process_that_was_submitted_is_not_the_tasks() -> None:
    """It came first, and programs other than shells read the first."""
    exit_, entrance = os.pipe()
    task = spawned(entrance, script="tr '\\0' '\\n' < /proc/$$/environ | grep ^SLURM_TASK_PID=")
    assert task.begin(-1, []) > 0
    assert output(entrance, exit_, task) == (f"SLURM_TASK_PID={task.pid}\n", 0)


@pytest.mark.parametrize("what", ["chdir", "door"])
def test_what_cannot_be_done_before_exec_is_seen(what: str, tmp_path: Path) -> None:
    exit_, entrance = os.pipe()
    task = spawned(entrance, str(tmp_path / "missing") if what == "chdir" else "/")
    assert task.begin(-1, [exit_] if what == "door" else []) > 0  # nobody writes to the end that reads
    assert output(entrance, exit_, task) == ("", 1)
    assert task.failed()


@pytest.mark.parametrize("says", ["1\n", None])
def test_where_users_may_read_memory_that_they_share_tasks_are_forked(
    says: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "suid_dumpable"
    if says is not None:
        file.write_text(says)
    monkeypatch.setattr(rm_spawn, "SUID_DUMPABLE", str(file))
    exit_, entrance = os.pipe()
    assert spawned(entrance).begin(-1, []) < 0
    os.close(entrance)
    assert os.read(exit_, 1) == b""
    os.close(exit_)


@pytest.mark.skipif(ME != 0, reason="needs root: it becomes another user")
def test_memory_that_is_shared_with_a_user_is_closed_to_the_user() -> None:
    """The child stands still before exec, where it opens a pipe that nobody writes to."""
    exit_, entrance = os.pipe()
    task = spawned(entrance)
    waiting, go = os.pipe()
    kept = rm_spawn.ctypes.create_string_buffer(8)
    before_exec = len(task.own.words) - rm_spawn.WORDS
    read = [0, waiting, rm_spawn.ctypes.addressof(kept), 1, 0, 0]
    task.own.words[before_exec:before_exec] = read
    assert task.begin(-1, []) > 0
    while _uid_of(task.pid) != NOBODY.pw_uid:
        os.sched_yield()
    looked = os.fork()
    if looked == 0:
        os.setgroups([])
        os.setgid(NOBODY.pw_gid)
        os.setuid(NOBODY.pw_uid)
        try:
            Path(f"/proc/{task.pid}/mem").open("rb").close()
        except OSError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(looked, 0)[1]) == 7
    os.write(go, b"x")
    assert output(entrance, exit_, task)[1] == 0
    os.close(go)
    os.close(waiting)


def _uid_of(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    raise AssertionError(pid)
