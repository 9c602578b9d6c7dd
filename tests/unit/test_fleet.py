"""The fleet beside a thread that closes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm.adapters.hosts.fleet import Fleet
from rm.adapters.hosts.settings import SshSettings
from rm.core.model.host import Host
from rm.protocol.codes import NotConnected
from rm.protocol.hosts import Ping


def test_a_closed_fleet_takes_no_more_hosts(tmp_path: Path) -> None:
    fleet = Fleet(SshSettings(tmp_path / "known_hosts"))
    fleet.start(on_event=lambda *_: None, on_state=lambda *_: None)
    fleet.close()
    fleet.add(Host("late", "z", "127.0.0.1", 1))
    with pytest.raises(NotConnected, match="is not known to the daemon"):
        fleet.call("late", Ping()).result(0)
    fleet.close()  # again: nothing is left to be closed
