"""What agents tell of what the steps of a job use."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rm.core.model.step_used import Spread, StepUsed, on_host, together
from rm.daemon.execution.step_book import step_used
from rm.protocol import job_steps as wire
from rm.protocol.job_steps import UsedNowTold
from tests.agent_process import AGENTS, Agent, until
from tests.unit.test_agent_batch import launch
from tests.unit.test_agent_used import BURN, BURN_US, HELD, MIB, PYTHON, SPARE_US

sys.path.insert(0, str(AGENTS))
import rm_step_records
import rm_step_used
import rm_used_now
from rm_cgroup import Group
from rm_step_link import Link

NUMBERS = {0: [5, 1, 100, 7, 0], 1: [2, 0, 300, 0, 9]}


def spread(total: int, most: tuple[int, int], least: tuple[int, int]) -> dict[str, int]:
    return {"total": total, "most": most[0], "most_rank": most[1], "least": least[0], "least_rank": least[1]}


def test_a_summary_names_the_tasks_with_the_most_and_the_least() -> None:
    found = rm_step_used.summary(NUMBERS, (8, 3))
    assert (found["tasks"], found["user_us"], found["system_us"]) == (2, 8, 3)
    assert found["cpu_us"] == spread(8, (6, 0), (2, 1))
    assert found["mem_bytes"] == spread(400, (300, 1), (100, 0))
    assert found["read_bytes"] == spread(7, (7, 0), (0, 1))
    assert found["written_bytes"] == spread(9, (9, 1), (0, 0))
    assert rm_step_used.summary(NUMBERS)["user_us"] == 7  # where no group has counted
    assert rm_step_used.summary({}) is None


def test_hosts_are_added_up_as_the_daemon_adds_them_up() -> None:
    parts = [(f"h{rank}", rm_step_used.summary({rank: NUMBERS[rank]})) for rank in (0, 1)]
    found = rm_step_used.together(parts)

    def core(told: dict[str, Any]) -> StepUsed:
        return StepUsed(**{k: Spread(**v) if isinstance(v, dict) else v for k, v in told.items()})

    expected = together([on_host(core(told), host) for host, told in parts])
    assert core(found) == expected
    assert (found["mem_bytes"]["most_host"], found["mem_bytes"]["most_rank"]) == ("h1", 1)
    assert (found["cpu_us"]["least_host"], found["cpu_us"]["total"]) == ("h1", 8)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda told: told.pop("tasks"),
        lambda told: told["cpu_us"].update(most=-1),
        lambda told: told["cpu_us"].update(most=1 << 60),
        lambda told: told["mem_bytes"].update(most_rank=1 << 40),
        lambda told: told.update(read_bytes=[]),
        lambda told: told.update(user_us="7"),
        lambda told: told.update(user_us=True),
    ],
)
def test_another_hosts_nonsense_is_not_recorded(spoil: Callable[[dict[str, Any]], Any]) -> None:
    """The daemon would take it for the first host's, and drain that."""
    told = rm_step_used.summary(NUMBERS)
    assert rm_step_used.checked({**told, "more": 1}) == told
    spoil(told)
    with pytest.raises((ValueError, TypeError, KeyError)):
        rm_step_used.checked(told)


def test_what_was_used_comes_with_the_end_over_a_link_that_loses_messages() -> None:
    link, other = Link(), Link()
    link.write(b"the end of the last task")
    link.tell_used({"tasks": 1})
    lost = link.message(0.0)
    assert (lost["used"], lost["end"]) == ({"tasks": 1}, False)
    link.close()
    assert link.message(0.0)["used"] == {"tasks": 1}
    again = link.message(5.0)
    assert again["used"] == {"tasks": 1}
    assert again["data"] == lost["data"]
    other.take(again)
    assert bytes(other.inbox) == b"the end of the last task"
    assert "used" not in other.message(5.0)


def step_of(agent: Agent, number: int) -> dict[str, Any]:
    """What is recorded of a step that has ended."""
    found: list[dict[str, Any]] = []

    def ended() -> bool:
        steps = agent.call("job-steps", job=1, attempt=1, offset=0)["steps"]
        found[:] = [one for one in steps if one["step"] == number and "ended_us" in one]
        return bool(found) and "used" in found[-1]

    until(ended, f"step {number} has ended")
    return found[-1]


WAITS = "until [ -e go ]; do sleep 0.02; done"


