"""Freezing, profiling and regulating an unhooked job on real control groups and counters."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import until

from .test_shaping import AGENTS, ANSWER_S, Pair, pytestmark, skip_without_classifier

__all__ = ["pytestmark"]
JOB = 43
PATIENCE_S = 240  # each try is of some seconds, in which a busy machine may spoil the rhythm of the job
EXAMPLE = AGENTS.parent / "examples" / "allreduce.py"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    try:
        yield made
    finally:
        made.close()


def ticking(pair: Pair, group: Path | None) -> subprocess.Popen[str]:
    """A process that prints a number every 2 ms."""
    code = "import time, itertools\nfor n in itertools.count():\n  print(n, flush=True); time.sleep(.002)"
    process = pair.start(0, sys.executable, "-c", code, group=group)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def frozen(group: Path) -> bool:
    return "frozen 1" in (group / "cgroup.events").read_text()


def test_a_pause_freezes_for_its_time_and_thaws(pair: Pair) -> None:
    group = pair.group(JOB)
    process = ticking(pair, group)
    result = pair.ask("rm_pause.py", op="pause", job=JOB, attempt=1, length_us=150_000)
    assert 150_000 <= result["paused_us"] < 60_000_000
    assert not frozen(group)
    assert process.poll() is None
    assert process.stdout is not None
    assert process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_pauser_leaves_no_frozen_job(pair: Pair, number: signal.Signals) -> None:
    group = pair.group(JOB)
    ticking(pair, group)
    pauser = pair.start(0, sys.executable, str(AGENTS / "rm_pause.py"), stdin=subprocess.PIPE)
    assert pauser.stdin is not None
    request = {"id": 1, "op": "pause", "job": JOB, "attempt": 1, "length_us": 9_000_000}
    pauser.stdin.write(json.dumps(request) + "\n")
    pauser.stdin.flush()
    until(lambda: frozen(group), "the job is frozen")
    pauser.send_signal(number)
    until(lambda: not frozen(group), "the job goes on")


def test_without_a_control_group_the_processes_are_stopped(pair: Pair) -> None:
    process = ticking(pair, None)
    rank = pair.state / "jobs" / f"{JOB}.1" / "0"
    rank.mkdir(parents=True)
    (rank / "meta.json").write_text(json.dumps({"pid": process.pid}))
    pauser = pair.start(0, sys.executable, str(AGENTS / "rm_pause.py"), stdin=subprocess.PIPE)
    assert pauser.stdin is not None
    request = {"id": 1, "op": "pause", "job": JOB, "attempt": 1, "length_us": 400_000}
    pauser.stdin.write(json.dumps(request) + "\n")
    pauser.stdin.flush()
    continued = os.waitid(os.P_PID, process.pid, os.WCONTINUED)  # the kernel keeps it until it is asked for
    assert continued is not None
    assert continued.si_code == os.CLD_CONTINUED


def test_an_unhooked_job_is_profiled_and_kept_in_its_slots(pair: Pair) -> None:
    skip_without_classifier(pair)
    for name in pair.names:
        words = "qdisc add dev eth7 root handle 10: tbf rate 100mbit burst 25k limit 250k"
        pair.run("tc", "-n", name, *words.split())
    group = pair.group(JOB)
    for rank in (1, 0):
        words = ["env", f"RANK={rank}", "WORLD_SIZE=2", "MASTER_ADDR=10.98.7.1", "MASTER_PORT=29471"]
        words += [sys.executable, str(EXAMPLE), "--unhooked", "--iterations", "9000", "--compute-ms", "200"]
        pair.start(rank, *words, "--bytes", "1200000", group=None if rank else group)

    def profiled() -> dict[str, Any] | None:
        """The profile, unless the machine was too busy meanwhile for the job to keep its rhythm."""
        found = pair.ask(
            "rm_pause.py", op="profile", job=JOB, attempt=1, interface="eth7", duration_us=5_000_000
        )  # fmt: skip
        # 200 ms and 9.6 Mbit at 100 Mbit/s, or slower when busy
        clear = 260_000 < found["period_us"] < 520_000 and found["confidence"] > 0.3
        phases = found["phases"]
        return found if clear and len(phases) == 1 and 20e6 < phases[0][2] < 110e6 else None

    found = until(profiled, "the rhythm of the job is found", PATIENCE_S)
    assert found["origin"] == "traffic"

    period = found["period_us"] + 80_000  # every iteration is early, and must be held back into its slot
    plan = {"epoch_us": 0, "shift_us": 0, "period_us": period, "inject_us": 80_000, "tolerance_us": 2_000}
    plan |= {"gate": True, "pause_seq": 1, "seq": 1}

    def held_back() -> bool:
        """Do its iterations begin near their instants? Some do not where the machine is busy."""
        agent = pair.start(0, sys.executable, str(AGENTS / "rm_pause.py"), stdin=subprocess.PIPE)
        request = {"op": "regulate", "job": JOB, "attempt": 1, "interface": "eth7", "duration_us": 6_000_000}
        out, _ = agent.communicate(json.dumps(request | {"schedule": plan}) + "\n", timeout=ANSWER_S)
        *events, reply = [json.loads(line) for line in out.splitlines()]
        items = [item for event in events for item in event["items"]]
        assert len(items) == reply["result"]["iterations"]
        assert not frozen(group)
        if reply["result"]["pauses"] < 3 or len(items) < 6:
            return False
        mean = statistics.mean(item[3] for item in items[3:])
        off = [abs((item[2] + period // 2) % period - period // 2) for item in items[4:]]
        # at random it would be a quarter of the period
        return mean > found["period_us"] + 30_000 and statistics.median(off) < period / 5

    until(held_back, "the job is held back into its slots", PATIENCE_S)


def test_a_job_that_begins_to_report_is_left_to_itself(pair: Pair) -> None:
    ticking(pair, pair.group(JOB))
    rank = pair.state / "jobs" / f"{JOB}.1" / "0"
    rank.mkdir(parents=True)
    reports = rank / "reports.jsonl"
    reports.touch()  # as it lies there before the first report
    ask = {"op": "regulate", "job": JOB, "attempt": 1, "interface": "eth7", "duration_us": 100_000}
    assert "cooperative" not in pair.ask("rm_pause.py", **ask)
    reports.write_text("[0, 0, 1700000000000000, 200000, 0, null]\n")
    assert pair.ask("rm_pause.py", **ask | {"duration_us": 60_000_000})["cooperative"] is True
