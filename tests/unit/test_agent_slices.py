"""A slice on a host: elements of a job array that one supervisor runs one after the other."""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.agent_process import Agent, Start, launch_request, until

SH = "#!/bin/sh\n"
LONG_US = 600_000_000
WAITS = SH + 'echo "$N runs"; [ "$N" != "$STOPS" ] || until [ -e go ]; do sleep 0.02; done; exit $((N % 2))\n'


def hand_out(agent: Agent, jobs: range, script: str = WAITS, within_us: int = LONG_US, **first: Any) -> None:
    """Elements of which each finds its number as N; the one whose number is STOPS waits for the file `go`."""
    env = {"N": str(jobs[0]), **first.pop("env", {})}
    late_us = time.time_ns() // 1000 + LONG_US
    request = launch_request(
        script, job=jobs[0], chdir=str(agent.state), not_after_us=late_us, env=env, **first
    )
    followers = [{"job": job, "attempt": 1, "env": {"N": str(job)}} for job in jobs[1:]]
    reply = agent.ask("slice", first=request, followers=followers, within_us=within_us)
    assert reply["ok"], reply
    assert reply["result"] == {"refused": []}


def states(agent: Agent) -> dict[int, str]:
    return {task["job"]: task["state"] for task in agent.tasks()}


def begun(agent: Agent, job: int) -> bool:
    """As soon as one of a slice has begun, or was given back."""
    until(lambda: states(agent)[job] != "prepared", "it is decided")
    return states(agent)[job] == "running"


def go(agent: Agent) -> None:
    (agent.state / "go").touch()


def folders(agent: Agent, of: str) -> list[str]:
    return sorted(path.name for path in (agent.state / of).iterdir())


def test_elements_run_in_turn_each_as_if_it_were_launched_by_itself(agent: Agent) -> None:
    hand_out(agent, range(1, 5))
    ends = [agent.event("exit", job=job) for job in range(1, 5)]
    assert [end["code"] for end in ends] == [1, 0, 1, 0]
    assert all(end["ran_us"] is not None for end in ends)
    for earlier, later in itertools.pairwise(ends):
        assert earlier["ended_us"] <= later["started_us"]
    assert [agent.log(job) for job in range(1, 5)] == [f"{job} runs\n" for job in range(1, 5)]
    assert {end["log_bytes"] for end in ends} == {len("1 runs\n")}
    for job in range(1, 5):
        agent.call("discard", job=job, attempt=1)
    assert folders(agent, "jobs") == []

    def is_forgotten() -> bool:
        agent.call("discard", job=1, attempt=1)  # the supervisor may have been about to end
        return folders(agent, "slices") == []

    until(is_forgotten, "nothing is left of the slice")


def test_a_follower_has_its_own_variables_files_and_clocks(agent: Agent) -> None:
    script = SH + 'echo "$A ${B-unset} $SLURM_JOB_START_TIME"\n'
    late_us = time.time_ns() // 1000 + LONG_US
    env = {"A": "1", "B": "b", "SLURM_JOB_START_TIME": "100"}
    output, there = str(agent.state / "first.out"), str(agent.state)
    first = launch_request(script, not_after_us=late_us, output=output, chdir=there, env=env)
    agent.state.chmod(0o777)
    own = {"job": 2, "attempt": 1, "env": {"A": "2", "B": None}, "output": str(agent.state / "second.out")}
    assert agent.ask("slice", first=first, followers=[own], within_us=LONG_US)["ok"]
    for job in (1, 2):
        agent.event("exit", job=job)
    first_line = (agent.state / "first.out").read_text().split()
    second_line = (agent.state / "second.out").read_text().split()
    assert first_line == ["1", "b", "100"]
    assert second_line[:2] == ["2", "unset"]
    assert int(second_line[2]) >= 100
    assert agent.log(2).split() == second_line


def test_orders_reach_what_runs_and_what_waits(agent: Agent) -> None:
    hand_out(agent, range(1, 6), env={"STOPS": "1"})
    until(lambda: states(agent)[1] == "running", "the first start")
    assert states(agent) == {1: "running", 2: "prepared", 3: "prepared", 4: "prepared", 5: "prepared"}
    order = {"attempt": 1, "grace_us": 0}
    agent.call("stop", job=2, why="cancel", **order)
    agent.call("stop", job=3, why="hold", **order)
    agent.call("stop", job=1, why="hold", **order)  # it has begun
    agent.call("discard", job=4, attempt=1)
    told = {job: agent.event("exit", job=job) for job in (2, 3, 4)}
    assert {job: end["why"] for job, end in told.items()} == {2: "cancel", 3: "unstarted", 4: "discard"}
    assert all(end["started_us"] is None for end in told.values())
    assert states(agent) == {1: "running", 2: "exited", 3: "exited", 5: "prepared"}
    agent.call("stop", job=1, why="cancel", **order)
    assert agent.event("exit", job=1)["why"] == "cancel"
    assert agent.event("exit", job=5)["code"] == 1
    assert agent.log(5) == "5 runs\n"


