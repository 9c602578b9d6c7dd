"""What the program ssh says of its configuration, and what it does not say in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm.adapters.hosts import route as ssh_route
from rm.adapters.hosts import ssh
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
