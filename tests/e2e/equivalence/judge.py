"""Are two ways of running a playbook the same, but for what its recipe says; was the run foretold?"""

from __future__ import annotations

import warnings

import pytest

from tests.e2e.equivalence import recorded
from tests.e2e.equivalence.outcome import Difference, Run, runs_differ, states_differ
from tests.e2e.equivalence.recipe import BOTH, Recipe
from tests.e2e.equivalence.snapshot import State
from tests.e2e.equivalence.stage import Played, Stage, complete


def compare(stage: Stage, recipe: Recipe) -> None:
    """Waits for a playbook, and asserts that both tools did the same and that check mode foretold it."""
    if not recipe.possible:
        pytest.skip(f"the collection {recipe.collection} is not installed; `make test` does that")
    rm = stage.played(recipe)
    if not _as_recorded(recipe, stage.recorded(recipe), rm):
        ansible = stage.by_ansible(recipe)
        assert not (lines := unlike(recipe, ansible, rm)), "\n".join(lines)
        recorded.write(recipe, ansible.runs, ansible.states, _seen(recipe, ansible, rm))
    told_beforehand(recipe, rm)


def _as_recorded(recipe: Recipe, record: recorded.Recorded | None, rm: Played) -> bool:
    """Did rm do what Ansible is known to have done? Warns where it did not, since Ansible's run is dear."""
    if record is None:
        return False
    try:
        lines = unlike(recipe, record, rm)
    except recorded.NotRecorded as problem:
        lines = [f"not known: {problem}"]
    if lines:
        why = "Ansible runs the playbook, since rm did not do what is recorded"
        warnings.warn(f"{recipe.name}: {why}: {lines[0]}", stacklevel=1)
    return not lines


def unlike(recipe: Recipe, ansible: Played | recorded.Recorded, rm: Played) -> list[str]:
    """What differs between the runs of each, or between what they left on the hosts, and is not meant to; and
    what is meant to and does not."""
    found: list[Difference] = []
    for index, which in _both(ansible, rm):
        runs = (ansible.runs[index], rm.runs[index + 1])
        found += runs_differ(which, *runs, recipe.moments, recipe.unordered)
        for host in recipe.names:
            sides = complete((ansible, index), (rm, index + 1), host)
            found += states_differ(which, host, *sides, recipe.random)
    meant = [Difference(one.where, one.ansible, one.rm) for one in recipe.differs]
    lines = [f"{one.where}: Ansible {one.ansible!r}, rm {one.rm!r}" for one in found if one not in meant]
    gone = [f"{one.where} does not differ, as the playbook's head says" for one in meant if one not in found]
    return [*lines, *gone]


def _both(ansible: Played | recorded.Recorded, rm: Played) -> list[tuple[int, str]]:
    """The runs that there were under both: rm's one in check mode comes before them."""
    count = min(len(ansible.runs), len(rm.runs) - 1)
    return list(enumerate(BOTH))[:count]


def _seen(recipe: Recipe, ansible: Played, rm: Played) -> list[dict[str, State]]:
    """What Ansible's hosts show, after each run, of the paths that only rm touched: nothing where they are
    not there."""
    found: list[dict[str, State]] = [{} for _ in ansible.runs]
    for index, _ in _both(ansible, rm):
        for host in recipe.names:
            paths = sorted(rm.states[index + 1][host].keys() - ansible.states[index][host].keys())
            there = ansible.seen(index, host, paths)
            found[index][host] = {path: there.get(path, {}) for path in paths}
    return found


def told_beforehand(recipe: Recipe, played: Played) -> None:
    """Asserts that check mode said of every task what the first run then did, and changed nothing."""
    foretold, first = (_statuses(run) for run in played.runs[:2])
    wrong = []
    for task in sorted({*foretold, *first}):
        said, did = foretold.get(task), first.get(task)
        if said != "might run" and said != recipe.check.get(task[1], did):
            wrong.append(f"{task}: foretold {said}, done {did}")
    assert not wrong, "\n".join(["check mode was wrong", *wrong])
    changed = {name: state for name, state in played.states[0].items() if state}
    assert not changed, f"check mode changed a host: {changed}"


def _statuses(run: Run) -> dict[tuple[str, str, int], str]:
    """Host, task and how often it was met before there, to the status."""
    found: dict[tuple[str, str, int], str] = {}
    for host, outcomes in run.tasks.items():
        for one in outcomes:
            met = sum(key[:2] == (host, one.name) for key in found)
            found[host, one.name, met] = "might run" if one.might_run else one.status
    return found
