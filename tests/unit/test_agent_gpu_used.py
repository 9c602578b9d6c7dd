"""How busy GPUs were while attempts had them, by a stand-in for the driver's program."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import recorded_gpu
from tests.agent_process import AGENTS

sys.path.insert(0, str(AGENTS))
import rm_attempts
import rm_gpu_used
import rm_step_gpus
from rm_attempt import Attempt
from rm_spool import Folder

Run = Callable[[float], None]
MIB = 1 << 20


class World:
    """Attempts with GPUs, a clock, and a nvidia-smi that prints what `rows` says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.now, self.rows = folder, 100.0, ""
        self.program = folder / "nvidia-smi"
        self.answers(0, 0)
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(rm_gpu_used, "time", clock)
        self.live: set[Any] = set()
        self.watch = rm_gpu_used.GpuWatch(SimpleNamespace(live=self.live), lambda: str(self.program))

    def answers(self, *busy: int | str, mem_mib: int = 1000, watts: str = "250.50") -> None:
        rows = "".join(f"{n}, GPU-{n}, {share}, {mem_mib + n}, {watts}\\n" for n, share in enumerate(busy))
        self.program.write_text(f"#!/bin/sh\nprintf '{rows}'\n")
        self.program.chmod(0o755)

    def attempt(self, job: int, *gpus: str, ago_s: float | None = None) -> Any:
        folder = Folder(str(self.folder / f"{job}.1"), job, 1)
        (self.folder / f"{job}.1").mkdir(exist_ok=True)
        made = Attempt(folder)
        started_us = None if ago_s is None else time.time_ns() // 1000 - int(ago_s * 1e6)
        made.ranks = {0: {"state": "running", "started_us": started_us}}
        made.meta = {"given": {"gpus": {"0": list(gpus)}}}
        self.live.add(made)
        return made

    def look(self, later_s: float = rm_gpu_used.LOOK_S) -> None:
        """One whole look, after so long."""
        self.now += later_s
        self.watch.tick()
        process = self.watch._process
        if process is not None:
            process.wait()
            self.watch.tick()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_each_attempt_has_what_its_own_gpus_did(world: World) -> None:
    first, second, none = world.attempt(1, "GPU-0", "GPU-1"), world.attempt(2, "2"), world.attempt(3)
    world.look()  # from here on it is known since when
    world.answers(50, 100, 10)
    world.look()
    world.answers(0, 0, 20, mem_mib=3000)
    world.look()
    assert first.gpus_used[:3] == [40_000_000, 15_000_000, 3001 * MIB]
    assert first.gpus_used[3] == 4 * 2_505_000  # 250.5 W for 10 s are 2,505 J
    assert second.gpus_used == [20_000_000, 3_000_000, 3002 * MIB, 2 * 2_505_000]
    assert none.gpus_used is None


def test_what_was_not_looked_at_does_not_count_as_idle(world: World) -> None:
    attempt = world.attempt(1, "GPU-0")
    world.look()
    world.answers(100)
    world.look(1000.0)  # the host was frozen, say
    assert attempt.gpus_used[:2] == [30_000_000, 30_000_000]


@pytest.mark.parametrize(("ago_s", "watched_s"), [(4, 4), (3600, 10), (-50, 0)])
def test_the_first_look_counts_since_the_start(
    world: World, monkeypatch: pytest.MonkeyPatch, ago_s: float, watched_s: int
) -> None:
    now_us = time.time_ns() // 1000
    monkeypatch.setattr(rm_gpu_used, "now_us", lambda: now_us)
    monkeypatch.setattr(time, "time_ns", lambda: now_us * 1000)
    attempt = world.attempt(1, "GPU-0", ago_s=ago_s)
    world.answers(100)
    world.look()
    assert (attempt.gpus_used or [0])[0] == watched_s * 1_000_000


def test_the_next_agent_goes_on(world: World) -> None:
    attempt = world.attempt(1, "GPU-0")
    world.look()
    world.answers(100)
    world.look()
    assert rm_gpu_used.kept(attempt.folder) == attempt.gpus_used
    again = world.attempt(1, "GPU-0")
    again.gpus_used = rm_gpu_used.kept(again.folder)
    world.live.discard(attempt)
    world.look()
    world.look()
    assert again.gpus_used[0] > attempt.gpus_used[0]


def test_a_gpu_that_is_cut_into_instances_cannot_be_watched(world: World) -> None:
    attempt = world.attempt(1, "GPU-0")
    world.look()
    world.answers("[N/A]")
    world.look()
    assert attempt.gpus_used is None


def test_what_a_real_driver_says() -> None:
    for text, numbers in (
        (recorded_gpu.BUSY, (0.99, 4623 * MIB, 339.83)),
        (recorded_gpu.IDLE, (0, 0, 72.44)),
    ):
        (one,) = rm_gpu_used.looked(text)
        assert one.names == {"0", recorded_gpu.UUID}
        assert (one.busy, one.mem_bytes, one.power_w) == numbers


def test_power_that_is_not_said_is_none(world: World) -> None:
    attempt = world.attempt(1, "GPU-0")
    world.look()
    world.answers(30, watts="[N/A]")
    world.look()
    assert attempt.gpus_used == [10_000_000, 3_000_000, 1000 * MIB, 0]


def test_without_attempts_that_have_gpus_nobody_is_asked(world: World) -> None:
    world.attempt(1)
    world.program.write_text("#!/bin/sh\ntouch $0.asked\n")
    for _ in range(3):
        world.look()
    assert not (world.folder / "nvidia-smi.asked").exists()


