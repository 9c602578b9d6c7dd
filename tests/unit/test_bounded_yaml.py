"""YAML of a few hundred bytes that would stand for billions of values, wherever YAML is read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rm.adapters.playbook.vault import Vault
from rm.cli.playbook.given import extra_variables
from rm.errors import RmError
from rm.playbook.inventory.inventory import parse
from rm.playbook.model.bounded_yaml import load_all_plain, load_plain
from rm.playbook.model.located import load
from rm.playbook.read.parse import parse_playbook
from tests.unit.playbook_world import World, play

LETTERS = "abcdefghij"
LINES = ["a: &a [x, x, x, x, x, x, x, x, x]"]
NEXT = list(itertools.pairwise(LETTERS))
LINES += [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in NEXT]
BOMB = "\n".join(LINES) + "\n"
MAPS = "a: &a {k1: x, k2: x, k3: x}\n" + "".join(
    f"{new}: &{new} {{k1: *{old}, k2: *{old}, k3: *{old}, k4: *{old}, k5: *{old}, k6: *{old}}}\n"
    for old, new in NEXT
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "aliases stand for more than"),
        (MAPS, "aliases stand for more than"),
        ("a: &a [1, *a]", "stands for what it is in"),
        ("a: &a {b: {c: *a}}", "stands for what it is in"),
        ("[" * 100_000, "levels of lists and mappings"),
        ("- " * 100_000 + "x", "levels of lists and mappings"),
        ("{a: " * 5_000, "levels of lists and mappings"),
    ],
    ids=["lists", "mappings", "itself", "inside itself", "brackets", "dashes", "braces"],
)
@pytest.mark.parametrize(
    "read",
    [
        load_plain,
        load_all_plain,
        lambda text: load(text, "x.yml"),
        lambda text: parse(text, "hosts.yml"),
        lambda text: parse_playbook(text, "site.yml"),
    ],
    ids=["plain", "all", "located", "inventory", "playbook"],
)
def test_what_unfolds_is_refused(read: Callable[[str], Any], text: str, said: str) -> None:
    with pytest.raises((RmError, yaml.YAMLError), match=said):
        read(text)


def test_variables_from_files_and_the_command_line_are_bounded(tmp_path: Path) -> None:
    file = tmp_path / "vars.yml"
    file.write_text(BOMB)
    with pytest.raises(RmError, match="aliases stand for"):
        extra_variables([f"@{file}"], Vault(()))
    world = play("  - include_vars: vars.yml\n", hosts=("a",), files={"vars.yml": BOMB})
    assert "aliases stand for" in world.results["a"][0].message


@pytest.mark.parametrize("filter", ["from_yaml", "from_yaml_all"])
@pytest.mark.parametrize("text", [BOMB, "[" * 100_000], ids=["aliases", "brackets"])
def test_what_a_host_says_is_bounded_when_it_is_read_as_yaml(filter: str, text: str) -> None:
    tasks = f"""\
  - {{command: x, register: out}}
  - debug: {{msg: "{{{{ out.stdout | {filter} }}}}"}}
"""
    world: World = play(tasks, hosts=("a",), answer=lambda host, step: {"stdout": text})
    assert world.results["a"][-1].status == "failed"


def test_ordinary_aliases_merges_and_long_files_are_read_as_before() -> None:
    text = "base: &base {a: 1, b: [1, 2]}\none: {<<: *base, a: 2}\ntwo: *base\n"
    assert load(text, "x") == yaml.safe_load(text)
    long = "".join(f"- {{name: host{number}, list: [1, 2, 3]}}\n" for number in range(3_000))
    assert load_plain(long) == yaml.load(long, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    assert load_all_plain("a: &x 1\n---\nb: *x2\n".replace("*x2", "2")) == [{"a": 1}, {"b": 2}]
    with pytest.raises(yaml.YAMLError):
        load_plain("a: *nobody")


@pytest.mark.parametrize(
    "value",
    [
        "2026-13-45",
        "2026-02-31",
        "9" * 5_000,
        "!!float x",
        "!!int x",
        '!!int ""',
        "!!timestamp x",
        "!!bool x",
    ],
)
def test_what_has_the_form_of_a_value_and_is_none_is_told_with_its_line(value: str) -> None:
    with pytest.raises(yaml.MarkedYAMLError) as error:
        load_plain(f"a: 1\nb: {value}\n")
    assert "quote it" in str(error.value)
    assert error.value.problem_mark is not None
    assert error.value.problem_mark.line == 1
