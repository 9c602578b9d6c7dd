"""Playbook steps in a real agent: in nobody's way, outside its group, and never half done."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.agent_process import AGENTS, WAIT_S, Agent, Start, until
from tests.steps_request import step


def request(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"steps": list(steps), "check": False, "diff": False, "planned": {}}


@pytest.fixture
def held(tmp_path: Path) -> dict[str, Any]:
    """A step that waits until somebody opens its fifo, and one that comes after it."""
    os.mkfifo(tmp_path / "go")
    said = f"echo > {tmp_path}/begun; cat {tmp_path}/go; echo > {tmp_path}/ended"
    return request(step(1, "shell", _raw=said), step(2, "copy", dest=f"{tmp_path}/never", content="x"))


def release(place: Path) -> None:
    with open(place / "go", "w"):
        pass


def test_a_long_step_is_in_nobodys_way(agent: Agent, held: dict[str, Any], tmp_path: Path) -> None:
    long = agent.begin("steps", **held)
    until((tmp_path / "begun").exists, "the step has begun")
    assert agent.call("ping")["now_us"] > 0
    assert agent.launch("#!/bin/sh\necho hello\n")["ok"]
    assert agent.event("exit", job=1)["code"] == 0
    other = agent.call("steps", **request(step(1, "ping")))
    assert other["results"][0]["ping"] == "pong"
    assert not (tmp_path / "ended").exists()
    release(tmp_path)
    assert [one["failed"] for one in agent.answer(long)["result"]["results"]] == [False, False]


def test_steps_that_are_given_up_end_after_the_one_under_way(
    agent: Agent, held: dict[str, Any], tmp_path: Path
) -> None:
    number = agent.begin("steps", **held)
    until((tmp_path / "begun").exists, "the step has begun")
    agent.call("cancel", request=number)
    release(tmp_path)
    answer = agent.answer(number)["result"]
    assert ([one["id"] for one in answer["results"]], answer["cut"]) == ([1], True)
    assert (tmp_path / "ended").exists()
    assert not (tmp_path / "never").exists()


def test_the_end_of_the_agent_leaves_no_step_half_done(
    agent: Agent, held: dict[str, Any], tmp_path: Path
) -> None:
    agent.begin("steps", **held)
    until((tmp_path / "begun").exists, "the step has begun")
    assert agent.end() == 0
    release(tmp_path)
    until((tmp_path / "ended").exists, "the step is finished")
    assert not (tmp_path / "never").exists()


def test_what_steps_start_is_no_part_of_the_agent_and_can_be_interrupted(start: Start) -> None:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTTOU})
    ignored = signal.signal(signal.SIGTTIN, signal.SIG_IGN)
    try:
        agent = start()
    finally:
        signal.signal(signal.SIGTTIN, ignored)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    # not by a shell, which might put the signals right itself
    asked = "grep -h . /proc/self/cgroup /proc/self/status"
    (answer,) = agent.call("steps", **request(step(1, "command", _raw=asked)))["results"]
    mine = Path("/proc/self/cgroup").read_text().splitlines()
    assert [line for line in answer["stdout_lines"] if line in mine] == mine
    masks = [int(line.split()[1], 16) for line in answer["stdout_lines"] if line[:6] in ("SigIgn", "SigBlk")]
    named = (1 << 31) - 1  # glibc keeps signals 32 and 33 to itself: those stay as the tests found them
    assert [mask & named for mask in masks] == [0, 0]


def carrier(agent: Agent, **environment: str) -> tuple[int, str]:
    """The process that carries steps out, and what a step sees of the environment."""
    asked = {**step(1, "shell", _raw="echo $PPID $LEFT"), "environment": environment}
    (answer,) = agent.call("steps", **request(asked))["results"]
    pid, _, left = answer["stdout"].partition(" ")
    return int(pid), left


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_requests_one_after_the_other_are_carried_out_by_one_process(agent: Agent) -> None:
    first, left = carrier(agent, LEFT="behind")
    assert left == "behind"
    assert carrier(agent) == (first, "")
    refused = agent.ask("steps", steps=[{"id": 1}])
    assert (refused["ok"], refused["code"]) == (False, "defect")
    assert carrier(agent) == (first, "")
    agent.end()
    until(lambda: gone(first), "it ends with the agent")


def test_a_request_beside_another_or_a_long_one_has_a_process_of_its_own(
    agent: Agent, held: dict[str, Any], tmp_path: Path
) -> None:
    first, _ = carrier(agent)
    long = agent.begin("steps", **held)  # carried out by the same
    until((tmp_path / "begun").exists, "the step has begun")
    beside, _ = carrier(agent)
    assert beside != first
    release(tmp_path)
    assert agent.answer(long)["ok"]
    content = "long " * 50_000
    told = agent.call("steps", **request(step(1, "copy", dest=f"{tmp_path}/long", content=content)))
    assert (told["results"][0]["failed"], (tmp_path / "long").read_text()) == (False, content)
    assert carrier(agent)[0] in (first, beside)  # which wait, as does the one with the long request


def test_a_process_that_was_told_to_end_or_was_killed_gets_no_further_request(
    agent: Agent, held: dict[str, Any], tmp_path: Path
) -> None:
    first, _ = carrier(agent)
    number = agent.begin("steps", **held)
    until((tmp_path / "begun").exists, "the step has begun")
    agent.call("cancel", request=number)
    release(tmp_path)
    assert agent.answer(number)["result"]["cut"]
    until(lambda: gone(first), "it has ended")
    second, _ = carrier(agent)
    os.kill(second, signal.SIGKILL)
    until(lambda: gone(second), "it was killed, and the agent has seen it")
    assert carrier(agent)[0] != second


def test_an_agent_whose_files_were_replaced_takes_no_steps(start: Start, tmp_path: Path) -> None:
    files = tmp_path / "agents"
    shutil.copytree(AGENTS, files, ignore=shutil.ignore_patterns("__pycache__"))
    agent = start(files=files)
    executor = agent.hello["features"]["steps"]
    assert agent.call("steps", **request(step(1, "ping")))["results"][0]["ping"] == "pong"
    new = files / "rm_steps_base.py.new"
    new.write_text((files / "rm_steps_base.py").read_text() + "\n# another version\n")
    new.rename(files / "rm_steps_base.py")
    refused = agent.ask("steps", **request(step(1, "ping")))
    assert (refused["ok"], refused["code"]) == (False, "replaced")
    assert agent.call("ping")["now_us"] > 0
    agent.end()
    again = start(files=files)
    assert again.hello["features"]["steps"] != executor
    assert again.call("steps", **request(step(1, "ping")))["results"][0]["ping"] == "pong"


def test_an_agent_ends_when_others_were_installed_and_its_jobs_go_on(start: Start, tmp_path: Path) -> None:
    def install(name: str, text: str) -> None:
        (files / "new").write_text(text)
        (files / "new").rename(files / name)

    files = tmp_path / "agents"
    shutil.copytree(AGENTS, files, ignore=shutil.ignore_patterns("__pycache__"))
    install("VERSION", "1.0\n")
    agent = start(files=files)
    agent.launch("#!/bin/sh\nuntil [ -e go ]; do sleep 0.02; done", chdir=str(agent.state))
    install("VERSION", "1.1\n")  # with the same programs
    for _ in range(2):
        agent.call("ping")
    install("rm_steps_base.py", (AGENTS / "rm_steps_base.py").read_text() + "\n# another version\n")
    for _ in range(2):
        agent.call("ping")  # more files may come
    install("VERSION", "1.2\n")
    assert agent.call("ping")["now_us"] > 0
    assert agent.process.wait(WAIT_S) == 0
    again = start(files=files)
    assert again.hello["version"] != agent.hello["version"]
    assert [task["state"] for task in again.tasks()] == ["running"]
    (agent.state / "go").touch()
    assert again.event("exit", job=1)["code"] == 0


def test_the_process_that_waits_for_further_steps_ends_by_itself(agent: Agent) -> None:
    waiting, _ = carrier(agent)
    until(lambda: gone(waiting), "the idle process has ended")
    assert carrier(agent)[0] != waiting
