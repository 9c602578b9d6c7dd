"""Variables of groups that are made while a playbook runs, and of those beside imported playbooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.files import LocalFiles
from rm.adapters.playbook.host_variables import DaemonVariables, InventoryVariables
from rm.adapters.playbook.inventory_files import read_inventory
from rm.adapters.playbook.run import run_playbook
from rm.adapters.playbook.vault import Vault
from rm.core.model.host import Host
from rm.errors import ConfigError, UsageError
from rm.playbook.inventory.hosts import to_hosts
from rm.playbook.inventory.inventory import Beside
from rm.playbook.inventory.sources import GroupTree
from rm.playbook.run.report import Report

LOCAL = "[all:vars]\nansible_connection=local\n"
PLAY = "- hosts: {hosts}\n  gather_facts: false\n  tasks:\n"


def say(text: str) -> str:
    return f'  - debug: {{msg: "{text}"}}\n'


def play(hosts: str, *tasks: str) -> str:
    return PLAY.format(hosts=f"'{hosts}'") + "".join(tasks)


def run(top: Path, files: dict[str, str], vault: Vault | None = None) -> Report:
    """A run of play/site.yml on the inventory inv/hosts."""
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    vault = vault or Vault(())
    inventory, beside = read_inventory([str(top / "inv/hosts")], vault)
    sources, hosts = InventoryVariables(inventory, beside, vault), to_hosts(inventory)
    directory = str((top / "play").resolve())
    variables = {host.name: sources.merged(host.name, (), directory) for host in hosts}
    return run_playbook(
        top / "play/site.yml", hosts, SshSettings(top / "known_hosts"), inventory=variables, sources=sources,
        files=LocalFiles(vault),
    )  # fmt: skip


def said(report: Report, host: str) -> list[str]:
    assert report.ok, [one.message for results in report.results.values() for one in results]
    return [one.message for one in report.results[host] if one.module == "debug"]


def test_group_vars_of_a_group_count_once_a_host_has_joined_it(tmp_path: Path) -> None:
    report = run(tmp_path, {
        "inv/hosts": f"a own=mine\n[old]\na\n{LOCAL}",
        "inv/group_vars/all.yml": "color: all\nshared: all\n",
        "inv/group_vars/old.yml": "color: old\n",
        "inv/group_vars/above.yml": "color: above\nshared: above\nwhole: '{{ color }} {{ own }}'\n",
        "inv/group_vars/zmade.yml": "color: zmade\n",
        "play/group_vars/zmade.yml": "shared: beside the playbook\nown: a group's\n",
        "play/site.yml": play(
            "all", say("{{ color }} {{ shared }}"), "  - group_by: {key: zmade, parents: [above]}\n",
            say("{{ color }} {{ shared }} {{ own }} {{ whole }} {{ hostvars.a.color }}"),
        ),
    })  # fmt: skip
    assert said(report, "a") == ["old all", "zmade beside the playbook mine zmade mine zmade"]


def test_an_added_host_has_the_variables_of_its_groups_and_host_vars_beat_what_was_said(
    tmp_path: Path,
) -> None:
    added = "name: new, groups: [made], ansible_connection: local, number: 7, note: here, color: said"
    report = run(tmp_path, {
        "inv/hosts": f"a\n[known]\na\n[known:vars]\nrole=known\n{LOCAL}",
        "inv/group_vars/all.yml": "shared: all\n",
        "inv/group_vars/made.yml": "color: made\nnote: '{{ number }}'\nsize: '{{ number }}'\n",
        "inv/host_vars/new.yml": "number: 8\n",
        "play/host_vars/new.yml": "words: beside\n",
        "play/site.yml": play("a", f"  - add_host: {{{added}}}\n", "  - add_host: {name: lone}\n",
                              "  - add_host: {name: new, groups: known}\n")
        + play("made", say("{{ color }} {{ shared }} {{ note }} {{ size }} {{ words }} {{ role }}"))
        + play("a", say("{{ hostvars.lone.shared }} {{ hostvars.lone.group_names }}")),
    })  # fmt: skip
    assert said(report, "new") == ["said all here 8 beside known"]
    assert said(report, "a") == ["all ['ungrouped']"]


def test_a_group_of_the_inventory_brings_what_holds_it_and_a_new_parent_all_its_hosts(tmp_path: Path) -> None:
    report = run(tmp_path, {
        "inv/hosts": f"a\nb\n[web]\nb\n[site:children]\nweb\n[site:vars]\nplace=here\n{LOCAL}",
        "inv/group_vars/late.yml": "late: yes it is\n",
        "play/site.yml": play("a", "  - group_by: {key: web}\n", say("{{ place }} {{ groups.site }}"),
                              "  - group_by: {key: web, parents: [late]}\n")
        + play("late", say("{{ late }} {{ group_names }}")),
    })  # fmt: skip
    assert said(report, "a") == ["here ['b', 'a']", "yes it is ['late', 'site', 'web']"]
    assert said(report, "b") == ["yes it is ['late', 'site', 'web']"]


def test_groups_that_would_form_a_loop_are_refused(tmp_path: Path) -> None:
    tree = GroupTree()
    assert tree.add("a", ["b"])
    assert not tree.add("a", ["b", "all"])
    tree.add("b", ["c"])
    for group, parent in (("c", "a"), ("c", "c")):
        with pytest.raises(UsageError, match="form a loop"):
            tree.add(group, [parent])
    assert tree.above("a") == {"b", "c"}
    assert tree.ranked(["a", "z", "b", "c"]) == ("c", "z", "b", "a")
    assert GroupTree(priorities={"a": 9}).ranked(["a", "z"]) == ("z", "a")


def test_each_play_has_the_variables_beside_the_playbook_that_holds_it(tmp_path: Path) -> None:
    what = say(
        "{{ color }} {{ inner | default('-') }} {{ own | default('-') }} {{ playbook_dir | basename }}"
    )
    report = run(tmp_path, {
        "inv/hosts": f"a\n{LOCAL}",
        "play/group_vars/all.yml": "color: outer\n",
        "play/host_vars/a.yml": "own: outer\n",
        "play/deep/group_vars/all.yml": "color: inner\ninner: '{{ color }}'\nansible_password: pass-word\n",
        "play/deep/group_vars/made.yml": "color: made\n",
        "play/deep/site.yml": play("a", what, "  - group_by: {key: made}\n", what,
                                   say("{{ ansible_password }}")),
        "play/site.yml": play("a", what) + "- import_playbook: deep/site.yml\n" + play("a", what),
    })  # fmt: skip
    inner, made = "inner inner - deep", "made made - deep"
    spoken = said(report, "a")
    assert [*spoken[:3], spoken[4]] == ["outer - outer play", inner, made, "outer - outer play"]
    assert "pass-word" not in spoken[3]


def test_what_is_wrong_beside_an_imported_playbook_is_told_before_the_first_task(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="variables are a mapping"):
        run(tmp_path, {
            "inv/hosts": f"a\n{LOCAL}",
            "play/deep/group_vars/all.yml": "- a list\n",
            "play/deep/site.yml": play("a", say("x")),
            "play/site.yml": play("a", f"  - copy: {{content: x, dest: {tmp_path}/touched}}\n")
            + "- import_playbook: deep/site.yml\n",
        })  # fmt: skip
    assert not (tmp_path / "touched").exists()


def test_the_daemons_hosts_have_group_vars_beside_the_playbook_weaker_than_their_own(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/made.yml").write_text("color: made\nown: made\n")
    host = Host("a", "z", "10.0.0.1", variables=(("own", "mine"), ("group_names", '["web"]')))
    sources = DaemonVariables([host], Beside(groups={"web": {"color": "web"}}), Vault(()))

    def merged(name: str, joined: list[str]) -> dict[str, Any]:
        return sources.merged(name, joined, str(tmp_path))

    assert merged("a", []) == {"color": "web", "own": "mine", "group_names": ["web"]}
    assert merged("a", ["made"]) == {"color": "made", "own": "mine", "group_names": ["made", "web"]}
    assert merged("new", ["made"]) == {"color": "made", "own": "made", "group_names": ["made"]}
    assert merged("new", []) == {"group_names": ["ungrouped"]}
