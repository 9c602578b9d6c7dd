"""The hosts of a playbook that root runs, where the daemon belongs to another account."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rm.cli.main import rmx
from rm.cli.playbook import inventory
from rm.errors import UsageError
from tests import builders

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="of root")
ACCOUNT = 4321


def listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, owner: int, address: str = "h1", **variables: Any
) -> str:
    """What `rmx playbook run --list-hosts` says, of a daemon whose state directory is the owner's."""
    state = folder / "state"
    state.mkdir()
    os.chown(state, owner, owner)
    given = tuple((name, json.dumps(value)) for name, value in variables.items())
    host = builders.host("h1", address=address, variables=given)
    monkeypatch.setattr(inventory, "daemon_hosts", lambda session: [host])
    (folder / "rm.toml").write_text(f'[daemon]\nsocket = "{folder}/rm.sock"\nstate_dir = "{state}"\n')
    (folder / "site.yml").write_text("- hosts: all\n  tasks:\n    - debug: {msg: x}\n")
    words = ["--config", f"{folder}/rm.toml", "playbook", "run", f"{folder}/site.yml", "--list-hosts"]
    done = CliRunner().invoke(rmx, words)
    if isinstance(done.exception, UsageError):
        return f"{done.exception.what} {done.exception.hint}"
    return done.output


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
