"""What the agent refuses to launch, and says of it."""

from __future__ import annotations

import errno
import os
import pwd

import pytest

from tests.agent_process import USER, Agent, Start, launch_request

root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")
SH = "#!/bin/sh\n"


@pytest.mark.parametrize(
    ("args", "ends", "words"),
    [
        ({"output": "/nonexistent/out"}, (0, 53), ["/nonexistent/out", "No such file"]),
        pytest.param({"output": "/etc/rm-test"}, (0, 53), ["/etc/rm-test", "Permission denied"], marks=root),
        ({"chdir": "/nonexistent", "chdir_required": True}, (1, 0), ["/nonexistent", "working directory"]),
        ({"script": "#!/no/such/shell\n"}, (errno.ENOENT, 0), ["/no/such/shell"]),
        ({"script": "echo\n"}, (errno.ENOEXEC, 0), ["interpreter line"]),
    ],
)
def test_a_start_that_fails_says_why(
    agent: Agent, args: dict[str, str], ends: tuple[int, int], words: list[str]
) -> None:
    """With the numbers that Slurm has for it."""
    agent.launch(**{"script": SH, **args})
    end = agent.event("exit", job=1)
    assert (end["code"], end["signal"] or 0, end["started_us"]) == (*ends, None)
    assert all(word in end["why"] for word in words), end["why"]


def test_a_missing_directory_is_replaced_and_that_is_said(agent: Agent) -> None:
    result = agent.launch(SH + "pwd", chdir="/nonexistent")["result"]
    agent.event("exit", job=1, code=0)
    assert agent.log().strip() == result["chdir"]
    assert "/nonexistent" in result["note"]


@root
def test_an_agent_for_jobs_only_takes_no_steps_and_no_job_of_root(start: Start) -> None:
    agent = start(options=["--jobs-only"])
    assert "steps" not in agent.hello["features"]
    for op in ("steps", "blob"):
        assert agent.ask(op)["code"] == "no-such-op"
    refused = agent.launch(SH + "id\n", user="root", allow_root=True)
    assert refused["code"] == "root-refused"
    assert agent.launch(SH + "id -un\n")["ok"]
    assert agent.event("exit", job=1)["code"] == 0
    of_root = dict(launch_request(SH + "id\n", 2, user="root", allow_root=True), not_after_us=1 << 62)
    asked = {"job": 2, "attempt": 1, "first": of_root, "followers": [], "within_us": 10**9}
    assert agent.ask("slice", **asked)["code"] == "root-refused"


@pytest.mark.parametrize("path", ["/tmp/x", "/etc/rm/../../tmp/x", "/etc/rmx", ["/etc/rm/x"]])
@pytest.mark.parametrize("key", ["prolog", "epilog"])
def test_an_agent_for_jobs_only_runs_no_program_of_the_callers_as_root(
    start: Start, key: str, path: object
) -> None:
    agent = start(options=["--jobs-only"])
    assert agent.launch(SH + "id\n", **{key: path})["code"] in ("not-permitted", "bad-request")
    first = dict(launch_request(SH + "id\n", 2, **{key: path}), not_after_us=1 << 62)
    asked = {"job": 2, "attempt": 1, "first": first, "followers": [], "within_us": 10**9}
    assert agent.ask("slice", **asked)["code"] in ("not-permitted", "bad-request")
    assert agent.tasks() == []


def test_the_first_host_chooses_a_port_that_nobody_can_guess_or_has(agent: Agent) -> None:
    show = SH + 'echo "$MASTER_PORT"'
    ports = set()
    for job in range(1, 9):
        reply = agent.launch(show, job=job, master_port=True)
        agent.event("exit", job=job, code=0)
        ports.add(reply["result"]["master_port"])
        assert agent.log(job) == f"{reply['result']['master_port']}\n"
    assert len(ports) > 4  # by chance two may be one
    assert all(20_000 <= port < 32_000 for port in ports)
    held = agent.launch(show, job=9, hold=True, master_port=True)["result"]["master_port"]
    assert agent.launch(show, job=9, hold=True, master_port=True)["result"]["master_port"] == held
    agent.launch(show, job=10, hold=True)  # another host of a gang
    for job, port in ((9, held), (10, 20_001)):
        agent.call("start", job=job, attempt=1, master_port=port)
        agent.event("exit", job=job, code=0)
        assert agent.log(job) == f"{port}\n"
    agent.launch(show, job=11)
    agent.event("exit", job=11, code=0)
    assert agent.log(11) == "\n"


def test_a_user_with_other_ids_here_is_refused_with_both(agent: Agent) -> None:
    account = pwd.getpwnam(USER)
    assert agent.launch(SH, uid=account.pw_uid, gid=account.pw_gid)["ok"]
    agent.event("exit", job=1, code=0)
    for job, ids in ((2, {"uid": 4_242, "gid": account.pw_gid}), (3, {"uid": account.pw_uid, "gid": 4_242})):
        reply = agent.launch(SH, job=job, **ids)
        assert reply["code"] == "uid-mismatch"
        assert "4242" in reply["error"]
        assert f"{account.pw_uid}:{account.pw_gid}" in reply["error"]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"user": "no-such-user-here"}, "no-such-user"),
        pytest.param({"user": "root", "allow_root": False}, "root-refused", marks=root),
        ({"tasks": []}, "bad-request"),
        ({"env": {"A": "b\0c"}}, "bad-request"),
        ({"job": "1"}, "bad-request"),
    ],
)
def test_a_refused_launch_leaves_nothing(agent: Agent, args: dict[str, object], code: str) -> None:
    reply = agent.launch(SH, **args)
    assert (reply["ok"], reply["code"]) == (False, code)
    assert list((agent.state / "jobs").iterdir()) == []
