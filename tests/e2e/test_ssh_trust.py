"""Which sshd rm speaks to, and with which key of its own: against a real sshd of this machine."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rm.adapters.hosts import ssh
from rm.adapters.hosts.settings import SshSettings
from rm.core.model.host import Host
from rm.errors import ConfigError, HostKeyError, Unreachable
from tests.ssh_server import SSHD, SshServer, ssh_server

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not os.path.exists(SSHD) or os.getuid() != 0, reason="sshd is started as root"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("trust") / "sshd") as found:
        yield found


def host_of(server: SshServer) -> Host:
    return Host("gpu01", "z", "127.0.0.1", server.port, pwd.getpwuid(os.getuid()).pw_name)


def settings_of(server: SshServer, known_hosts: Path, more: str = "") -> SshSettings:
    known_hosts.write_text((server.directory / "known_hosts").read_text() + more)
    return SshSettings(known_hosts, (server.directory / "id",))


def key_of(server: SshServer) -> str:
    return " ".join((server.directory / "host.pub").read_text().split()[:2])


def test_a_revoked_key_is_refused_though_it_is_accepted(server: SshServer, tmp_path: Path) -> None:
    host, file = host_of(server), tmp_path / "known_hosts"
    ssh.connect(host, settings_of(server, file)).close()
    for names in ("*", f"[127.0.0.1]:{server.port}", "127.0.0.1"):
        settings = settings_of(server, file, f"@revoked {names} {key_of(server)}\n")
        before = file.read_text()
        with pytest.raises(HostKeyError, match="is revoked"):
            ssh.connect(host, settings)
        fingerprint = ssh.present_key(host, settings)[1]
        with pytest.raises(HostKeyError, match="nothing was accepted"):
            ssh.accept_key(host, fingerprint, settings)
        assert ssh.pinned_key(host, settings) is None
        assert file.read_text() == before
    ssh.connect(host, settings_of(server, file, f"@revoked 10.0.0.9 {key_of(server)}\n")).close()


def test_an_authority_stands_for_no_key_and_is_named(server: SshServer, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"@cert-authority * {key_of(server)}\n")
    with pytest.raises(HostKeyError, match=r"Line 1 of .*@cert-authority.*rm does not check certificates"):
        ssh.connect(host_of(server), SshSettings(file, (server.directory / "id",)))


def test_looking_at_a_pinned_key_changes_no_file(server: SshServer, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    settings = settings_of(server, file, "a line that is not a key\n")
    before = file.stat()
    assert ssh.pinned_key(host_of(server), settings) is not None
    assert ssh.pinned_key(host_of(server), replace(settings, known_hosts=tmp_path / "none")) is None
    after = file.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["known_hosts"]


@pytest.mark.parametrize("weak", ["Ciphers aes128-cbc", "Ciphers 3des-cbc", "MACs hmac-sha1,hmac-md5"])
def test_weak_algorithms_are_for_those_who_ask_for_them(tmp_path: Path, weak: str) -> None:
    with ssh_server(tmp_path / "sshd", weak) as server:
        settings = settings_of(server, tmp_path / "known_hosts")
        with pytest.raises(Unreachable, match="offers only weak algorithms") as refused:
            ssh.connect(host_of(server), settings)
        assert "ssh.weak_algorithms" in refused.value.hint
        ssh.connect(host_of(server), replace(settings, weak_algorithms=True)).close()


def test_no_setting_is_named_that_would_not_help(tmp_path: Path) -> None:
    """Paramiko has no key exchange by SHA-1."""
    with ssh_server(tmp_path / "sshd", "KexAlgorithms diffie-hellman-group14-sha1") as server:
        settings = replace(settings_of(server, tmp_path / "known_hosts"), weak_algorithms=True)
        with pytest.raises(Unreachable, match="offers only weak algorithms") as refused:
            ssh.connect(host_of(server), settings)
        assert refused.value.hint == "Let its sshd offer others."


def test_a_private_key_that_others_can_read_is_not_used(server: SshServer, tmp_path: Path) -> None:
    settings = settings_of(server, tmp_path / "known_hosts")
    open_to_all = tmp_path / "id"
    open_to_all.write_bytes((server.directory / "id").read_bytes())
    open_to_all.chmod(0o644)
    with pytest.raises(ConfigError, match="is open to other users") as refused:
        ssh.connect(host_of(server), replace(settings, identity_files=(open_to_all,)))
    assert "chmod 600" in refused.value.hint


def test_only_good_keys_of_the_users_own_are_offered(
    server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(settings_of(server, tmp_path / "known_hosts"), identity_files=())
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir()
    own = tmp_path / ".ssh" / "id_ed25519"
    own.write_bytes((server.directory / "id").read_bytes())
    own.chmod(0o644)
    with pytest.raises(Unreachable):
        ssh.connect(host_of(server), settings)
    own.chmod(0o600)
    ssh.connect(host_of(server), settings).close()
