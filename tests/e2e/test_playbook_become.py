"""Logins that become root with a password: sudo gets it over its standard input, and says no at once."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.playbook.run import Passwords, Report, run_playbook
from rm.adapters.playbook.vault import seal
from rm.lab import Lab
from rm.playbook.inventory.hosts import to_hosts
from rm.playbook.inventory.inventory import parse
from tests.cluster import ssh_settings, until
from tests.stand_in_sudo import SUDO

pytestmark = pytest.mark.lab
PASSWORD = "pa ss'w0rd$HOME"


@pytest.fixture(scope="module")
def lab(make_module_lab: Any) -> Lab:
    """Two hosts with the login `op`: on the second its sudo asks nothing."""
    lab: Lab = make_module_lab(zones=1, hosts=2)
    public = subprocess.run(["ssh-keygen", "-y", "-f", str(lab.key)], check=True, capture_output=True).stdout
    for number, host in enumerate(lab.hosts):
        lab.exec(host.name, ["useradd", "-m", "-s", "/bin/sh", "op"])
        lab.exec(host.name, ["sh", "-c", "usermod -p '*' op; install -d -o op -m 700 /home/op/.ssh"])
        key = "cat > /home/op/.ssh/authorized_keys; chown op /home/op/.ssh/authorized_keys"
        lab.exec(host.name, ["sh", "-c", key], input=public)
        lab.exec(host.name, ["sh", "-c", SUDO], input=(b"" if number else PASSWORD.encode()))
    return lab


def run(lab: Lab, path: Path, inventory: Mapping[str, Any] | None = None, **options: Any) -> Report:
    text = lab.inventory.read_text()
    hosts = to_hosts(parse(text, "hosts.yml"))
    variables = {"ansible_user": "op", **options.pop("variables", {})}
    given = {host.name: dict(inventory or {}) for host in hosts}
    return run_playbook(path, hosts, ssh_settings(lab), variables=variables, inventory=given, **options)


PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - command: id -un
      register: plain
      become: false
    - command: id -un
      register: root
    - copy: {content: "{{ plain.stdout }} {{ root.stdout }}", dest: /srv/who, owner: root}
    - command: cat
      args: {stdin: hello}
      become_user: op
      register: back
    - debug: {var: back.stdout}
"""


def test_the_password_goes_to_sudo_where_it_asks(lab: Lab, tmp_path: Path) -> None:
    one, two = (host.name for host in lab.hosts)
    play = tmp_path / "play.yml"
    play.write_text(PLAY)
    none = run(lab, play, become=True)
    (said,) = none.failures()
    assert said.startswith(f"{one}: command: ")
    assert "wants a password" in said
    assert (none.recap()[one].failed, none.recap()[one].unreachable, none.recap()[two].failed) == (1, 0, 0)

    report = run(lab, play, become=True, passwords=Passwords(PASSWORD))
    assert report.ok, report.failures()
    for name in (one, two):
        assert lab.exec(name, ["cat", "/srv/who"]).stdout == b"op root"
        assert [r.message for r in report.results[name]][-1] == "back.stdout: hello"
        assert lab.exec(name, ["rm", "/srv/who"]).returncode == 0


def test_facts_of_all_hosts_are_gathered_by_one_with_each_ones_password(lab: Lab, tmp_path: Path) -> None:
    """As large playbooks begin: `setup` delegated to every host, under sudo."""
    play = tmp_path / "play.yml"
    play.write_text("""
- hosts: all
  gather_facts: false
  become: true
  tasks:
    - setup: {filter: [ansible_user_id]}
      delegate_to: "{{ item }}"
      delegate_facts: true
      run_once: true
      loop: "{{ groups.all }}"
    - debug: {msg: "{{ groups.all | map('extract', hostvars, ['ansible_facts', 'user_id']) | join(' ') }}"}
""")
    for inventory in (
        {"ansible_become_password": "{{ sealed }}", "sealed": PASSWORD},
        {"ansible_sudo_pass": PASSWORD},
    ):
        report = run(lab, play, inventory=inventory)
        assert report.ok, report.failures()
        assert {results[-1].message for results in report.results.values()} == {"root root"}
    report = run(lab, play)
    assert [one.status for one in report.results[lab.hosts[0].name]] == ["failed"]
    assert "wants a password" in report.failures()[0]


def test_a_wrong_password_fails_the_task_and_can_be_rescued(lab: Lab, tmp_path: Path) -> None:
    play = tmp_path / "play.yml"
    play.write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        "  - block:\n    - command: id\n      become: true\n"
        "    rescue:\n    - debug: {msg: '{{ ansible_failed_result.msg }}'}\n"
    )
    name = lab.hosts[0].name
    report = run(lab, play, limit=name, passwords=Passwords("wrong-one"))
    assert report.ok, report.failures()
    assert report.results[name][-1].message.startswith(f"sudo on host {name} refuses the password.")
    assert "wrong-one" not in repr(report.results)


def test_passwords_come_from_variables_and_are_never_shown(lab: Lab, tmp_path: Path) -> None:
    from rm.adapters.playbook.files import LocalFiles
    from rm.adapters.playbook.vault import Vault

    play = tmp_path / "play.yml"
    play.write_text(
        "- hosts: all\n  gather_facts: false\n  become: true\n  vars_files: [secret.yml]\n  tasks:\n"
        "  - command: id -un\n  - debug: {var: ansible_become_pass}\n"
    )
    (tmp_path / "secret.yml").write_text(seal(f"sudo_word: {PASSWORD!r}\n".encode(), b"v"))
    files = LocalFiles(Vault([b"v"]))
    templated = {"ansible_become_pass": "{{ sudo_word }}"}
    by_vault = run(lab, play, variables=templated, files=files)
    assert by_vault.ok, by_vault.failures()
    (tmp_path / "secret.yml").write_text("{}\n")
    by_inventory = run(lab, play, inventory={"ansible_become_pass": PASSWORD})
    assert by_inventory.ok, by_inventory.failures()
    for report in (by_vault, by_inventory):
        told = [results[-1].message for results in report.results.values()]
        assert told == ["ansible_become_pass: ********"] * 2
        assert PASSWORD not in repr(report.results)
    refused = run(lab, play, variables={"ansible_become_method": "su"}, limit=lab.hosts[0].name)
    assert "only sudo is known" in refused.failures()[0]


def test_a_host_that_takes_no_key_takes_the_password(lab: Lab, tmp_path: Path) -> None:
    name = lab.hosts[1].name
    script = (
        "sed -i 's/^PasswordAuthentication no/PasswordAuthentication yes/' /etc/ssh/sshd_config;"
        "useradd -m -s /bin/sh guest; chpasswd; kill -HUP $(pgrep -o -x sshd)"
    )
    assert lab.exec(name, ["sh", "-c", script], input=b"guest:open sesame\n").returncode == 0
    play = tmp_path / "play.yml"
    play.write_text("- hosts: all\n  gather_facts: false\n  tasks:\n  - command: id -un\n    register: who\n")
    asguest: dict[str, Any] = {"limit": name, "variables": {"ansible_user": "guest"}}

    def refused() -> bool:
        (said,) = run(lab, play, **asguest, passwords=Passwords(login="wrong")).failures()
        return f"Host {name} refuses the login of guest" in said

    until(refused, "sshd is back, and knows a wrong password")
    for given in (
        {"passwords": Passwords(login="open sesame")},
        {"inventory": {"ansible_password": "open sesame"}},
    ):
        report = run(lab, play, **asguest, **given)
        assert report.ok, report.failures()
        assert report.results[name][-1].result["stdout"] == "guest"
