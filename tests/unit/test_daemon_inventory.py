"""The hosts of a playbook that root runs, where the daemon belongs to another account."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rm.cli.main import rmx
from rm.cli.playbook import inventory
from rm.cli.session import Session
from rm.core.model.host import Host
from rm.errors import UsageError
from tests import builders

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="of root")
ACCOUNT = 4321


def ran(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    tasks: str = "    - debug: {msg: x}\n",
    words: tuple[str, ...] = (),
    address: str = "h1",
    listener: int | None = None,
    **variables: Any,
) -> str:
    """What `rmx playbook run` says, of a daemon whose state directory is `state`, and which the user id
    `listener` listens for."""
    given = tuple((name, json.dumps(value)) for name, value in variables.items())
    host = builders.host("h1", address=address, variables=given)

    def hosts(session: Session) -> list[Host]:
        if listener is not None:
            session.connection.open()
        return [host]

    monkeypatch.setattr(inventory, "daemon_hosts", hosts)
    (folder / "rm.toml").write_text(f'[daemon]\nsocket = "{folder}/rm.sock"\nstate_dir = "{folder}/state"\n')
    (folder / "site.yml").write_text(
        f"- hosts: all\n  connection: local\n  gather_facts: false\n  tasks:\n{tasks}"
    )
    with socket.socket(socket.AF_UNIX) as door:
        if listener is not None:
            door.bind(f"{folder}/rm.sock")
            os.seteuid(listener)
            try:
                door.listen()
            finally:
                os.seteuid(0)
        line = ["--config", f"{folder}/rm.toml", "playbook", "run", f"{folder}/site.yml", *words]
        done = CliRunner().invoke(rmx, line)
    if isinstance(done.exception, UsageError):
        return f"{done.exception.what} {done.exception.hint}"
    return done.output


def listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, owner: int, address: str = "h1", **variables: Any
) -> str:
    """What it lists, where the state directory is the owner's."""
    owned(folder, owner)
    return ran(folder, monkeypatch, words=("--list-hosts",), address=address, **variables)


def owned(folder: Path, owner: int) -> None:
    (folder / "state").mkdir()
    os.chown(folder / "state", owner, owner)


HERE = [
    {"motd": "{{ lookup('pipe', 'id') }}"},
    {"deep": [{"words": "{% if 1 %}x{% endif %}"}]},
    {"ansible_connection": "local"},
    {"ansible_ssh_common_args": "-o ProxyCommand=/home/rmd/run"},
]


@pytest.mark.parametrize("variables", HERE)
def test_root_runs_nothing_that_the_daemons_account_wrote_into_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: Any
) -> None:
    told = listed(tmp_path, monkeypatch, ACCOUNT, **variables)
    (name,) = variables
    assert f"The variable {name} of host h1 could run programs here as root" in told
    assert "--inventory FILE" in told


@pytest.mark.parametrize("owner", [0, ACCOUNT])
def test_other_variables_are_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int) -> None:
    words = {} if owner else HERE[0]
    told = listed(tmp_path, monkeypatch, owner, site="x", ansible_ssh_common_args="-J jump", **words)
    assert "host: h1" in told


def test_nor_into_the_address_of_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = listed(tmp_path, monkeypatch, ACCOUNT, address="{{ lookup('pipe', 'id') }}")
    assert "The variable ansible_host of host h1 could run programs here as root" in told


@pytest.mark.parametrize("listener", [None, 0, ACCOUNT])
def test_a_daemon_is_roots_by_who_listens_where_its_directory_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listener: int | None
) -> None:
    told = ran(tmp_path, monkeypatch, words=("--list-hosts",), listener=listener, **HERE[0])
    assert ("host: h1" in told) is (listener == 0)
    assert ("could run programs here as root" in told) is (listener != 0)


def test_a_daemon_of_another_account_is_known_whoever_the_directory_belongs_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned(tmp_path, 0)
    told = ran(tmp_path, monkeypatch, words=("--list-hosts",), listener=ACCOUNT, **HERE[0])
    assert f"the daemon, which belongs to the user id {ACCOUNT}." in told


def test_no_link_of_another_account_makes_a_daemon_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").symlink_to("/etc")
    os.lchown(tmp_path / "state", ACCOUNT, ACCOUNT)
    told = ran(tmp_path, monkeypatch, words=("--list-hosts",), **HERE[0])
    assert "The variable motd of host h1 could run programs here as root" in told


@pytest.mark.parametrize("url", ["ssh://control", "https://localhost:1"])
def test_a_daemon_of_another_machine_is_another_accounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    owned(tmp_path, 0)
    monkeypatch.setenv("RM_DAEMON", url)
    monkeypatch.setenv("RM_TOKEN", "a-token")
    told = ran(tmp_path, monkeypatch, words=("--list-hosts",), **HERE[0])
    assert "The variable motd of host h1 could run programs here as root" in told


@pytest.mark.parametrize("owner", [0, ACCOUNT])
def test_root_evaluates_no_condition_of_another_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int
) -> None:
    owned(tmp_path, owner)
    checks = [f"lookup('pipe', 'touch {tmp_path}/touched') == ''"]
    told = ran(tmp_path, monkeypatch, '    - assert: {that: "{{ checks }}"}\n', checks=checks)
    assert (tmp_path / "touched").exists() is (owner == 0), told
    assert ("a text that must not be evaluated" in told) is (owner != 0)


@pytest.mark.parametrize("owner", [0, ACCOUNT])
@pytest.mark.parametrize("tasks", ["    - ping:\n", "    - import_role: {name: one}\n"])
def test_root_starts_no_interpreter_of_another_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, tasks: str
) -> None:
    owned(tmp_path, owner)
    (tmp_path / "python").write_text(f"#!/bin/sh\ntouch {tmp_path}/touched\n")
    (tmp_path / "python").chmod(0o755)
    for part, text in (("defaults", "ansible_python_interpreter: python3\n"), ("tasks", "- ping:\n")):
        (tmp_path / "roles/one" / part).mkdir(parents=True)
        (tmp_path / "roles/one" / part / "main.yml").write_text(text)
    python = f"{tmp_path}/python"
    told = ran(tmp_path, monkeypatch, tasks, ansible_python_interpreter=python)
    assert (tmp_path / "touched").exists() is (owner == 0), told
    assert ("names a program of this machine" in told) is (owner != 0)


def test_other_variables_of_another_account_are_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned(tmp_path, ACCOUNT)
    tasks = (
        f"    - copy: {{content: '{{{{ site }}}} {{{{ deep.ports | sum }}}} {{{{ rm_zone }}}}', "
        f"dest: {tmp_path}/out}}\n      when: site == 'x' and 'all' not in group_names and wanted\n"
    )
    told = ran(tmp_path, monkeypatch, tasks, site="x", deep={"ports": [1, 2]}, wanted=True)
    assert (tmp_path / "out").exists(), told
    assert (tmp_path / "out").read_text().startswith("x 3 ")
