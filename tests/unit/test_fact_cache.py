"""`fact_caching = jsonfile`: facts that ansible-core 2.19 keeps are read, what rm learns is kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.playbook.fact_cache import FactCache
from rm.adapters.playbook.files import LocalFiles
from rm.errors import UsageError
from rm.playbook.read.ansible_settings import Settings
from rm.playbook.template.variables import HostState

HOUR_S = 3600
# as ansible-core 2.19 keeps a set_fact with `cacheable`
TAGGED = {
    "__ansible_type": "_AnsibleTaggedInt",
    "value": 1,
    "tags": [{"__ansible_type": "Origin", "line_num": 6}],
}


def cache_of(directory: Path, timeout_s: int = HOUR_S) -> FactCache:
    said = Settings(
        fact_caching="jsonfile", fact_caching_connection=str(directory), fact_caching_prefix="p_",
        fact_caching_timeout_s=timeout_s,
    )  # fmt: skip
    found = LocalFiles(ansible=said).fact_cache
    assert found is not None
    return found


def loaded(directory: Path, timeout_s: int = HOUR_S, **inventory: Any) -> tuple[HostState, list[str]]:
    notes: list[str] = []
    state = HostState("web", inventory)
    cache_of(directory, timeout_s).load({"web": state}, notes.append)
    return state, notes


def keep(directory: Path, facts: Any, name: str = "p_s1_web") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(json.dumps({"__payload__": json.dumps(facts)}))
    return directory / name


def test_facts_that_ansible_keeps_are_the_host_s(tmp_path: Path) -> None:
    keep(tmp_path, {"ansible_system": "Linux", "mine": TAGGED, "_ansible_facts_gathered": True})
    state, notes = loaded(tmp_path)
    assert state.facts == {"system": "Linux", "mine": 1}
    assert state.injected() == {"ansible_system": "Linux", "mine": 1}
    assert (state.gathered, notes) == (True, [])


def test_facts_of_older_ansibles_are_read(tmp_path: Path) -> None:
    (tmp_path / "p_web").write_text('{"ansible_system": "Linux"}')
    assert loaded(tmp_path)[0].facts == {"system": "Linux"}


def test_what_is_learnt_is_kept_and_what_is_cleared_is_forgotten(tmp_path: Path) -> None:
    state = HostState("web", {})
    state.add_facts({"system": "Linux", "mine": [1]}, ["mine"])
    state.gathered = True
    folder = tmp_path / "new/cache"
    cache_of(folder).save({"web": state}, pytest.fail)
    kept = json.loads(json.loads((folder / "p_s1_web").read_text())["__payload__"])
    assert kept == {
        "ansible_system": "Linux", "mine": [1], "_ansible_facts_gathered": True, "module_setup": True,
    }  # fmt: skip
    again = HostState("web", {})
    cache = cache_of(folder)
    cache.load({"web": again}, pytest.fail)
    assert (again.facts, again.bare, again.gathered) == (state.facts, state.bare, True)
    before = os.stat(folder / "p_s1_web").st_ino
    cache.save({"web": again}, pytest.fail)
    assert os.stat(folder / "p_s1_web").st_ino == before  # nothing is new
    again.forget_facts()
    cache.save({"web": again}, pytest.fail)
    assert list(folder.iterdir()) == []


def test_old_facts_are_none(tmp_path: Path) -> None:
    path = keep(tmp_path, {"ansible_system": "Linux"})
    os.utime(path, (1, 1))
    assert loaded(tmp_path)[0].facts is None
    assert loaded(tmp_path, timeout_s=0)[0].facts == {"system": "Linux"}


def test_a_fact_in_the_place_of_the_inventory_s_variable_is_told(tmp_path: Path) -> None:
    keep(tmp_path, {"ansible_system": "Linux", "port": 1})
    state, notes = loaded(tmp_path, port=2)
    assert state.facts == {"system": "Linux"}
    assert "'port' is passed over" in notes[0]


@pytest.mark.parametrize("text", ["{", "[]", '{"__payload__": "x"}', '{"ansible_hostname": "../../etc"}',
                                  '{"a": {"__ansible_type": "Undecryptable"}}', "\xff"])  # fmt: skip
def test_a_file_that_cannot_be_facts_is_told_and_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "p_s1_web").write_bytes(text.encode("latin-1"))
    state, notes = loaded(tmp_path)
    assert state.facts is None
    assert str(tmp_path / "p_s1_web") in notes[0]


@pytest.mark.parametrize("name", ["", "p_s1_web"])
def test_what_others_may_write_is_refused(tmp_path: Path, name: str) -> None:
    keep(tmp_path, {})
    (tmp_path / name).chmod(0o777)
    with pytest.raises(UsageError, match=f"may write {tmp_path / name},"):
        loaded(tmp_path)


def test_a_directory_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be used"):
        cache_of(tmp_path / "file")
