"""What a user of a host tries against the agent there: its files, its memory, its life."""

from __future__ import annotations

import json
import os
import pwd
import select
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agent_process import AGENTS, USER, WAIT_S, Agent, Start, launch_request, until
from tests.steps_request import step

sys.path.insert(0, str(AGENTS))
from rm_task_orders import Orders
from rm_task_time import Deadlines

root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")
SH = "#!/bin/sh\n"
SECRET = "s3cret-of-root"


@pytest.fixture
def home(agent: Agent) -> Path:
    """A directory of the user's."""
    path = agent.state / "home"
    path.mkdir()
    account = pwd.getpwnam(USER)
    os.chown(path, account.pw_uid, account.pw_gid)
    return path


def secret_of(agent: Agent) -> Path:
    """A file that only root may read."""
    path = agent.state / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


def read(agent: Agent, stream: str = "out") -> str:
    """What `logs` gives of the first job: the data, or the code of the refusal."""
    reply = agent.ask("logs", job=1, attempt=1, rank=0, stream=stream, offset=0, limit=1 << 20)
    return str(reply["result"]["data"] if reply["ok"] else reply["code"])


@root
@pytest.mark.parametrize("stream", ["out", "err"])
def test_no_path_makes_the_agent_read_a_file_as_root(agent: Agent, stream: str) -> None:
    secret = secret_of(agent)
    through_the_spool = f"{agent.state}/jobs/1.1/0/../../../secret"
    assert os.path.normpath(through_the_spool) == str(secret)
    agent.launch(SH, **{"output" if stream == "out" else "error": through_the_spool})
    assert "Permission denied" in agent.event("exit", job=1)["why"]
    assert read(agent, stream) == ""


@root
@pytest.mark.parametrize("target", ["secret", "/proc/self/status", "/proc/1/environ", "loop", "fifo"])
def test_what_an_output_becomes_later_is_read_with_the_users_rights(
    agent: Agent, home: Path, target: str
) -> None:
    secret = secret_of(agent)
    os.mkfifo(home / "fifo")
    output = home / "out.log"
    agent.launch(SH + "exec sleep 600", output=str(output))
    until(output.exists, "the output is open")
    output.unlink()
    output.symlink_to({"secret": secret, "loop": output, "fifo": home / "fifo"}.get(target, target))
    assert read(agent) == ("" if target == "fifo" else "no-log")


def test_files_of_the_spool_are_no_outputs(agent: Agent, home: Path) -> None:
    home.joinpath("link").symlink_to(agent.state / "jobs" / "1.1" / "0")
    for job, output in ((1, f"{home}/link/reports.jsonl"), (2, f"{agent.state}/jobs/2.1/0/reports.jsonl")):
        agent.launch(SH, job=job, output=output)
        why = agent.event("exit", job=job)["why"]
        assert "cannot be written" in why
        assert "spool of rm" in why


def test_a_pipe_that_nobody_reads_is_refused_and_not_waited_for(agent: Agent, home: Path) -> None:
    os.mkfifo(home / "pipe")
    (home / "pipe").chmod(0o666)
    agent.launch(SH, output=str(home / "pipe"))
    assert "a pipe that nobody reads" in agent.event("exit", job=1)["why"]


def test_of_a_script_that_cannot_run_no_more_than_the_interpreters_path_is_told(agent: Agent) -> None:
    for job, first in enumerate((f"#!/bin/{SECRET}=1", f"#!/no/such/sh {SECRET}", f"#! {SECRET}"), 1):
        agent.launch(first + "\n", job=job)
        why = agent.event("exit", job=job)["why"]
        assert SECRET not in why
        assert "interpreter" in why
    agent.launch("#!/no/such/sh\n", job=9)
    assert "/no/such/sh" in agent.event("exit", job=9)["why"]


