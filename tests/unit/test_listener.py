"""The lock beside the daemon's socket, and the name in it that goes into the lease."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm.errors import Conflict
from rm.web.listener import claimed


def test_two_machines_with_one_host_name_and_one_path_have_leases_of_different_names(tmp_path: Path) -> None:
    """The lease names host, socket and this name: a daemon takes over at once only from its former self."""
    names = []
    for machine in ("one", "two", "one"):
        with claimed(f"{tmp_path / machine}/rm.sock") as name:
            names.append(name)
    assert names[0] == names[2] != names[1]
    assert all(names)


def test_a_second_daemon_for_a_socket_is_refused_before_it_touches_anything(tmp_path: Path) -> None:
    with claimed(f"{tmp_path}/rm.sock"), pytest.raises(Conflict, match="already listens"):
        claimed(f"{tmp_path}/rm.sock").__enter__()
