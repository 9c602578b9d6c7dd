"""What the lab makes of the answers of `ip`; its networks themselves are tested on real hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm.lab import fabric


def answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    """`ip` fails with this."""
    program = tmp_path / "ip"
    program.write_text(f"#!/bin/sh\necho '{error}' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(fabric, "SEARCH", str(tmp_path))


# by its name, and where it went while it was deleted
@pytest.mark.parametrize("gone", ['Cannot find device "z1h1"', "RTNETLINK answers: No such device"])
def test_a_link_that_has_gone_by_itself_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    answering(tmp_path, monkeypatch, gone)
    fabric.drop_port("z1h1")


def test_a_link_that_cannot_be_dropped_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(tmp_path, monkeypatch, "RTNETLINK answers: Operation not permitted")
    with pytest.raises(fabric.FabricError, match="Operation not permitted"):
        fabric.drop_port("z1h1")