BOMBS = {
    "brackets": "print('[' * 100_000)",
    "digits": "print('[0,0,0,0,0,' + '9' * 100_000 + ']')",
    "a line without an end": "print('7' * 10_000_000, end='')",
    "objects": "print('{\"a\":' * 50_000)",
    "bytes": "sys.stdout.buffer.write(bytes(range(256)) * 1000)",
    "large": "print('[0,1,2,3,4,18446744073709551616]\\n[0,1,2,3,4,5,6]\\n[true,1,2,3,4,5]')",
    "another rank": "print('[77,1,2,3,4,5]')",
    "a hole": "os.truncate(os.environ['RM_REPORTS'], 1 << 40)",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_no_report_harms_the_agent_and_later_reports_count(agent: Agent, bomb: str) -> None:
    script = (
        SH + 'python3 -c "$1" >>"$RM_REPORTS"; echo laid\n'
        "until [ -e go ]; do sleep 0.02; done\n"
        # in a file with a hole these lie behind it
        'echo >>"$RM_REPORTS"; echo "[0, 1, 2, 3, 4, null]" >>"$RM_REPORTS"; exec sleep 600\n'
    )
    code = "import os, sys\n" + BOMBS[bomb]
    agent.launch(script, args=[code], chdir=str(agent.state), env={"PATH": os.environ["PATH"]})
    until(lambda: agent.log() == "laid\n", "the bomb is laid")
    (agent.state / "go").touch()
    told = agent.event("iterations", job=1)
    assert told["items"] == [[0, 1, 2, 3, 4, None]]
    assert agent.call("ping")["now_us"] > 0
    agent.end()


def test_a_file_of_reports_is_emptied_before_it_fills_the_disk(agent: Agent) -> None:
    lines = 'yes "[0, 1, 2, 3, 4, null]" | head -c 8000000'
    agent.launch(SH + f'{lines} >>"$RM_REPORTS"; echo written; exec sleep 600')
    until(lambda: agent.log() == "written\n", "it is written")
    reports = agent.state / "jobs" / "1.1" / "0" / "reports.jsonl"
    until(lambda: reports.stat().st_size < 4 << 20, "it is emptied")
    assert agent.tasks()[0]["cooperative"]
    assert all(len(e["items"]) < 5000 for e in agent.events if e["event"] == "iterations")


def test_who_looks_at_reports_reads_the_end_of_the_file_only(tmp_path: Path) -> None:
    """Also what pauses and profiles jobs: a file with a hole of terabytes is nothing to it."""
    script = (
        "import sys, resource\n"
        f"sys.path.insert(0, {str(AGENTS)!r})\n"
        "import rm_pause\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "print(len(rm_pause._report_files(1, 1)), rm_pause._reported_starts(1, 1))\n"
    )
    folder = tmp_path / "jobs" / "1.1" / "0"
    folder.mkdir(parents=True)
    with open(folder / "reports.jsonl", "wb") as file:
        file.truncate(1 << 42)
        file.seek(0, os.SEEK_END)
        file.write(b"\n[0, 1, 42, 3, 4, null]\n")
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"RM_AGENT_STATE": str(tmp_path), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1 [42]\n"


def test_a_request_that_is_too_long_is_refused_and_the_next_one_answered(agent: Agent) -> None:
    agent.send(b'{"id": 41, "op": "launch", "script": "' + b"x" * (9 << 20) + b'"}')
    reply = agent.answer(41)
    assert (reply["ok"], reply["code"]) == (False, "bad-request")
    assert "8 MiB" in reply["error"]
    agent.send(b'{"id": 42, "op": "ping", "x": ' + b"[" * 100_000 + b"}")
    assert agent.call("ping")["now_us"] > 0
    assert agent.end() == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"time_limit_us": 1 << 1100},
        {"grace_us": -1},
        {"mem_bytes_per_task": 1 << 60},
        {"tasks": [{"rank": True}]},
        {"tasks": [{"rank": 0, "env": [1]}]},
        {"script": SH + "\ud800"},
    ],
    ids=str,
)
def test_numbers_and_texts_beyond_reason_are_refused(agent: Agent, wrong: dict[str, object]) -> None:
    reply = agent.launch(**{"script": SH, **wrong})
    assert (reply["ok"], reply["code"]) == (False, "bad-request")
    assert list((agent.state / "jobs").iterdir()) == []