def test_gpus_and_memory_of_hosts_are_added_up_as_the_daemon_adds_them_up() -> None:
    wholes = [
        {
            "host_bytes": 5,
            "peak_bytes": 9,
            "gpu_us": 10,
            "gpu_busy_us": 4,
            "gpu_mem_bytes": 3,
            "energy_mj": 7,
        },
        {
            "host_bytes": 6,
            "peak_bytes": 0,
            "gpu_us": 20,
            "gpu_busy_us": 1,
            "gpu_mem_bytes": 8,
            "energy_mj": 2,
        },
    ]
    parts = [rm_step_used.summary({rank: NUMBERS[rank]}, None, wholes[rank]) for rank in (0, 1)]
    found = rm_step_used.together([("h0", parts[0]), ("h1", rm_step_used.checked(parts[1]))])
    assert (found["host_bytes"], found["peak_bytes"], found["gpu_mem_bytes"]) == (6, 9, 8)
    assert (found["gpu_us"], found["gpu_busy_us"], found["energy_mj"]) == (30, 5, 9)
    told = [on_host(step_used(msgspec.convert(part, wire.StepUsed)), f"h{n}") for n, part in enumerate(parts)]
    assert together(told) == step_used(msgspec.convert(found, wire.StepUsed))


def test_an_agent_of_an_earlier_version_tells_nothing_of_gpus() -> None:
    told = rm_step_used.summary(NUMBERS)
    for name in rm_step_used.WHOLE:
        del told[name]
    assert rm_step_used.checked(told)["gpu_us"] == 0
    assert msgspec.convert(told, wire.StepUsed).gpu_us == 0


def test_each_step_has_its_own_numbers(agent: Agent) -> None:
    """The first burns and keeps memory in its second task alone, the second does nothing."""
    burns = f"[ $SLURM_PROCID = 1 ] || exit 0; exec {PYTHON} -c '{BURN}'"
    (agent.state / "burn.sh").write_text(burns)
    lines = f"srun -n2 sh burn.sh\nsrun -n1 true\n{WAITS}"
    launch(agent, lines, chdir=str(agent.state))
    used = step_of(agent, 0)["used"]
    assert used["tasks"] == 2
    assert BURN_US <= used["user_us"] + used["system_us"] < BURN_US + SPARE_US
    cpu = used["cpu_us"]
    assert (cpu["most_rank"], cpu["least_rank"], cpu["most_host"]) == (1, 0, "h1")
    assert cpu["least"] < BURN_US <= cpu["most"]
    assert HELD[0] <= used["mem_bytes"]["most"] <= HELD[1]
    assert (used["mem_bytes"]["most_rank"], used["mem_bytes"]["most_host"]) == (1, "h1")
    assert HELD[0] <= used["host_bytes"] <= HELD[1]
    idle = step_of(agent, 1)["used"]
    assert idle["user_us"] + idle["system_us"] < BURN_US
    assert idle["mem_bytes"]["most"] < HELD[0]
    (agent.state / "go").touch()
    agent.event("exit", job=1, rank=0)


def test_what_nobody_waited_for_counts_for_its_step(agent: Agent) -> None:
    script = f"""{PYTHON} -c '{BURN}' >/dev/null 2>&1 </dev/null &
export BURNS=$!
exec {PYTHON} -c 'import os, time
while open("/proc/%s/stat" % os.environ["BURNS"]).read().rpartition(")")[2].split()[0] != "Z":
    time.sleep(0.02)'
"""
    (agent.state / "leaves.sh").write_text(script)
    launch(agent, f"srun -n1 sh leaves.sh\n{WAITS}", chdir=str(agent.state))
    used = step_of(agent, 0)["used"]
    assert BURN_US <= used["user_us"] + used["system_us"] < BURN_US + 2 * SPARE_US


def test_a_step_that_was_killed_with_its_srun_tells_what_it_used(agent: Agent) -> None:
    (agent.state / "holds.sh").write_text(f"{PYTHON} -c '{BURN}'; echo burnt; exec sleep 600")
    lines = f"srun -n1 sh holds.sh & until [ -e kill ]; do sleep 0.02; done; kill -9 $!\n{WAITS}"
    launch(agent, lines, chdir=str(agent.state))
    until(lambda: "burnt" in agent.log(), "the step has burnt")
    (agent.state / "kill").touch()

    def told() -> bool:
        step = step_of(agent, 0)
        assert step["why"] == "cancelled"
        used = step["used"]
        return used["user_us"] + used["system_us"] >= BURN_US and used["mem_bytes"]["most"] >= HELD[0]

    until(told, "its host has told all, after its end")


