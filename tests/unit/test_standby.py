"""Whoever asks a daemon that waits for its turn learns who leads, and the client asks that one."""

from __future__ import annotations

import socket
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from rm.client.address import Address, parse
from rm.client.connection import Connection
from rm.client.unix_door import Door, UnixDoor
from rm.client.ways import doors
from rm.config import Config, DaemonConfig
from rm.core.store import Doors, Lease
from rm.errors import Standby, Unreachable
from tests.command_line import caller
from tests.fake_service import serving
from tests.standing_by import standing_by


def at_socket(path: Path, holder: list[str], machine: str = "") -> AbstractContextManager[None]:
    """A standby at `path`, which says that `holder[0]` leads, whose rm.toml advertises `machine`."""
    config = Config(daemon=DaemonConfig(socket=str(path)))
    return standing_by(config, lambda: Lease(holder[0], doors=Doors(machine=machine)))


def here(path: Path) -> str:
    return f"{socket.gethostname()}:{path}:a1b2"


def test_the_client_follows_to_the_daemon_that_leads_and_back(tmp_path: Path) -> None:
    one, two = tmp_path / "one.sock", tmp_path / "two.sock"
    with at_socket(one, [here(two)]):
        client = Connection(str(one))
        with serving(two):
            assert client.get("status")["daemon"]["epoch"] == 3
            assert client.get("status")["daemon"]["epoch"] == 3  # there it stays
        with pytest.raises(Unreachable, match=str(two)):
            client.get("status")  # the leader is gone
        with serving(two):
            assert client.get("status")["daemon"]["epoch"] == 3
        client.close()
    assert not one.exists()


def test_two_that_name_each_other_are_not_followed_for_ever(tmp_path: Path) -> None:
    one, two = tmp_path / "one.sock", tmp_path / "two.sock"
    with at_socket(one, [here(two)]), at_socket(two, [here(two)]):
        client = Connection(str(one), patience_s=0)
        with pytest.raises(Standby, match=f"another leads the cluster, on {socket.gethostname()} at {two}"):
            client.get("status")
        client.close()


def test_who_asks_while_nobody_leads_waits_for_the_next_leader(tmp_path: Path) -> None:
    one, two = tmp_path / "one.sock", tmp_path / "two.sock"
    holder = [""]
    with serving(two), at_socket(one, holder):
        waits: list[str] = []

        def elected(why: str) -> None:
            waits.append(why)
            holder[0] = here(two)

        client = Connection(str(one), on_wait=elected)
        assert client.get("status")["daemon"]["epoch"] == 3
        assert len(waits) == 1
        assert "waits for its turn" in waits[0]
        client.close()


def test_what_is_streamed_waits_for_the_next_leader_as_well(tmp_path: Path) -> None:
    one, two = tmp_path / "one.sock", tmp_path / "two.sock"
    holder = [here(tmp_path / "dead.sock")]
    with serving(two), at_socket(one, holder):
        waits: list[str] = []

        def elected(why: str) -> None:
            waits.append(why)
            holder[0] = here(two)

        client = Connection(str(one), on_wait=elected)
        assert b'"epoch":3' in b"".join(client.stream("status")).replace(b" ", b"")
        (why,) = waits
        assert "The next leader is waited for. Trying again" in why
        client.close()


def test_status_names_the_socket_of_the_daemon_that_answers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one, two = tmp_path / "one.sock", tmp_path / "two.sock"
    with serving(two), at_socket(one, [here(two)]):
        assert f"socket    {two}\n" in caller(capfd)("--socket", str(one), "status").out


def test_a_leader_that_has_just_ended_is_no_address(tmp_path: Path) -> None:
    path = tmp_path / "one.sock"
    with at_socket(path, [""]):
        client = Connection(str(path), patience_s=0)
        with pytest.raises(Standby, match="waits"):
            client.get("status")
        client.close()


@pytest.mark.parametrize(
    ("asked", "name", "machine", "followed"),
    [
        ("ssh://ann@control1:2222", "control2", "", "ssh://ann@control2:2222"),
        ("ssh://ann@control1", "control2", "", "ssh://ann@control2"),
        ("ssh://control1", "control2", "", "ssh://control2"),
        ("ssh://ann@control1:2222", "debian", "10.0.0.2", "ssh://ann@10.0.0.2:2222"),
        ("ssh://control1", "debian", "[fd00::2]", "ssh://[fd00::2]"),
    ],
)
def test_who_asks_by_ssh_stays_the_same_account_at_the_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, name: str, machine: str, followed: str
) -> None:
    one, two = tmp_path / "one.sock", tmp_path / "two.sock"
    opened: list[str] = []

    def forwarded(address: Address) -> Door:
        """As ssh leads to the sockets of both machines."""
        opened.append(str(address))
        return UnixDoor(address.path)

    monkeypatch.setattr(doors, "door_to", forwarded)
    with serving(two), at_socket(one, [f"{name}:{two}:a1b2"], machine):
        client = Connection(parse(f"{asked}{one}", "the test"))
        assert client.get("status")["daemon"]["epoch"] == 3
        client.close()
    assert opened == [f"{asked}{one}", f"{followed}{two}"]


def test_an_advertised_leader_on_the_same_machine_is_asked_at_its_socket(tmp_path: Path) -> None:
    one, two = tmp_path / "one.sock", tmp_path / "two.sock"
    with serving(two), at_socket(one, [here(two)], "10.0.0.2"):
        client = Connection(str(one))
        assert client.get("status")["daemon"]["epoch"] == 3
        client.close()