@pytest.mark.parametrize("days", [25, 50, 9000])
def test_a_long_time_limit_is_no_trouble(agent: Agent, days: int) -> None:
    agent.launch(SH + "exit 3", time_limit_us=days * 86_400_000_000)
    end = agent.event("exit", job=1)
    assert (end["code"], end["why"]) == (3, "")


@pytest.mark.parametrize("days", [25, 9000])
def test_a_supervisor_whom_nothing_else_wakes_waits_for_a_far_limit(days: int) -> None:
    """Where a control group keeps a job's highest memory, nobody looks at it now and then: poll(2) was given
    the whole time, and takes less than 25 days."""
    request = {"time_limit_us": days * 86_400_000_000, "warn_signal": 0}
    deadlines = Deadlines(SimpleNamespace(request=request))
    deadlines.begin()
    nobody: Any = None
    waits = Orders(nobody, nobody, deadlines, nobody, nobody, nobody)
    out, into = os.pipe()
    os.close(into)
    poll = select.poll()
    poll.register(out)
    assert poll.poll(waits.timeout_ms([]))
    os.close(out)


def test_a_damaged_folder_is_set_aside_and_the_others_are_found(agent: Agent, start: Start) -> None:
    agent.launch(SH + "exec sleep 600", job=2)
    agent.end()
    for job, meta in ((1, "[" * 100_000), (3, json.dumps({"tasks": 5})), (4, "[]")):
        folder = agent.state / "jobs" / f"{job}.1" / "0"
        folder.mkdir(parents=True)
        (folder.parent / "meta.json").write_text(meta)
    again = start()
    assert 2 in {task["job"] for task in again.tasks()}
    reply = again.ask("stop", **{**launch_request(SH, 2, 1), "why": "cancel", "grace_us": 0})
    assert reply["ok"]
    again.event("exit", job=2, why="cancel")


def test_a_peer_that_asks_and_does_not_listen_costs_no_memory(agent: Agent) -> None:
    process = subprocess.Popen(
        [sys.executable, "-S", "-E", AGENTS / "rm_agent.py", "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"RM_AGENT_STATE": str(agent.state), "PATH": os.environ["PATH"]},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()  # its hello
    written = 0

    def ask() -> None:
        nonlocal written
        for number in range(150):  # each is answered by a refusal as long as itself
            process.stdin.write(json.dumps({"id": number, "op": "x" * (1 << 20)}).encode() + b"\n")
            process.stdin.flush()
            written += 1

    asking = threading.Thread(target=ask)
    asking.start()
    seen = -1
    while seen != written:  # until the agent takes no more
        seen = written
        asking.join(1.0)
    status = Path(f"/proc/{process.pid}/status").read_text()
    assert int(status.split("VmHWM:")[1].split()[0]) < 100 << 10  # KiB
    answers = [json.loads(process.stdout.readline())["id"] for _ in range(150)]
    assert answers == list(range(150))
    asking.join()
    process.stdin.close()
    process.stdout.close()
    assert process.wait(WAIT_S) == 0


@root
@pytest.mark.parametrize("umask", [0o077, 0])
def test_the_umask_of_a_login_neither_locks_jobs_out_nor_opens_their_folders(
    start: Start, umask: int
) -> None:
    """A careful sshd kept users out of the folders of their own jobs."""
    before = os.umask(umask)
    try:
        agent = start()
    finally:
        os.umask(before)
    agent.launch(SH + "umask; cat $0 >/dev/null && echo read; exec 2>&1; touch $RM_REPORTS")
    assert agent.event("exit", job=1)["code"] == 0
    assert agent.log() == "0022\nread\n"
    opened = [path for path in agent.state.rglob("*") if path.lstat().st_mode & 0o022 and path.is_dir()]
    assert opened == []
    copied = agent.state / "copied"
    made = agent.call("steps", steps=[step(1, "copy", dest=str(copied), content="x")])
    assert made["results"][0]["changed"]
    assert copied.stat().st_mode & 0o777 == 0o666 & ~umask  # as Ansible makes it there
