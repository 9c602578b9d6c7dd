"""Worked examples of profiles, common periods, scores and searches (ticks, unit-free bandwidth)."""

import json
from pathlib import Path
from typing import Any

import pytest

from rm.core.model.asked.traffic import on_off
from rm.policies.interleave import (
    Circle,
    Demand,
    Distances,
    LinkLoad,
    Plan,
    canonical_phases,
    link_demand,
    phases_of,
    profile_from,
    random_phase,
    rank_key,
    search_block,
    search_offline,
    search_online,
    slot_pattern,
    unify,
    utilisation,
)
from rm.policies.interleave.score import score, score_eq18

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = json.loads((GOLDEN / "interleave.json").read_text())


def demands(given: dict[str, Any]) -> list[Demand]:
    return [
        Demand(
            j["job"],
            j["period"],
            phases(j),
            rank_key(j["priority"], j["sequence"], str(j["job"])),
            j.get("pinned", False),
        )
        for j in given["jobs"]
    ]


def phases(given: dict[str, Any]) -> tuple[tuple[int, int, int], ...]:
    return canonical_phases(given["period"], [tuple(p) for p in given["phases"]])


def planned(given: dict[str, Any]) -> tuple[Plan, LinkLoad]:
    jobs = demands(given)
    plan = unify(jobs, **{k: given[k] for k in ("slots", "min_slots") if k in given})
    assert plan is not None
    return plan, LinkLoad(given.get("capacity", 0), {d.job: d.phases for d in jobs})


def by_job(plan: Plan, k: tuple[int, ...]) -> dict[str, int]:
    return {str(job): k for job, k in zip(plan.order, k, strict=True)}


def rotations(given: dict[str, Any], plan: Plan) -> list[int]:
    return [given["k"][str(job)] for job in plan.order]


def on_off_case(given: dict[str, Any], wanted: Any) -> None:
    made = phases_of(on_off(given["period"], given["duty"], given["rate"]))
    assert [list(p) for p in made] == wanted["phases"]


def unify_case(given: dict[str, Any], wanted: Any) -> None:
    plan = unify(demands(given), **given["thresholds"])
    if wanted is None:
        assert plan is None
        return
    assert plan is not None
    for key, value in wanted.items():
        assert getattr(plan, key) == (tuple(value) if isinstance(value, list) else value), key


def pattern_case(given: dict[str, Any], wanted: Any) -> None:
    made = slot_pattern(phases(given), given["perimeter"], given["mul"], given["slots"])
    assert list(made) == wanted


def score_case(given: dict[str, Any], wanted: Any) -> None:
    plan, link = planned(given)
    excess = sum(Circle(plan, [link]).excess(rotations(given, plan)))
    assert excess == wanted["excess"]
    assert score(excess, link.capacity, plan.slots) == pytest.approx(wanted["score"])
    assert score_eq18(excess, link.capacity, plan.slots) == pytest.approx(wanted["eq18"])


def utilisation_case(given: dict[str, Any], wanted: Any) -> None:
    plan, link = planned(given)
    mine = [link.phases[j] for j in plan.order]
    used, over = utilisation(
        mine, rotations(given, plan), plan.mul, plan.perimeter, plan.slots, link.capacity
    )
    assert float(used) == pytest.approx(wanted["used"])
    assert float(over) == pytest.approx(wanted["over"])


def random_phase_case(given: dict[str, Any], wanted: Any) -> None:
    used, over = random_phase([(d.period, d.phases) for d in demands(given)], given["capacity"])
    assert used == pytest.approx(wanted["used"], abs=1e-9)
    assert over == pytest.approx(wanted["over"], abs=1e-9)


def psi_case(given: dict[str, Any], wanted: Any) -> None:
    plan, link = planned(given)
    circle, k = Circle(plan, [link]), rotations(given, plan)
    for name, value in wanted.items():
        metric, threshold = name.split()
        assert Distances(circle, metric, threshold == "at").psi(k) == pytest.approx(value), name


def link_demand_case(given: dict[str, Any], wanted: Any) -> None:
    profile = profile_from(given["period"], phases(given))
    args = (profile, given["on_host"], given["total"], given["model"])
    assert [list(p) for p in phases_of(link_demand(*args))] == wanted["phases"]
    limited = link_demand(*args, given["capacity"])
    assert limited.period_us == wanted["limited"]["period"]
    assert [list(p) for p in phases_of(limited)] == wanted["limited"]["phases"]


def online_case(given: dict[str, Any], wanted: Any) -> None:
    plan, link = planned(given)
    found = search_online(plan, link.phases, link.capacity)
    assert (found.perimeter, found.slots) == (wanted["perimeter"], wanted["slots"])
    assert found.exact
    assert by_job(plan, found.k) == wanted["k"]
    assert found.excess == wanted["excess"]
    assert found.perfect == (wanted["excess"] == 0)
    assert found.score == pytest.approx(wanted["score"])
    assert {str(j): float(found.shift(j)) for j in found.jobs} == pytest.approx(wanted["shift"])


def offline_case(given: dict[str, Any], wanted: Any) -> None:
    plan, link = planned(given)
    for name, value in wanted.items():
        metric, over = name.split()
        found = search_offline(plan, [link], metric, over)
        if value is None:
            assert found is None, name
        else:
            assert found is not None, name
            assert by_job(plan, found.scheme.k) == value["k"], name
            assert found.psi == pytest.approx(value["psi"]), name


def block_case(given: dict[str, Any], wanted: Any) -> None:
    plan, _ = planned(given)
    links = [
        LinkLoad(link["capacity"], {int(j): tuple(map(tuple, p)) for j, p in link["phases"].items()})
        for link in given["links"]
    ]
    found = search_block(plan, links)
    assert by_job(plan, found.k) == wanted["k"]
    assert found.excess == wanted["excess"]
    assert found.score == pytest.approx(wanted["score"])


CHECKS = {
    "on-off": on_off_case,
    "unify": unify_case,
    "pattern": pattern_case,
    "score": score_case,
    "utilisation": utilisation_case,
    "random-phase": random_phase_case,
    "psi": psi_case,
    "link-demand": link_demand_case,
    "online": online_case,
    "offline": offline_case,
    "block": block_case,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_worked_example(case: dict[str, Any]) -> None:
    CHECKS[case["kind"]](case["given"], case["wanted"])


def test_every_kind_of_example_is_present() -> None:
    assert {case["kind"] for case in CASES} == set(CHECKS)
