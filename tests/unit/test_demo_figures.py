"""What the demo says where this machine was too busy for it."""

from __future__ import annotations

from typing import Any

from rm.api.reasons import Why
from rm.core.model.traffic import Phase, TrafficProfile
from rm.demo.figures import score_together, why_not_apart
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


def test_two_jobs_fit_together_as_far_as_their_phases_leave_room() -> None:
    def together(communicates_ms: int) -> float:
        phase = Phase(10_000, 1000 * communicates_ms, 95_000_000)
        return score_together(TrafficProfile(208_000, (phase,)))

    assert together(90) == 100
    assert 50 < together(128) < 95
