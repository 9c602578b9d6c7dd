"""Variables that say how a host is reached: followed wherever they are set, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.inventory_files import hosts_for_daemon
from rm.adapters.playbook.roster import Roster
from rm.adapters.playbook.run import run_playbook
from rm.core.model.host import Host
from rm.errors import ConfigError, UsageError
from rm.playbook.inventory.hosts import to_hosts
from rm.playbook.inventory.inventory import parse
from rm.playbook.model.ssh_arguments import outside_program
from rm.playbook.model.steps import Batch, TaskResult, Way
from tests.unit.playbook_world import World

HEAD = "- hosts: all\n  gather_facts: false\n"


def ways(text: str, names: tuple[str, ...] = ("a",), **given: Any) -> dict[str, list[tuple[str, Way]]]:
    """How each command gets where: by host, its batches' targets and ways."""
    found: dict[str, list[tuple[str, Way]]] = {name: [] for name in names}

    class Watched(World):  # type: ignore[misc]
        def _carry_out(self, part: Any, name: str, batch: Batch) -> None:
            found[name].append((batch.target, batch.way))
            super()._carry_out(part, name, batch)

    Watched(text, names, **given).run()
    return found


def test_each_place_of_a_variable_leads_the_task_there() -> None:
    text = f"""{HEAD}  vars: {{ansible_user: ada}}
  remote_user: bob
  connection: local
  vars_files: [more.yml]
  tasks:
  - command: one
  - command: two
    vars: {{ansible_host: 10.0.0.9, ansible_port: 2222, ansible_connection: ssh}}
  - set_fact: {{ansible_ssh_user: eve}}
  - command: three
  - command: four
    delegate_to: b
"""
    found = ways(text, ("a",), files={"more.yml": "ansible_ssh_private_key_file: /k\n"})["a"]
    key = ("ansible_private_key_file", "/k")
    moved = (("ansible_host", "10.0.0.9"), ("ansible_port", "2222"))
    assert [way for _, way in found] == [
        Way("ada", "local", (key,)),
        Way("ada", "ssh", tuple(sorted((*moved, key)))),
        Way("eve", "local", (key,)),
        Way("ada", "local", (key,)),  # the fact is the other host's
    ]
    assert found[-1][0] == "b"


def test_a_loops_items_go_each_its_way() -> None:
    loop = "    loop: [x, x, y]\n    vars: {ansible_host: '{{ item }}'}\n"
    text = f"{HEAD}  tasks:\n  - command: go\n{loop}"
    (one, two) = ways(text)["a"]
    assert [dict(way.variables)["ansible_host"] for _, way in (one, two)] == ["x", "y"]


def test_a_password_for_sudo_is_looked_up_where_sudo_is_used() -> None:
    text = f"""{HEAD}  vars: {{ansible_become_password: "{{{{ nosuch }}}}"}}
  tasks:
  - command: one
  - command: two
    become: true
    remote_user: ada
"""
    world = World(text, ("a",)).run()
    assert [result.status for result in world.results["a"]] == ["changed", "failed"]
    assert "nosuch" in world.results["a"][1].message


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (
            "  vars: {ansible_connection: docker}\n  tasks: [ping: ]",
            "1: ansible_connection is 'docker'.",
        ),
        ("  tasks:\n  - ping:\n    vars: {ansible_become_method: su}", "4: ansible_become_method is 'su'"),
        ("  tasks:\n  - block: [ping: ]\n    vars: {ansible_become_exe: /bin/doas}", "ansible_become_exe is"),
        ("  vars_files: [more.yml]\n  tasks: [ping: ]", "ansible_ssh_pkcs11_provider is set"),
        ("  tasks:\n  - set_fact: {ansible_shell_type: fish}", "ansible_shell_type is 'fish'"),
        ("  tasks:\n  - add_host: {name: x, ansible_connection: winrm}", "ansible_connection is 'winrm'"),
    ],
)
def test_what_rm_does_not_follow_is_told_before_a_host_is_touched(
    tmp_path: Path, place: str, said: str
) -> None:
    (tmp_path / "more.yml").write_text("ansible_ssh_pkcs11_provider: /usr/lib/p11.so\n")
    (tmp_path / "site.yml").write_text(f"{HEAD}{place}\n")
    here = Host("here", "z", "here", variables=(("ansible_connection", "local"),))
    with pytest.raises(UsageError) as refused:
        run_playbook(tmp_path / "site.yml", [here], SshSettings(tmp_path / "none"))
    assert said in refused.value.what + " " + refused.value.hint


