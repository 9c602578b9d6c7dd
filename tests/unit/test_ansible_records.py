"""The records of what Ansible did are those of the corpus' playbooks, and of the shipped ones."""

from __future__ import annotations

import py_compile
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.e2e.equivalence import judge, recorded
from tests.e2e.equivalence.recipe import corpus, read
from tests.e2e.equivalence.test_drain import RECIPE
from tests.e2e.equivalence.test_shipped import PLAYBOOKS, RECIPES


def test_each_playbook_has_the_record_of_its_content_and_no_record_is_left_of_another() -> None:
    lasting = [recipe for recipe in (*corpus(), *RECIPES, RECIPE) if recorded.lasts(recipe)]
    old = [recipe.name for recipe in lasting if not recorded.is_of(recipe)]
    assert old == [], "`make records` asks Ansible, and writes them down"
    assert {path.stem for path in recorded.RECORDS.iterdir()} == {recipe.name for recipe in lasting}


def test_a_record_holds_whether_python_has_compiled_a_plugin_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among the words of a compiled file is the name of another one, which then seemed to be read, too."""
    here = tmp_path / "equivalence"
    shutil.copytree(recorded.HERE, here, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(recorded, "HERE", here)
    monkeypatch.setattr(recorded, "CORPUS", here / "corpus")
    recipe = read(here / "corpus/collection_roles.yml")
    before = recorded.content(recipe)
    for plugin in (here / "corpus/collections").rglob("*.py"):
        py_compile.compile(str(plugin), doraise=True)
    assert len(list((here / "corpus").rglob("*.pyc"))) == 3
    assert recorded.content(recipe) == before


def test_a_shipped_playbook_wants_a_new_record_when_a_file_that_it_may_read_changes(tmp_path: Path) -> None:
    playbooks = tmp_path / "playbooks"
    shutil.copytree(PLAYBOOKS, playbooks)
    recipe = replace(RECIPE, path=playbooks / RECIPE.path.name, reads=(playbooks,))
    assert recorded.content(recipe) == recorded.content(RECIPE)
    with (playbooks / "tasks/agents.yml").open("a") as tasks:
        tasks.write("# another one\n")
    assert recorded.content(recipe) != recorded.content(RECIPE)
    assert recorded.content(replace(RECIPE, arguments=())) != recorded.content(RECIPE)


def test_a_playbook_that_ansible_has_to_run_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes all the same, after ten times the time."""
    recipe, record = corpus()[0], Mock()
    stage = Mock(**{"recorded.return_value": record})
    monkeypatch.setattr(judge, "_seen", lambda *_: [])
    monkeypatch.setattr(judge, "told_beforehand", lambda *_: None)
    monkeypatch.setattr(judge, "unlike", lambda _, one, __: ["one: uid differs"] if one is record else [])
    with pytest.warns(UserWarning, match=f"^{recipe.name}: .*recorded: one: uid differs$"):
        judge.compare(stage, recipe)
    stage.by_ansible.assert_called_once_with(recipe)
    monkeypatch.setattr(judge, "unlike", lambda *_: [])
    judge.compare(stage, recipe)
    stage.by_ansible.assert_called_once_with(recipe)
