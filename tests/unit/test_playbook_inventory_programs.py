"""Inventories that are programs, and those of inventory plug-ins: beside what ansible-core makes of them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.playbook.inventory_files import hosts_for_daemon, read_inventory
from rm.adapters.playbook.inventory_programs import STRICT
from rm.adapters.playbook.trust import closing
from rm.adapters.playbook.vault import Vault
from rm.errors import ConfigError
from rm.playbook.inventory.inventory import Inventory
from rm.playbook.model.located import Unsafe
from tests.unit.test_playbook_vault import seal

HOSTVARS = {"a": {"y": 1, "deep": [{"__ansible_unsafe": "{{ q }}"}]}, "b": {}}
GROUPS: dict[str, Any] = {
    "web": {
        "hosts": ["b", "a"],
        "vars": {"x": "{{ 1 + 1 }}", "raw": {"__ansible_unsafe": "{{ no }}"}},
        "children": ["sub"],
    },
    "sub": ["c"],
    "lone": {"k": 3},
    "empty": {},
}
PROGRAM = """#!{python}
import json, sys
hostvars, answer = json.loads({hostvars!r}), json.loads({answer!r})
print(json.dumps(hostvars.get(sys.argv[2], {{}}) if sys.argv[1] == "--host" else answer))
"""
CONSTRUCTED = """\
plugin: constructed
strict: true
use_vars_plugins: true
groups: {odd: y is defined}
compose: {w: "(size | int) + 1"}
keyed_groups: [{key: "'k' ~ size", prefix: s}]
"""


def program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def answering(path: Path, answer: Any) -> str:
    text = PROGRAM.format(python=sys.executable, hostvars=json.dumps(HOSTVARS), answer=json.dumps(answer))
    return program(path, text)


def told(inventory: Inventory) -> dict[str, Any]:
    return {
        "groups": {n: sorted(hosts) for n, hosts in inventory.groups.items() if hosts},
        "variables": {name: host.variables for name, host in inventory.hosts.items()},
    }


def ansibles(*sources: str) -> dict[str, Any]:
    """Groups and variables as ansible-core has them, in the same form."""
    asked = [word for source in sources for word in ("-i", source)]
    argv = [sys.executable, "-m", "ansible", "inventory", *asked, "--list"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={**os.environ, **STRICT})
    answer = json.loads(done.stdout)
    variables = answer.pop("_meta")["hostvars"]

    def members(name: str) -> set[str]:
        group = answer.get(name, {})
        return {*group.get("hosts", ()), *(h for c in group.get("children", ()) for h in members(c))}

    groups = {name: sorted(members(name)) for name in answer if members(name)}
    return {"groups": groups, "variables": {name: variables.get(name, {}) for name in groups["all"]}}


def plain(value: Any) -> Any:
    """Ansible's export marks every text that is no template; its value is what counts."""
    if isinstance(value, dict):
        return (
            plain(value["__ansible_unsafe"])
            if "__ansible_unsafe" in value
            else {k: plain(v) for k, v in value.items()}
        )
    return [plain(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("meta", [True, False])
def test_a_program_answers_as_to_ansible(tmp_path: Path, meta: bool) -> None:
    given = {**GROUPS, "_meta": {"hostvars": {**HOSTVARS, "unheard": {"z": 1}}}} if meta else GROUPS
    source = answering(tmp_path / "inventory", given)
    found = read_inventory([source], programs=True)[0]
    assert list(found.hosts) == ["b", "a", "c", "lone", "empty"]
    assert isinstance(found.hosts["b"].variables["raw"], Unsafe)
    assert isinstance(found.hosts["a"].variables["deep"][0], Unsafe)
    assert not isinstance(found.hosts["b"].variables["x"], Unsafe)
    expected = ansibles(source)
    assert told(found)["groups"] == expected["groups"]
    ours = {
        name: {**given, "x": "2"} if "x" in given else given
        for name, given in told(found)["variables"].items()
    }
    theirs = plain(expected["variables"])
    for given in theirs.values():
        if "x" in given:
            given["x"] = "2"  # a template there, and evaluated nowhere
    assert ours == theirs


def test_a_plugin_builds_upon_the_sources_before_it_on_sealed_variables_and_on_no_module_that_lies_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("ansible/__init__.py", "ansible/__main__.py", "runpy.py", "yaml.py"):
        (tmp_path / "here" / module).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / module).write_text("raise SystemExit('it was run')")
    monkeypatch.chdir(tmp_path / "here")
    first = answering(tmp_path / "1", {"web": {"hosts": ["b", "a"]}, "_meta": {"hostvars": HOSTVARS}})
    (tmp_path / "2.yml").write_text(CONSTRUCTED)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "web").write_text(seal(b"size: 4\n", b"p"))
    found = read_inventory([first, str(tmp_path / "2.yml")], Vault([b"x" * 70_000, b"p"]), programs=True)[0]
    assert list(found.hosts) == ["b", "a"]
    assert found.groups["odd"] == ("a",)
    assert found.groups["s_k4"] == ("b", "a")
    assert {host.variables["w"] for host in found.hosts.values()} == {5}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#!/bin/sh\necho no such zone >&2; exit 3\n", "ended with 3: no such zone"),
        ("#!/bin/sh\necho '{'\n", "does not answer with JSON"),
        ("#!/bin/sh\necho '[]'\n", "no object"),
        ('#!/bin/sh\necho \'{"g": {"hosts": "a"}}\'\n', "the group 'g': 'hosts' is no list of names"),
        ("#!/bin/sh\necho '{\"g\": 1}'\n", "the group 'g' is neither"),
        ('#!/bin/sh\necho \'{"g": ["a"], "_meta": {"hostvars": {"a": 1}}}\'\n', "host 'a' are no object"),
        ("#!/bin/sh\necho '{\"_meta\": []}'\n", "'_meta' is no object"),
        ('#!/bin/sh\necho \'{"g": ["a b"]}\'\n', "'a b' is not a host name"),
        ("#!/nowhere\n", "cannot be run: No such file"),
    ],
)
def test_a_program_that_fails_is_named_with_what_it_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match="inventory") as caught:
        read_inventory([program(tmp_path / "inventory", text)], programs=True)
    assert said in str(caught.value)