def test_a_time_limit_is_each_ones_own(agent: Agent) -> None:
    limit_us = 200_000
    hand_out(agent, range(1, 4), SH + "exec sleep 600\n", time_limit_us=limit_us, grace_us=0)
    ends = [agent.event("exit", job=job) for job in (1, 2, 3)]
    assert [end["why"] for end in ends] == ["timeout"] * 3
    for earlier, later in itertools.pairwise(ends):  # each had the whole time
        assert later["ended_us"] - earlier["ended_us"] >= limit_us
    hand_out(agent, range(11, 14), env={"STOPS": "12"}, time_limit_us=LONG_US, grace_us=0)
    agent.call("limit", job=12, attempt=1, time_limit_us=500_000)  # whether it runs or waits
    assert [agent.event("exit", job=job)["why"] for job in (11, 12, 13)] == ["", "timeout", ""]


def test_what_has_not_begun_in_time_is_given_back(agent: Agent) -> None:
    hand_out(agent, range(1, 4), env={"STOPS": "1"}, within_us=1)
    for job in (1, 2, 3):  # the time is over before the first
        end = agent.event("exit", job=job)
        assert (end["why"], end["started_us"], end["code"]) == ("unstarted", None, 0)
    for first, within_us in ((11, 1_000_000), (21, 8_000_000), (31, 64_000_000)):
        jobs = range(first, first + 3)
        hand_out(agent, jobs, env={"STOPS": str(first)}, within_us=within_us)
        if begun(agent, first):  # else a busy machine took longer than all of that
            break
    time.sleep(within_us / 1e6)  # that much time is over
    go(agent)
    assert [agent.event("exit", job=job)["why"] for job in jobs] == ["", "unstarted", "unstarted"]
    assert folders(agent, "jobs") == [f"{first}.1"]


def test_a_killed_supervisor_loses_what_ran_and_gives_back_the_rest(agent: Agent, start: Start) -> None:
    hand_out(agent, range(1, 5), env={"STOPS": "2"})
    agent.event("exit", job=1)
    pid = agent.event("started", job=2)["pid"]
    supervisor = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    agent.kill()  # so that nobody hears how it ends
    os.kill(supervisor, signal.SIGKILL)
    second = start()
    until(lambda: states(second).get(2) == "lost", "the loss")
    tasks = {task["job"]: task for task in second.tasks()}
    assert (tasks[1]["state"], tasks[1]["code"]) == ("exited", 1)
    assert [(tasks[job]["state"], tasks[job]["why"]) for job in (3, 4)] == [("exited", "unstarted")] * 2
    for job in range(1, 5):
        second.call("discard", job=job, attempt=1)
    assert folders(second, "slices") == []
    assert start().tasks() == []


def test_another_agent_finds_a_slice_that_goes_on(agent: Agent, start: Start) -> None:
    hand_out(agent, range(1, 5), env={"STOPS": "2"})
    agent.event("started", job=2)
    agent.kill()
    second = start()
    assert states(second) == {1: "exited", 2: "running", 3: "prepared", 4: "prepared"}
    second.call("stop", job=3, attempt=1, why="cancel", grace_us=0)
    assert second.event("exit", job=3)["why"] == "cancel"
    go(second)
    assert [second.event("exit", job=job)["code"] for job in (2, 4)] == [0, 0]


def test_a_slice_that_comes_twice_runs_once(agent: Agent) -> None:
    jobs = range(1, 4)
    hand_out(agent, jobs, env={"STOPS": "3"})
    agent.event("started", job=3)
    agent.call("discard", job=1, attempt=1)
    late_us = time.time_ns() // 1000 + LONG_US
    first = launch_request(WAITS, job=1, not_after_us=late_us)
    followers = [{"job": job, "attempt": 1, "env": {}} for job in jobs[1:]]
    again = agent.call("slice", first=first, followers=followers, within_us=LONG_US)
    assert again == {"refused": [[1, 1]]}
    assert states(agent) == {2: "exited", 3: "running"}
    go(agent)
    agent.event("exit", job=3)
    assert [e["job"] for e in agent.events if e["event"] == "exit"] == [1, 2, 3]


def test_a_malformed_slice_is_refused_and_leaves_nothing(agent: Agent) -> None:
    late_us = time.time_ns() // 1000 + LONG_US
    first = launch_request(WAITS, job=1, not_after_us=late_us)
    good = {"job": 2, "attempt": 1, "env": {}}
    for wrong in (
        {"followers": [{**good, "job": 1}]},
        {"followers": [{**good, "env": {"A": 1}}]},
        {"followers": [{**good, "output": "a\0b"}]},
        {"within_us": None},
        {"within_us": -1},
        {"first": {**first, "hold": True}},
        {"first": {**first, "lease_us": 1}},
        {"first": launch_request(WAITS, job=1, ranks=2, not_after_us=late_us)},
    ):
        asked: dict[str, Any] = {"first": first, "followers": [good], "within_us": LONG_US, **wrong}
        assert agent.ask("slice", **asked)["code"] == "bad-request", wrong
    reply = agent.ask("slice", first={**first, "not_after_us": 1}, followers=[good], within_us=LONG_US)
    assert reply["code"] == "too-late"
    assert agent.tasks() == []
    assert not (agent.state / "slices").exists() or folders(agent, "slices") == []
