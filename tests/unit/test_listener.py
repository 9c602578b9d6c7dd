"""The daemon's socket, the lock beside it, and the name in that which goes into the lease."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from rm.errors import Conflict
from rm.web.doors.listener import bind, claimed


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


def test_a_socket_is_nobodys_until_it_has_its_mode_and_no_umask_changes_for_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, modes, change = tmp_path / "rm.sock", [], os.chmod

    def noting(*words: object) -> None:
        modes.append(stat.S_IMODE(path.stat().st_mode))
        change(*words)  # type: ignore[arg-type]

    before = os.umask(0)
    try:
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("it is that of all threads"))
        monkeypatch.setattr(os, "chmod", noting)
        listener: socket.socket = bind(str(path), shared=True)
    finally:
        monkeypatch.undo()
        os.umask(before)
    listener.close()
    assert (modes, stat.S_IMODE(path.stat().st_mode)) == ([0o600], 0o666)
