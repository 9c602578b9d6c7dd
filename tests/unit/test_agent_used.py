"""What agents tell of what attempts used: processor time, memory, disks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rm.protocol import used as wire
from tests.agent_process import AGENTS, Agent, Start
from tests.unit.test_agent_slices import hand_out

sys.path.insert(0, str(AGENTS))
import rm_network_used
import rm_used
from rm_cgroup import Group

MIB = 1 << 20
PATH = {"PATH": os.environ["PATH"]}
BURN_US, SPARE_US = 300_000, 3_000_000  # starting Python counts as well, on a machine that is busy
BURN = f"""
import time
kept = bytearray(80 << 20)
while time.process_time() < {BURN_US / 1e6}:
    pass
"""
PYTHON = "python3 -S -E"  # the user may not read a virtual environment of ours
SCRIPT = f"#!/bin/sh\nexec {PYTHON} -c '{BURN}'\n"
HELD = (80 * MIB, 200 * MIB)


def cpu_us(used: dict[str, int]) -> int:
    return used["user_us"] + used["system_us"]


def burnt(used: dict[str, int], times: int = 1) -> bool:
    return times * BURN_US <= cpu_us(used) < times * BURN_US + SPARE_US


def test_the_end_of_a_task_tells_what_was_used(agent: Agent, start: Start) -> None:
    agent.launch(SCRIPT, env=PATH)
    end = agent.event("exit", job=1)
    assert end["used"] is None  # it was alone
    assert burnt(end["whole"])
    assert HELD[0] <= end["whole"]["mem_bytes"] <= HELD[1]
    assert end["whole"]["mem_bytes"] <= end["whole"]["peak_bytes"]
    agent.end()
    (task,) = start().tasks()  # by what is on the disk
    assert (task["used"], task["whole"]) == (None, end["whole"])


def test_each_of_several_tasks_tells_its_own_and_the_last_one_all(agent: Agent) -> None:
    task = {"gpus": [], "env": {}}
    agent.launch(SCRIPT, env=PATH, tasks=[{"rank": rank, **task} for rank in (0, 1)])
    ends = [agent.event("exit", job=1, rank=rank) for rank in (0, 1)]
    assert all(burnt(end["used"]) for end in ends)
    (whole,) = [end["whole"] for end in ends if end["whole"]]
    assert burnt(whole, 2)
    assert cpu_us(whole) >= 0.95 * sum(cpu_us(end["used"]) for end in ends)


def test_what_nobody_waited_for_counts(agent: Agent) -> None:
    script = f"""#!/bin/sh
{PYTHON} -c '{BURN}' &
export BURNS=$!
exec {PYTHON} -c 'import os, time
while open("/proc/%s/stat" % os.environ["BURNS"]).read().rpartition(")")[2].split()[0] != "Z":
    time.sleep(0.02)'
