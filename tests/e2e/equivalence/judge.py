"""Are two ways of running a playbook the same, but for what its recipe says; was the run foretold?"""

from __future__ import annotations

import pytest

from tests.e2e.equivalence.outcome import Difference, Run, runs_differ, states_differ
from tests.e2e.equivalence.recipe import BOTH, Recipe
from tests.e2e.equivalence.stage import Played, Stage, complete


def compare(stage: Stage, recipe: Recipe) -> None:
    """Waits for a playbook, and asserts that both tools did the same and that check mode foretold it."""
    if not recipe.possible:
        pytest.skip(f"the collection {recipe.collection} is not installed; `make test` does that")
    rm = stage.played("rm", recipe)
    same(recipe, stage.played("ansible", recipe), rm)
    told_beforehand(recipe, rm)


def same(recipe: Recipe, ansible: Played, rm: Played) -> None:
    """Asserts that the runs of each, and what they left on the hosts, differ only as is meant."""
    found: list[Difference] = []
    for index, which in enumerate(BOTH):
        if len(ansible.runs) <= index or len(rm.runs) <= index + 1:  # the one in check mode comes first
            break
        runs = (ansible.runs[index], rm.runs[index + 1])
        found += runs_differ(which, *runs, recipe.moments, recipe.unordered)
        for host in recipe.names:
            sides = complete((ansible, index), (rm, index + 1), host)
            found += states_differ(which, host, *sides, recipe.random)
    meant = [Difference(one.where, one.ansible, one.rm) for one in recipe.differs]
    lines = [f"{one.where}: Ansible {one.ansible!r}, rm {one.rm!r}" for one in found if one not in meant]
    assert not lines, "\n".join(["they differ", *lines])
    gone = [one for one in meant if one not in found]
    assert gone == [], "the head of the playbook tells of differences that are none"


def told_beforehand(recipe: Recipe, played: Played) -> None:
    """Asserts that check mode said of every task what the first run then did, and changed nothing."""
    foretold, first = (_statuses(run) for run in played.runs[:2])
    wrong = []
    for task in sorted({*foretold, *first}):
        said, did = foretold.get(task), first.get(task)
        if said != "might run" and said != recipe.check.get(task[1], did):
            wrong.append(f"{task}: foretold {said}, done {did}")
    assert not wrong, "\n".join(["check mode was wrong", *wrong])
    assert played.states[0] == {name: {} for name in recipe.names}, "check mode changed a host"


def _statuses(run: Run) -> dict[tuple[str, str, int], str]:
    """Host, task and how often it was met before there, to the status."""
    found: dict[tuple[str, str, int], str] = {}
    for host, outcomes in run.tasks.items():
        for one in outcomes:
            met = sum(key[:2] == (host, one.name) for key in found)
            found[host, one.name, met] = "might run" if one.might_run else one.status
    return found
