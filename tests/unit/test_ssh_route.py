"""What the program ssh says of its configuration, and what it does not say in time."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import fabric
import paramiko
import pytest

from rm.adapters.hosts import route as ssh_route
from rm.adapters.hosts import ssh
from rm.adapters.hosts.commands import agent_command, attend_command
from rm.adapters.hosts.identity import identities
from rm.adapters.hosts.settings import SshSettings
from rm.errors import ConfigError, Unreachable
from tests import builders


def test_an_ssh_that_does_not_answer_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(ssh_route, "ASK_S", 0.1)
    settings = SshSettings(known_hosts=tmp_path / "known", config=str(tmp_path / "config"))
    with pytest.raises(ConfigError, match=r"ssh did not evaluate .* host h1"):
        ssh_route.login_of(builders.host("h1"), settings)


@pytest.mark.parametrize("address", ["a..b", "x" * 64 + ".example", "h\0"])
def test_a_name_that_no_machine_can_have_is_a_host_that_does_not_answer(tmp_path: Path, address: str) -> None:
    host = builders.host("h1", address=address)
    with pytest.raises(Unreachable, match=r"Host h1 .* does not answer over SSH"):
        ssh.connect(host, SshSettings(known_hosts=tmp_path / "known"))


def test_a_server_that_does_not_greet_is_said_to_be_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = replace(builders.host("h1"), address="127.0.0.1", port=silent.getsockname()[1])
        settings = SshSettings(known_hosts=tmp_path / "known_hosts", connect_timeout_s=0.2)
        with pytest.raises(
            Unreachable, match="takes connections, but does not greet as an SSH server\\. See"
        ):
            ssh.connect(host, settings)


@pytest.mark.parametrize("theirs", ["Authentication failed.", "No authentication methods available"])
def test_a_refused_login_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str
) -> None:
    def refuse(connection: fabric.Connection) -> None:
        raise paramiko.AuthenticationException(theirs)

    monkeypatch.setattr(fabric.Connection, "open", refuse)
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = replace(builders.host("h1"), address="127.0.0.1", port=server.getsockname()[1])
        with pytest.raises(Unreachable) as refused:
            ssh.connect(host, SshSettings(known_hosts=tmp_path / "known_hosts"))
    assert refused.value.what == f"Host h1 refuses the login of root: {theirs.rstrip('.')}."


def test_keys_that_this_user_may_not_read_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ssh takes them: whoever runs as another user with the first one's HOME has none of its keys."""

    def refuse(file: Path, **_: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(file))

    host = builders.host("h1", address="127.0.0.1")
    straight = ssh_route.Route(host.address, 22, "root", "127.0.0.1")
    monkeypatch.setattr(Path, "stat", refuse)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert identities(host, SshSettings(known_hosts=Path("known")), straight).files == ()


@pytest.mark.parametrize(
    ("said", "runs"),
    [
        ({}, "python3 -S -E /opt/rm/agents/rm_agent.py --serve"),
        ({"ansible_python_interpreter": "auto_silent"}, "python3 -S -E /opt/rm/agents/rm_agent.py --serve"),
        (
            {"ansible_python_interpreter": "'/opt/py 3.9/bin/python3'", "ansible_become": "true"},
            "sudo -n '/opt/py 3.9/bin/python3' -S -E /opt/rm/agents/rm_agent.py --serve",
        ),
        (
            {"ansible_python_interpreter": "/usr/bin/env python3"},
            "/usr/bin/env python3 -S -E /opt/rm/agents/rm_agent.py --serve",
        ),
    ],
)
def test_an_agent_runs_by_the_python_that_the_inventory_names(said: dict[str, str], runs: str) -> None:
    host = replace(builders.host("h1"), variables=tuple(said.items()))
    settings = SshSettings(known_hosts=Path("known"))
    assert agent_command(host, settings) == runs
    assert attend_command(host, settings) == runs.replace("--serve", "--attend")


def test_a_server_with_as_many_channels_as_it_allows_is_said_to_be_one() -> None:
    """Ten sessions of one user, with the agent's channel, are what an sshd allows for a connection."""

    class Full:
        def open_session(self, window_size: int) -> None:
            raise paramiko.ChannelException(2, "Connect failed")

    connection = SimpleNamespace(host="h1", client=SimpleNamespace(get_transport=Full))
    with pytest.raises(ssh.NoRoom, match="cannot be started") as error:
        ssh.open_channel(cast(fabric.Connection, connection), "true")
    assert "MaxSessions" in error.value.hint