"""
    agent.launch(script, env=PATH)
    assert burnt(agent.event("exit", job=1)["whole"])


def test_each_element_of_a_slice_tells_its_own(agent: Agent) -> None:
    hand_out(agent, range(1, 4), script=SCRIPT, env=PATH)
    for job in (1, 2, 3):
        assert burnt(agent.event("exit", job=job)["whole"])


def test_what_was_never_started_used_nothing(agent: Agent) -> None:
    agent.launch(SCRIPT, hold=True)
    agent.call("stop", job=1, attempt=1, grace_us=0, why="cancel")
    end = agent.event("exit", job=1)
    assert (end["used"], end["whole"]) == (None, None)


def test_a_record_of_an_older_supervisor_tells_nothing() -> None:
    assert rm_used.told(None) is None
    assert rm_used.told([1, 2, 3, 4, 5, 6]) == dict(zip(rm_used.KEYS, range(1, 7), strict=True))


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def group(path: Path, **files: str) -> Group:
    """A control group of version 2."""
    for name, text in files.items():
        (path / name.replace("_", ".")).write_text(text)
    return Group(str(path), {"memory": str(path), "io": str(path)})


def test_the_counters_of_version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(rm_used, "time", clock)
    files = {
        "cpu_stat": "usage_usec 12\nuser_usec 7\nsystem_usec 5\nnr_periods 0\n",
        "io_stat": "8:0 rbytes=100 wbytes=20 rios=1 wios=1\n\n259:0 rbytes=11 wbytes=2 dbytes=0\n",
        "memory_stat": "anon 5000\nfile 900000\nshmem 200\n",
        "memory_peak": "910000\n",
    }
    used = rm_used.Used(group(tmp_path, **files))
    used.begin()
    assert used.now() == [7, 5, 0, 910000, 111, 22]  # not looked at yet
    (due,) = used.due()
    clock.now = due
    used.look()
    assert used.now() == [7, 5, 5200, 910000, 111, 22]
    (tmp_path / "memory.stat").write_text("anon 4000\nshmem 0\n")
    clock.now += rm_used.LOOK_S
    used.look()
    assert used.now()[2] == 5200  # the most


def test_looks_become_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(rm_used, "time", clock)
    used = rm_used.Used(group(tmp_path))
    used.begin()
    waits = []
    for _ in range(8):
        (due,) = used.due()
        waits.append(due - clock.now)
        clock.now = due
        used.look()
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_group_of_several_attempts_counts_from_where_one_began(tmp_path: Path) -> None:
    used = rm_used.Used(group(tmp_path, cpu_stat="user_usec 70\nsystem_usec 50\n", memory_peak="9000\n"))
    used.share()
    used.begin()
    (tmp_path / "cpu.stat").write_text("user_usec 75\nsystem_usec 51\n")
    assert used.now() == [5, 1, 0, 0, 0, 0]


def test_the_counters_of_version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(rm_used, "time", clock)
    memory = tmp_path / "memory"
    memory.mkdir()
    (memory / "memory.stat").write_text("rss 1\ntotal_rss 3000\ntotal_shmem 40\n")
    (memory / "memory.max_usage_in_bytes").write_text("7000\n")
    used = rm_used.Used(Group(str(tmp_path), {"memory": str(memory)}))
    used.begin()
    clock.now += 1
    used.look()
    assert used.now()[2:4] == [3040, 7000]


def test_without_a_group_the_processes_that_were_reaped_count() -> None:
    used = rm_used.Used(Group(""))
    used.begin()
    pids = [os.fork() for _ in range(2)]
    for pid in pids:
        if pid == 0:
            os._exit(0)
    numbers: list[list[Any]] = []
    for pid in pids:
        numbers.append(used.reaped(os.wait4(pid, 0)[2]))
    whole = used.now()
    assert whole[:2] == [sum(n[0] for n in numbers), sum(n[1] for n in numbers)]
    assert whole[2] == max(n[2] for n in numbers) > 0


class Traffic:
    """By the interfaces' indices, as the kernel counts it."""

    def __init__(self) -> None:
        self.seen = {2: (10, 20), 1: (1, 1)}

    def now(self) -> dict[int, tuple[int, int]]:
        return self.seen


def used_of(traffic: Traffic) -> rm_used.Used:
    group = Group("")
    group.traffic = traffic
    used = rm_used.Used(group)
    used.share()
    used.begin()
    return used


def test_bytes_of_the_network_are_those_since_the_attempt_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rm_network_used, "_name_of", {1: "lo", 2: "eth0", 3: "eth1"}.get)
    traffic = Traffic()
    used = used_of(traffic)
    assert len(used.now()) == len(rm_used.KEYS)
    traffic.seen = {2: (15, 20), 3: (0, 900), 1: (1, 1)}
    whole = used.now()
    assert whole[-1] == [["eth1", 0, 900], ["eth0", 5, 0]]
    network = rm_used.told(whole)["network"]
    assert network[0] == {"interface": "eth1", "received_bytes": 0, "sent_bytes": 900}


def test_an_interface_that_was_made_anew_has_no_bytes_of_its_forerunner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tunnel that reconnects: negative numbers would drain the host."""
    names = {2: "eth0", 7: "tun0"}
    monkeypatch.setattr(rm_network_used, "_name_of", lambda index: names.get(index, f"if{index}"))
    traffic = Traffic()
    traffic.seen = {7: (5_000, 5_000)}
    used = used_of(traffic)
    names = {2: "eth0", 9: "tun0"}
    traffic.seen = {7: (5_000, 5_000), 9: (30, 40)}
    told = rm_used.told(used.now())
    assert told["network"] == [{"interface": "tun0", "received_bytes": 30, "sent_bytes": 40}]
    msgspec.convert(told, wire.Used)


def test_the_kernel_counts_bytes_of_a_group_by_interface(agent: Agent) -> None:
    """Its programs go with the group, so that nothing has to be removed."""
    script = f"""#!/bin/sh
exec {PYTHON} -c '
import socket
with socket.create_server(("127.0.0.1", 0)) as door, socket.create_connection(door.getsockname()) as far:
    near, _ = door.accept()
    far.sendall(bytes(40_000))
    left = 40_000
    while left:
        left -= len(near.recv(left))
'
"""
    agent.launch(script, env=PATH)
    whole = agent.event("exit", job=1)["whole"]
    (line,) = whole["network"]
    assert line["interface"] == "lo"
    for name in ("received_bytes", "sent_bytes"):
        assert 40_000 < line[name] < 60_000