def test_a_template_that_gives_an_unknown_connection_fails_its_task() -> None:
    text = f"{HEAD}  tasks:\n  - ping:\n    vars: {{ansible_connection: \"{{{{ 'docker' }}}}\"}}\n"
    (result,) = World(text, ("a",)).run().results["a"]
    assert (result.status, result.message) == ("failed", "ansible_connection is 'docker'. Known: ssh, local.")


def test_options_of_ssh_are_taken_from_nobodys_output() -> None:
    text = f"{HEAD}  tasks:\n  - set_fact: {{ansible_ssh_common_args: -J gate}}\n  - ping:\n"
    world = World(text, ("a",)).run()
    assert "ansible_ssh_common_args comes from a task" in world.results["a"][-1].message
    value = "{{ '-o ProxyCommand=evil' }}"
    text = f'{HEAD}  vars: {{ansible_ssh_common_args: "{value}"}}\n  tasks:\n  - ping:\n'
    (result,) = World(text, ("a",)).run().results["a"]
    assert "a template that gives '-o ProxyCommand=evil'" in result.message
    roster = Roster([Host("one", "z", "10.0.0.1")], {}, {}, "")
    roster.adopt(TaskResult("one", "p", "t", "add_host", "changed", result={
        "add_host": {"host_name": "new", "host_vars": {
            "ansible_ssh_host": "10.0.0.7", "ansible_ssh_private_key_file": "/k"}}}))  # fmt: skip
    assert roster.connection_of("new") == {"ansible_host": "10.0.0.7", "ansible_private_key_file": "/k"}
    roster.states["new"].added["ansible_ssh_args"] = "-J gate"
    with pytest.raises(UsageError, match="ansible_ssh_args of host 'new' comes from a task"):
        roster.connection_of("new")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("-J gate -o StrictHostKeyChecking=no -C -o 'ServerAliveInterval 5' -p2222", ""),
        ("-o ProxyJump=ada@gate:22,second", ""),
        ("-o ProxyCommand='ssh -W %h:%p gate'", "-o ProxyCommand=ssh -W %h:%p gate"),
        ("-J -oProxyCommand=evil", "-J -oProxyCommand=evil"),
        ("-J [-oProxyCommand=evil]", "-J [-oProxyCommand=evil]"),
        ("-J []", "-J []"),
        ("-J ada@[fe80::1]:22", ""),
        ("-F /tmp/config", "-F"),
        ("-oLocalCommand=evil", "-oLocalCommand=evil"),
        ("evil", "evil"),
        ("'' -o ProxyCommand=evil", "''"),
        ('-C "" -oProxyCommand=evil', "''"),
        ("-J 'gate", "No closing quotation"),
    ],
)
def test_options_that_run_programs_here_are_known(text: str, found: str) -> None:
    assert outside_program(text) == found


def test_the_older_names_of_an_inventorys_variables_count() -> None:
    text = "gpu01 ansible_ssh_host=10.0.0.5 ansible_ssh_port=2222 ansible_ssh_user=ada ansible_user=bob\n"
    (host,) = to_hosts(parse(text, "hosts.ini"))
    assert (host.address, host.port, host.login) == ("10.0.0.5", 2222, "ada")
    assert "ansible_ssh_host" not in dict(host.variables)


def test_an_import_settles_how_hosts_are_reached_or_refuses(tmp_path: Path) -> None:
    def imported(variables: str) -> Host:
        (tmp_path / "hosts.ini").write_text(f"gpu01\n[all:vars]\ndomain=example.com\n{variables}\n")
        return hosts_for_daemon(str(tmp_path / "hosts.ini"))[0][0]

    assert imported("ansible_host={{ inventory_hostname }}.{{ domain }}").address == "gpu01.example.com"
    jump = "-J ops@gate -o ServerAliveInterval=5"
    assert dict(imported(f"ansible_ssh_common_args={jump}").variables)["ansible_ssh_common_args"] == jump
    for wrong, said in (
        ("ansible_host={{ nosuch }}", "ansible_host of host 'gpu01': '{{ nosuch }}': 'nosuch' is undefined"),
        ("ansible_ssh_extra_args=-o ProxyCommand=evil", "says '-o ProxyCommand=evil': the daemon does not"),
        ("ansible_connection=docker", "Host 'gpu01': ansible_connection is 'docker'"),
    ):
        with pytest.raises(ConfigError) as refused:
            imported(wrong)
        assert said in refused.value.what