def test_what_a_job_uses_now_is_told_by_step_and_script(agent: Agent) -> None:
    keeps = f"exec {PYTHON} -c '{BURN}\nprint(\"kept\", flush=True)\ntime.sleep(600)'"
    (agent.state / "keeps.sh").write_text(keeps)
    launch(agent, f"srun -n1 true\nsrun -n1 sh keeps.sh & {WAITS}", chdir=str(agent.state))
    until(lambda: "kept" in agent.log(), "the step has its memory")
    lines = {one["step"]: one["used"] for one in agent.call("used-now", job=1, attempt=1)["lines"]}
    assert sorted(lines) == [-1, 1]
    assert lines[1]["user_us"] + lines[1]["system_us"] >= BURN_US
    assert HELD[0] <= lines[1]["mem_bytes"]["most"] <= HELD[1]
    assert 0 < lines[-1]["mem_bytes"]["most"] < 80 * MIB
    (agent.state / "go").touch()
    agent.event("exit", job=1, rank=0)
    assert agent.call("used-now", job=1, attempt=1) == {"lines": []}


LIES = [
    {"SLURM_STEP_ID": "9" * 12, "SLURM_PROCID": "0"},
    {"SLURM_STEP_ID": "9" * 5_000, "SLURM_PROCID": "9" * 5_000},  # int() refuses so many
    {"SLURM_STEP_ID": "4294967296", "SLURM_PROCID": str((1 << 20) + 1)},
    *({"SLURM_STEP_ID": str(step), "SLURM_PROCID": "0"} for step in range(18_000)),
]


def test_no_process_that_lies_of_its_step_makes_an_answer_that_no_daemon_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where there are no control groups its environment is believed; such an answer would drain the host."""
    common = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "h1"}
    processes = {100 + at: common | lie for at, lie in enumerate(LIES)}
    monkeypatch.setattr(rm_used_now, "descendants", lambda ancestor: list(processes))
    monkeypatch.setattr(rm_used_now, "environment", lambda pid: processes.get(pid, {}))
    monkeypatch.setattr(rm_used_now, "_numbers", lambda pid: [1, 1, 1, 1, 1])
    monkeypatch.setattr(rm_used_now, "_stat", lambda pid: [])
    lines = rm_used_now.of_attempt(Group(""), 99)
    told = msgspec.convert({"lines": lines}, UsedNowTold)
    assert told.lines[0].step == rm_used_now.SCRIPT
    assert len(msgspec.json.encode(told)) < 8 << 20


def test_a_host_that_never_ends_to_tell_fills_no_disk_of_the_first_one(tmp_path: Path) -> None:
    records = rm_step_records.Records(Folder(tmp_path))
    parts = [{"host": host, "ranks": [rank], "holds": [1]} for rank, host in enumerate(("h1", "h2"))]
    records.begun(0, parts, ",".join, "s", "srun s")
    records.ended(0, (0, 0, ""))
    told = [records.used(0, "h2", rm_step_used.summary({1: [n, 0, 0, 0, 0]})) for n in range(1, 1_000)]
    assert 1 <= sum(told) <= 4
    assert records.used(0, "h1", rm_step_used.summary({0: NUMBERS[0]}))  # another one is still heard
    assert len((tmp_path / rm_step_records.FILE).read_bytes().splitlines()) <= 7


class Folder:
    """Of an attempt."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def at(self, name: str) -> str:
        return str(self.path / name)


@pytest.mark.skipif(os.getuid() != 0, reason="limits of memory need root")
def test_memory_is_counted_by_the_group_of_a_step_and_its_job_is_still_out_of_memory(agent: Agent) -> None:
    """Two processes of one task have half of it each; then a step is killed for lack of memory."""
    if "memory limits" in agent.hello["features"]["missing"]:
        pytest.skip("this host offers no memory controller")
    holds = f"{PYTHON} -c 'import os,time; kept=bytearray(40<<20); "
    waits = 'print("kept", flush=True); [time.sleep(0.02) for _ in iter(lambda: os.path.exists("on"), True)]'
    (agent.state / "two.sh").write_text(f"{holds}{waits}' &\n{holds}{waits}'\nwait\n")
    lines = f"srun -n1 sh two.sh\nsrun -n1 {PYTHON} -c 'bytearray(400 << 20)'\n{WAITS}\nexit 1"
    launch(agent, lines, chdir=str(agent.state), mem_bytes_per_task=64 << 20)
    until(lambda: agent.log().count("kept") == 2, "both have their memory")
    (agent.state / "on").touch()
    used = step_of(agent, 0)["used"]
    assert 40 << 20 <= used["host_bytes"] <= used["peak_bytes"]
    assert 80 << 20 <= used["peak_bytes"] <= 3 * 64 << 20
    killed = step_of(agent, 1)
    assert killed["signal"] == 9 or killed["code"] == 137
    (agent.state / "go").touch()
    assert agent.event("exit", job=1, rank=0)["oom"]