def test_a_plugin_that_fails_is_named_with_what_ansible_said(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text("plugin: constructed\nstrict: true\ncompose: {w: nothing}\n")
    (tmp_path / "a.ini").write_text("a\n")
    with pytest.raises(ConfigError, match=r"x\.yml ended with 1: .*'nothing' is undefined"):
        read_inventory([str(tmp_path)], programs=True)


def test_what_others_may_write_is_not_run(tmp_path: Path) -> None:
    source = answering(tmp_path / "inventory", GROUPS)
    os.chmod(source, 0o757)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    below = answering(tmp_path / "open" / "inventory", GROUPS)
    (tmp_path / "x.yml").write_text(CONSTRUCTED)
    (tmp_path / "x.yml").chmod(0o666)
    for one in (source, below, str(tmp_path / "x.yml")):
        with pytest.raises(ConfigError, match=r"Others than root and you may write .* chmod o-w /"):
            read_inventory([one], programs=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_commands_that_are_told_end_it_whatever_the_file_is_called(tmp_path: Path) -> None:
    source = answering(tmp_path / "an inventory; false", GROUPS)
    link = tmp_path / "$(false) link"
    link.symlink_to(Path(source).name)
    for one in (link, Path(source)):
        os.chown(one, 65534, -1, follow_symlinks=False)
    os.chmod(source, 0o757)
    commands = closing(link)
    assert commands.count(" && ") == 2
    subprocess.run(["sh", "-c", commands], check=True)
    assert not closing(link)
    assert (os.readlink(link), link.lstat().st_uid, Path(source).stat().st_uid) == (Path(source).name, 0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_who_owns_an_inventory_is_said_where_that_is_the_trouble(tmp_path: Path) -> None:
    source = answering(tmp_path / "inventory", GROUPS)
    (tmp_path / "link").symlink_to(source)
    os.chown(tmp_path / "link", 65534, -1, follow_symlinks=False)
    with pytest.raises(ConfigError, match=rf"\. ln -sfn -- {source} {tmp_path}/link, or keep"):
        read_inventory([str(tmp_path / "link")], programs=True)
    os.chown(source, 65534, -1)
    with pytest.raises(ConfigError, match=rf"\. chown root {source}, or keep"):
        read_inventory([source], programs=True)


def test_the_daemon_runs_none(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(CONSTRUCTED)
    for source in (answering(tmp_path / "inventory", GROUPS), str(tmp_path / "x.yml")):
        with pytest.raises(ConfigError, match="ansible-inventory -i"):
            hosts_for_daemon(source)


def test_passwords_that_cannot_be_held_leave_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.yml").write_text(CONSTRUCTED)
    fchmod, asked = os.fchmod, []

    def failing(end: int, mode: int) -> None:
        asked.append(end)
        if len(asked) > 1:
            raise OSError(errno.EIO, "a fault")
        fchmod(end, mode)

    monkeypatch.setattr(os, "fchmod", failing)
    with pytest.raises(OSError, match="a fault"):
        read_inventory([str(tmp_path / "x.yml")], Vault([b"p", b"q"]), programs=True)
    assert len(asked) == 2
    for end in asked:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end)
