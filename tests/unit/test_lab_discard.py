"""What is left of a lab's directory."""

from __future__ import annotations

from pathlib import Path

from rm.lab.lab import discard


def test_what_a_killed_keeper_had_begun_to_write_does_not_keep_the_directory(tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    lab.mkdir()
    for name in ("known_hosts", ".lab.json.0a1b2c3d.rm-new"):
        (lab / name).touch()
    discard(lab, remove_directory=True)
    assert not lab.exists()
