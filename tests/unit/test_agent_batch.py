"""A script that runs once while its job holds several tasks, by the host agent alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.steps_request import rm_steps  # noqa: F401  the agents' modules are found from here on

import rm_task_steps  # type: ignore[import-not-found]  # isort: skip
from tests.agent_process import Agent, agents, launch_request, until

SH = "#!/bin/sh\n"


ALLOCATION = [{"host": "h1", "tasks": 3, "cpus": 3, "gpus": 0}]


def launch(agent: Agent, lines: str, ranks: int = 3, **more: Any) -> dict[str, Any]:
    once = {"script": None, "batch": SH + lines, "allocation": ALLOCATION, "place": 0}
    return agent.ask("launch", **{**launch_request("", 1, ranks), **once, **more})


def test_the_script_runs_once_and_ends_all_tasks() -> None:
    with agents() as start:
        agent = start()
        lines = f"echo ran once; until [ -e {agent.state}/go ]; do sleep 0.02; done; exit 4"
        answer = launch(agent, lines)
        assert {task["state"] for task in answer["result"]["tasks"]} == {"running"}
        (agent.state / "go").touch()
        ends = {rank: agent.event("exit", job=1, rank=rank) for rank in (0, 1, 2)}
        assert [(ends[rank]["code"], ends[rank]["why"]) for rank in (0, 1, 2)] == [(4, ""), (0, ""), (0, "")]
        assert agent.log() == "ran once\n"
        assert [agent.log(rank=rank) for rank in (1, 2)] == ["", ""]


def test_a_host_without_the_script_holds_its_part_until_it_is_stopped() -> None:
    with agents() as start:
        agent = start()
        tasks = [{"rank": rank, "gpus": [], "env": {}} for rank in (3, 4)]
        answer = launch(agent, "exit 1", hold=True, tasks=tasks)
        assert {task["state"] for task in answer["result"]["tasks"]} == {"prepared"}
        begun = agent.call("start", job=1, attempt=1)
        assert {task["state"] for task in begun["tasks"]} == {"running"}
        agent.end()
        agent = start()
        assert {task["state"] for task in agent.tasks()} == {"running"}
        agent.call("stop", job=1, attempt=1, grace_us=0, why="abort")
        for rank in (3, 4):
            end = agent.event("exit", job=1, rank=rank)
            assert (end["code"], end["signal"], end["why"]) == (0, 0, "abort")


def test_a_time_limit_leaves_the_script_its_grace() -> None:
    with agents() as start:
        agent = start()
        script = "trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
        launch(agent, script, grace_us=600_000_000)
        until(lambda: agent.log() == "ready\n", "the script has its handler")
        agent.call("stop", job=1, attempt=1, grace_us=600_000_000, why="timeout")
        end = agent.event("exit", job=1, rank=0)
        assert (end["code"], end["why"]) == (0, "timeout")
        assert agent.log().endswith("asked\n")


def test_only_the_script_names_files() -> None:
    with agents() as start:
        agent = start()
        tasks = [{"rank": rank, "gpus": [], "env": {}, "output": f"/nowhere/{rank}"} for rank in (1, 2)]
        assert launch(agent, "true", tasks=tasks)["ok"]
        agent.call("stop", job=1, attempt=1, grace_us=0, why="abort")
        assert agent.event("exit", job=1, rank=1)["code"] == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"script": SH, "batch": SH},
        {"script": None, "batch": None},
        {"allocation": []},
        {"place": 1},
        {"allocation": [{"host": "h1", "tasks": -1}]},
        {"allocation": ["h1"]},
    ],
)
def test_a_launch_that_is_neither_is_refused(wrong: dict[str, Any]) -> None:
    with agents() as start:
        assert launch(start(), "true", **wrong)["code"] == "bad-request"


def test_what_srun_runs_is_recorded_and_outlives_the_agent() -> None:
    with agents() as start:
        agent = start()
        lines = (
            "srun -n2 -J first true; srun -n1 sh -c 'exit 3'; srun --overlap -n1 sh -c 'kill -9 $$'\n"
            "until [ -e go ]; do sleep 0.02; done; exec srun -n1 true"
        )
        launch(agent, lines, chdir=str(agent.state))
        agent.event("stepped", job=1)
        told: list[dict[str, Any]] = []

        def ended() -> bool:
            told[:] = agent.call("job-steps", job=1, attempt=1, offset=0)["steps"]
            return sum("ended_us" in one for one in told) == 3

        until(ended, "three steps have ended")
        steps = {one["step"]: one for one in told}
        assert [(steps[n]["name"], steps[n]["tasks"], steps[n]["hosts"]) for n in range(3)] == [
            ("first", 2, "h1"), ("sh", 1, "h1"), ("sh", 1, "h1")
        ]  # fmt: skip
        assert [(steps[n]["code"], steps[n]["signal"]) for n in range(3)] == [(0, 0), (3, 0), (0, 9)]
        agent.end()
        agent = start()
        agent.call("tasks")
        agent.event("stepped", job=1)  # whoever asks for the tasks may not know of the steps
        (agent.state / "go").touch()
        agent.event("exit", job=1, rank=0)
        page = agent.call("job-steps", job=1, attempt=1, offset=0)
        assert (page["steps"][-1]["step"], page["steps"][-1]["code"], page["more"]) == (3, 0, False)
        assert agent.call("job-steps", job=1, attempt=1, offset=page["offset"])["steps"] == []


def test_what_runs_beside_tasks_has_no_rank_and_all_that_the_job_has_on_the_host() -> None:
    tasks = [
        {"rank": 2 + n, "gpus": [f"GPU-{n}"],
         "env": {"RANK": str(2 + n), "SLURM_STEP_GPUS": "0,1", "RM_GPUS": str(n), "RM_HOST": "b"}}
        for n in range(2)
    ]  # fmt: skip
    env = {"WORLD_SIZE": "4", "SLURM_NTASKS": "4"}
    request = {"batch": "", "script": SH, "env": env, "tasks": tasks}
    found = rm_task_steps.beside_tasks(request)
    assert found["batch"] == request["script"]
    assert found["env"] == {"SLURM_NTASKS": "4"}
    (one,) = found["tasks"]
    assert one["gpus"] == ["GPU-0", "GPU-1"]
    assert one["env"] == {"RM_GPUS": "0,1", "RM_HOST": "b", **rm_task_steps.FIRST}
    assert tasks[0]["env"]["RANK"] == "2"
    assert rm_task_steps.beside_tasks(found) is found
