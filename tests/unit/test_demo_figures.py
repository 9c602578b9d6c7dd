"""What the demo says where this machine was too busy for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from rm.api.reasons import Why
from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.demo import scenario
from rm.demo.figures import hardly_together, score_together, span, why_not_apart
from rm.demo.training import Iteration, JobRun
from tests.answers import answer


def verdict(host: str, message: str = "") -> dict[str, Any]:
    return {"host": host, "refused": {"code": "BadNetwork", "message": message} if message else None}


def test_jobs_that_were_not_kept_apart_are_explained_by_placements_own_words() -> None:
    taken = ("z1h1", "z1h3")
    busy = [verdict("z1h1"), verdict("z2h1", "loss 4 %"), verdict("z2h2", "delay 9 ms")]
    told = why_not_apart(taken, answer(Why, verdicts=busy))
    assert told == "Of the others placement said: z2h1: loss 4 %; z2h2: delay 9 ms."
    rhythm = "at the rhythm that the first job had by then"
    assert rhythm in why_not_apart(taken, answer(Why, verdicts=[verdict("z2h1")]))
    own = [verdict("z1h1")]
    passed_over = answer(Why, verdicts=own, choice={"passed_over_hosts": 1})
    assert rhythm in why_not_apart(taken, passed_over)
    for choice in (None, {"passed_over_hosts": None}, {"passed_over_hosts": 0}):
        assert (
            why_not_apart(taken, answer(Why, verdicts=own, choice=choice)) == "Placement saw no other host."
        )


def test_jobs_that_hardly_met_are_told_with_their_times() -> None:
    def run(number: int, start_us: int, iterations: int) -> JobRun:
        starts = [start_us + 200_000 * n for n in range(iterations)]
        return JobRun(
            scenario.PAIR[number], number, iterations=[Iteration(at, 200_000, 0, 0) for at in starts]
        )

    for late_us, words in ((5_000_000, "1.0 s"), (9_000_000, "0.0 s")):
        jobs = [run(0, late_us, 30), run(1, 0, 30)]
        begin, end = span(jobs, 2.0)
        assert end <= begin
        told = hardly_together(jobs, 2.0)
        assert told.startswith(
            f"All jobs ran together for {words}, of which the first 2 s are left out: job high "
        )
        assert told.endswith(f"began its first iteration {late_us / 1e6:.1f} s after job low.")


def test_two_jobs_fit_together_as_far_as_their_phases_leave_room() -> None:
    def together(communicates_ms: int) -> float:
        phase = Phase(10_000, 1000 * communicates_ms, 95_000_000)
        return score_together(TrafficProfile(208_000, (phase,)))

    assert together(90) == 100
    assert 50 < together(128) < 95


def test_the_programs_of_make_targets_start() -> None:
    program = Path(__file__).parents[2] / "examples" / "run_ddp.py"
    told = subprocess.run([sys.executable, str(program), "--help"], capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (0, "")
    assert "--iterations" in told.stdout
