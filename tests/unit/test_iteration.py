"""The iteration client: when to wait, what is reported, and that it never harms a training loop."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

AGENTS = Path(__file__).parents[2] / "agents"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, AGENTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rm_iteration = load("rm_iteration")
wait_us = rm_iteration.wait_us


def schedule(**changed: Any) -> dict[str, Any]:
    made = {
        "seq": 1, "epoch_us": 1_000_000, "shift_us": 50_000, "period_us": 200_000, "inject_us": 0,
        "tolerance_us": 2_000, "gate": False, "pause_length_us": 0, "pause_seq": 0, "mode": "cooperative",
    }  # fmt: skip
    return {**made, **changed}


@pytest.mark.parametrize(
    ("now", "changed", "seen", "previous", "expected"),
    [
        (1_230_000, {}, 0, None, 0),  # no gate, no pause
        (1_230_000, {"gate": True}, 0, None, 20_000),  # 20 ms early
        (1_249_000, {"gate": True}, 0, None, 0),  # 1 ms early: within tolerance
        (1_251_000, {"gate": True}, 0, None, 0),  # late by 1 ms
        (1_300_000, {"gate": True}, 0, None, 0),  # late by 50 ms: never waits
        (1_150_000, {"gate": True}, 0, None, 100_000),  # exactly half a period counts as early
        (1_149_999, {"gate": True}, 0, None, 0),  # more than half is late
        (1_300_000, {"adjust_us": 10_000}, 0, None, 150_000),  # 50 ms late: off its slot
        (1_230_000, {"adjust_us": 10_000}, 0, None, 20_000),  # 20 ms early
        (1_241_000, {"adjust_us": 10_000}, 0, None, 0),  # 9 ms early: near enough
        (1_259_000, {"adjust_us": 10_000}, 0, None, 0),  # 9 ms late
        (1_300_000, {"pause_seq": 3}, 2, None, 150_000),  # a new pause waits whatever e is
        (1_300_000, {"pause_seq": 3}, 3, None, 0),  # an obeyed one does not
        (1_251_500, {"pause_seq": 3}, 2, None, 0),  # late by less than the tolerance is on time
        (1_240_000, {"inject_us": 20_000}, 0, 1_060_000, 20_000),  # previous origin + effective period
        (1_260_000, {"inject_us": 20_000}, 0, 1_060_000, 0),  # already that long by itself
        (1_240_000, {"inject_us": 20_000}, 0, None, 0),  # the first iteration has nothing to lengthen
        (1_240_000, {"inject_us": 20_000, "gate": True}, 0, 1_060_000, 10_000),  # late before: catches up
        (0, {"period_us": 0, "pause_seq": 1, "pause_length_us": 7_000}, 0, None, 7_000),
        (1_230_000, {"gate": True}, 0, 1_130_000, 20_000),  # half as long as the schedule's iterations
        (1_230_000, {"gate": True}, 0, 1_131_000, 0),  # less: the schedule is not for such iterations
        (1_300_000, {"pause_seq": 3}, 2, 1_250_000, 0),
        (1_300_000, {"adjust_us": 10_000}, 0, 1_250_000, 0),
        (1_100_000, {"inject_us": 20_000}, 0, 1_060_000, 0),
        (1_230_000, {"gate": True}, 0, 9_000_000, 20_000),  # the clock was set back: nobody knows
        (700_000_000, {"pause_seq": 3, "period_us": 600_000_000}, 2, None, 10_000_000),
        (700_000_000, {"pause_seq": 3, "period_us": 600_000_000}, 2, 400_000_000, 501_050_000),
    ],
)
def test_when_to_wait(
    now: int, changed: dict[str, Any], seen: int, previous: int | None, expected: int
) -> None:
    assert wait_us(now, schedule(**changed), seen, previous) == expected


@given(
    now=st.integers(0, 10**16), period=st.integers(1, 10**9), shift=st.integers(-(10**9), 10**9),
    inject=st.integers(0, 10**6), gate=st.booleans(), pause=st.integers(0, 2),
    previous=st.none() | st.integers(0, 10**16),
)  # fmt: skip
def test_never_longer_than_one_period(
    now: int, period: int, shift: int, inject: int, gate: bool, pause: int, previous: int | None
) -> None:
    made = schedule(period_us=period, shift_us=shift, inject_us=inject, gate=gate, pause_seq=pause)
    wait = wait_us(now, made, 1, previous)
    assert 0 <= wait <= period
    if gate and wait and pause < 2 and wait != rm_iteration.MAX_BLIND_WAIT_US:
        assert (now + wait - 1_000_000 - shift) % period == 0  # ends exactly in the slot
        assert wait <= period // 2


def test_reports_name_origins_and_waits(tmp_path: Path) -> None:
    reports, plan = tmp_path / "0.jsonl", tmp_path / "schedule.json"
    iterations = rm_iteration.Iterations({"RM_SCHEDULE": str(plan), "RM_REPORTS": str(reports), "RANK": "3"})
    for n in range(3):
        if n == 1:
            made = schedule(epoch_us=0, shift_us=0, period_us=30_000, pause_seq=1)
            plan.write_text(json.dumps(made))
        iterations.start()
        iterations.communication_starts()
        iterations.communication_ends()
        iterations.end()
    iterations.close()
    rows = [json.loads(line) for line in reports.read_text().splitlines()]
    assert [row[:2] for row in rows] == [[3, 0], [3, 1], [3, 2]]
    assert iterations.waited_us == sum(row[4] for row in rows) == rows[0][4]
    assert rows[0][4] <= rows[0][3]
    assert all(row[5] is not None for row in rows)


def test_outside_rm_it_does_nothing() -> None:
    iterations = rm_iteration.Iterations({})
    with iterations:
        pass
    assert (iterations.active, iterations.count) == (False, 0)


@pytest.mark.parametrize("text", ["{", "[1]", '{"period_us": "x", "gate": true}', "\x00"])
def test_a_broken_schedule_is_no_schedule(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "schedule.json"
    plan.write_text(text)
    iterations = rm_iteration.Iterations({"RM_SCHEDULE": str(plan), "RM_REPORTS": str(tmp_path / "no" / "x")})
    for _ in range(3):
        with iterations:
            pass
    assert iterations.waited_us == 0
    assert capsys.readouterr().err.count("rm_iteration:") == 1


def test_the_last_iteration_is_reported_at_exit(tmp_path: Path) -> None:
    reports = tmp_path / "r.jsonl"
    code = "from rm_iteration import iteration\nfor _ in range(2):\n    with iteration():\n        pass\n"
    environ = {**os.environ, "PYTHONPATH": str(AGENTS), "RM_REPORTS": str(reports)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environ)
    assert len(reports.read_text().splitlines()) == 2


def test_sleeping_is_never_short() -> None:
    begin = time.monotonic_ns()
    rm_iteration.sleep_us(3_000)
    assert time.monotonic_ns() - begin >= 3_000_000


@pytest.mark.parametrize("by_s", [18_000, -18_000])
def test_a_clock_that_is_set_makes_no_iteration_longer_or_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_s: int
) -> None:
    clock = {"run": 0, "wall": 1_000_000_000_000_000}  # nanoseconds

    def go_on(seconds: float) -> None:
        for name in clock:
            clock[name] += round(seconds * 1e9)

    clocks = {"time_ns": lambda: clock["wall"], "monotonic_ns": lambda: clock["run"], "sleep": go_on}
    monkeypatch.setattr(rm_iteration, "time", SimpleNamespace(**clocks))
    reports, plan = tmp_path / "r.jsonl", tmp_path / "schedule.json"
    plan.write_text(json.dumps(schedule(epoch_us=0, shift_us=0, inject_us=20_000)))
    iterations = rm_iteration.Iterations({"RM_SCHEDULE": str(plan), "RM_REPORTS": str(reports)})
    for n in range(4):
        iterations.start()
        go_on(0.15)
        if n == 1:
            clock["wall"] += by_s * 1_000_000_000
        iterations.communication_starts()
        go_on(0.03)
        iterations.communication_ends()
        iterations.end()
    iterations.close()
    rows = [json.loads(line) for line in reports.read_text().splitlines()]
    # each waits until the effective period is over, but the last, which nothing follows
    assert [row[3:] for row in rows] == [[200_000, 20_000, 30_000]] * 3 + [[180_000, 0, 30_000]]
    origins = [row[2] for row in rows]
    assert [b - a for a, b in itertools.pairwise(origins)] == [200_000, 200_000 + by_s * 1_000_000, 200_000]