def test_a_driver_that_hangs_is_given_up_and_asked_again(world: World) -> None:
    attempt = world.attempt(1, "GPU-0")
    world.program.write_text("#!/bin/sh\nexec sleep 1000\n")
    world.now += rm_gpu_used.LOOK_S
    world.watch.tick()
    process = world.watch._process
    world.now += rm_gpu_used.ANSWER_S
    world.watch.tick()
    assert process.wait() != 0
    world.watch.tick()
    world.answers(100)
    world.look()
    assert attempt.gpus_used[0] > 0


def test_a_host_without_the_program_is_left_alone(world: World) -> None:
    attempt = world.attempt(1, "GPU-0")
    world.watch = rm_gpu_used.GpuWatch(SimpleNamespace(live=world.live), lambda: "")
    world.look()
    world.look()
    assert attempt.gpus_used is None


@pytest.mark.parametrize("text", ["", "null", "[1, 2]", '["a", 1, 2, 3]', "[1, 2, 3"])
def test_a_file_that_says_something_else_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / rm_gpu_used.FILE).write_text(text)
    assert rm_gpu_used.kept(Folder(str(tmp_path), 1, 1)) is None


def test_since_the_last_look_they_went_on_as_they_were(world: World) -> None:
    attempt, other = world.attempt(1, "GPU-0", "GPU-1"), world.attempt(2, "GPU-2")
    world.answers(50, 100, 10)
    world.look()
    world.look()
    looked, at_us = list(attempt.gpus_used), attempt.gpus_last[0]
    told = rm_gpu_used.told(attempt, at_us + 4_000_000)
    assert told == {
        "gpu_us": looked[0] + 8_000_000, "gpu_busy_us": looked[1] + 6_000_000, "gpu_mem_bytes": looked[2],
        "energy_mj": looked[3] + 2 * 1_002_000,
    }  # fmt: skip
    assert attempt.gpus_used == looked  # the next look adds that time
    later = {"nobody has looked for long": (1000, 10), "it ended before the look": (-3, 0)}
    for why, (after_s, counted_s) in later.items():
        ended_us = other.gpus_last[0] + after_s * 1_000_000
        assert rm_gpu_used.told(other, ended_us)["gpu_us"] == other.gpus_used[0] + counted_s * 1_000_000, why
    other.gpus_last = None  # another agent has looked
    assert rm_gpu_used.told(other, at_us + 4_000_000)["gpu_us"] == other.gpus_used[0]


def test_they_are_told_with_the_end_of_the_attempt(tmp_path: Path) -> None:
    attempt = Attempt(Folder(str(tmp_path), 1, 1))
    attempt.ranks, attempt.gpus_used = {0: {}, 1: {}}, [8, 2, 3, 4]
    record = dict.fromkeys(("started_us", "ended_us", "code", "signal", "oom", "why"), 0)
    tell = rm_attempts.Attempts._end
    tell(None, attempt, 0, dict(record, used=[1, 2, 3, 4, 5, 6]))
    tell(None, attempt, 1, dict(record, whole=[1, 2, 3, 4, 5, 6]))
    assert attempt.ranks[0]["whole"] is None
    assert "gpu_us" not in attempt.ranks[0]["used"]
    whole = attempt.ranks[1]["whole"]
    assert (whole["user_us"], whole["gpu_us"], whole["gpu_busy_us"]) == (1, 8, 2)
    assert (whole["gpu_mem_bytes"], whole["energy_mj"]) == (3, 4)


def test_a_step_has_what_its_gpus_did_while_it_ran(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two steps one sees both GPUs and begins in the middle between two looks."""
    at_s = [1000.0]  # of the host's clock
    for module in (rm_gpu_used, rm_step_gpus):
        monkeypatch.setattr(module, "now_us", lambda: int(at_s[0] * 1e6))
    monkeypatch.setattr(rm_step_gpus, "time", SimpleNamespace(monotonic=lambda: world.now))
    folder = world.attempt(1, "GPU-0", "GPU-1").folder

    def look(later_s: float) -> None:
        at_s[0] += later_s
        world.look(later_s)

    look(10)
    world.answers(50, 100)
    first = rm_step_gpus.StepGpus(folder, ["GPU-0"])
    look(5)
    at_s[0], world.now = at_s[0] + 5, world.now + 5
    both = rm_step_gpus.StepGpus(folder, ["0", "1"])
    assert both.told() == {}  # nobody has looked since it began
    look(5)
    for one in (first, both):
        one.look()
        one.look()  # what was seen counts once
    told = first.told()
    assert (told["gpu_us"], told["gpu_busy_us"], told["gpu_mem_bytes"]) == (15_000_000, 7_500_000, 1000 * MIB)
    assert told["energy_mj"] == 15 * 250_500
    told = both.told()
    assert (told["gpu_us"], told["gpu_busy_us"], told["gpu_mem_bytes"]) == (10_000_000, 7_500_000, 1001 * MIB)
    world.answers(0, 0)
    at_s[0], world.now = at_s[0] + 4, world.now + 4
    assert first.end()["gpu_busy_us"] == 9_500_000  # it went on as it was
    at_s[0] += 3600
    assert both.end()["gpu_us"] == 10_000_000 + 2 * 10_000_000  # but for no longer than a look


def test_a_step_without_gpus_or_looks_tells_nothing(world: World) -> None:
    folder = world.attempt(1, "GPU-0").folder
    assert rm_step_gpus.StepGpus(folder, ["GPU-0"]).end() == {}
    (world.folder / "1.1" / "gpus.seen").write_text('{"at_us": 1, "gpus": [["0"]]}')
    assert rm_step_gpus.StepGpus(folder, ["GPU-0"]).end() == {}
    assert rm_step_gpus.StepGpus(folder, []).end() == {}
