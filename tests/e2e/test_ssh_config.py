"""~/.ssh/config, hosts to jump by, and the inventory's options of ssh: followed, or refused by name."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rm.adapters.hosts import ssh
from rm.adapters.hosts.route import login_of, route_to
from rm.adapters.hosts.settings import SshSettings
from rm.core.model.host import Host
from rm.errors import ConfigError, HostKeyError, Unreachable
from tests.ssh_server import SSHD, SshServer, ssh_server

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not os.path.exists(SSHD) or os.getuid() != 0, reason="sshd is started as root"),
]
ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("config") / "sshd") as found:
        yield found


def settings_of(server: SshServer, tmp_path: Path, more: str = "") -> SshSettings:
    """`control` of the server's own configuration is the server; `gpu01` is behind it."""
    config = tmp_path / "config"
    own = (server.directory / "ssh_config").read_text().replace("  LocalForward 1 127.0.0.1:1\n", "")
    config.write_text(f"{more}\n{own}")
    return SshSettings(server.directory / "known_hosts", config=str(config))


def jumped(server: SshServer, way: str) -> str:
    return f"Host gpu01\n  HostName 127.0.0.1\n  Port {server.port}\n  {way}\n"


@pytest.mark.parametrize("way", ["ProxyJump control", "ProxyJump control,control", "ProxyCommand COMMAND"])
def test_a_host_is_reached_as_the_configuration_says(server: SshServer, tmp_path: Path, way: str) -> None:
    command = f"ssh -F {server.directory}/ssh_config -o ClearAllForwardings=yes -W %h:%p control"
    settings = settings_of(server, tmp_path, jumped(server, way.replace("COMMAND", command)))
    before = server.logins()
    host = Host("gpu01", "z", "gpu01", login=ME)
    connection = ssh.connect(host, settings)
    try:
        assert ssh.run(connection, "echo $SSH_CONNECTION", 10).out.split()[3] == str(server.port)
        ssh.put(connection, b"x" * 300_000, f"{tmp_path}/file", 0o600)
    finally:
        connection.close()
    assert (tmp_path / "file").stat().st_size == 300_000
    assert server.logins() - before == 2 + way.count(",")
    kind, fingerprint, _ = ssh.present_key(host, settings)
    assert ssh.pinned_key(host, settings) == (kind, fingerprint)


def test_the_inventorys_options_of_ssh_lead_there(server: SshServer, tmp_path: Path) -> None:
    settings = settings_of(server, tmp_path)
    host = Host(
        "a", "z", "127.0.0.1", server.port, ME, variables=(("ansible_ssh_common_args", "-J control"),)
    )
    before = server.logins()
    ssh.connect(host, settings).close()
    assert server.logins() - before == 2
    assert route_to(replace(host, variables=()), replace(settings, arguments=host.variables)).program
    evil = replace(host, variables=(("ansible_ssh_extra_args", f"-o ProxyCommand='touch {tmp_path}/evil'"),))
    with pytest.raises(ConfigError, match=r"ansible_ssh_extra_args of host a says '-o ProxyCommand=touch"):
        ssh.connect(evil, settings)
    with pytest.raises(Unreachable, match="touch"):
        ssh.connect(evil, replace(settings, trusts_inventory=True))
    assert (tmp_path / "evil").exists()


def test_what_rm_does_not_follow_is_refused_by_name(server: SshServer, tmp_path: Path) -> None:
    settings = settings_of(server, tmp_path, "Host gpu*\n  BindAddress 10.9.9.9\n  ServerAliveInterval 5\n")
    with pytest.raises(ConfigError, match=r"For host gpu01 the .* of ssh says bindaddress 10\.9\.9\.9"):
        ssh.connect(Host("gpu01", "z", "gpu01"), settings)
    assert route_to(Host("other", "z", "other"), settings).address == "other"
    broken = replace(settings, arguments=(("ansible_ssh_args", "-o Nonsense=yes"),), trusts_inventory=True)
    with pytest.raises(ConfigError, match=r"ssh refuses .* nonsense"):
        ssh.connect(Host("other", "z", "other"), broken)


def test_a_way_that_does_not_lead_there_says_why(server: SshServer, tmp_path: Path) -> None:
    way = jumped(server, "ProxyJump nobody@control").replace("ProxyJump", "IdentitiesOnly yes\n  ProxyJump")
    settings = settings_of(server, tmp_path, way + f"Host control\n  UserKnownHostsFile {tmp_path}/none\n")
    with pytest.raises(Unreachable, match=r"by way of `ssh .*-W .* Host key verification failed"):
        ssh.connect(Host("gpu01", "z", "gpu01", login=ME), settings)


def test_the_users_known_hosts_count_for_playbooks_alone(server: SshServer, tmp_path: Path) -> None:
    settings = settings_of(server, tmp_path, f"Host gpu01\n  HostName 127.0.0.1\n  Port {server.port}\n")
    settings = replace(settings, known_hosts=tmp_path / "none", key_options=" --inventory hosts.yml")
    host = Host("gpu01", "z", "gpu01", login=ME)
    with pytest.raises(HostKeyError, match=r"rmx host accept-key gpu01 --inventory hosts\.yml"):
        ssh.connect(host, settings)
    ssh.connect(host, replace(settings, users_known_hosts=True)).close()
    careless = settings_of(server, tmp_path, f"StrictHostKeyChecking no\nHost gpu01\n  HostName 127.0.0.1\n"
                           f"  Port {server.port}\n")  # fmt: skip
    with pytest.raises(HostKeyError, match="would accept it unseen; rm does not"):
        ssh.connect(host, replace(careless, known_hosts=tmp_path / "none"))


def test_the_configurations_user_is_for_hosts_that_name_none(server: SshServer, tmp_path: Path) -> None:
    settings = settings_of(server, tmp_path, "Host gpu*\n  User ada\n")
    assert login_of(Host("gpu01", "z", "gpu01"), settings) == "ada"
    assert login_of(Host("other", "z", "other"), settings) == ""
    assert route_to(Host("gpu01", "z", "gpu01", login="bob"), settings).login == "bob"
