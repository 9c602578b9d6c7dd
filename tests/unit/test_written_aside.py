"""A file that takes another's place only when it is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm.playbook.model.vault_id import split_vault_id
from rm.written_aside import written_aside


def test_what_is_whole_takes_the_place_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with written_aside(path, 0o600) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert (path.read_text(), path.stat().st_mode & 0o777, list(tmp_path.iterdir())) == ("new", 0o600, [path])


def test_an_error_leaves_the_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(TypeError, match="bytes"), written_aside(path) as file:
        file.writelines([b"ne", "w"])  # type: ignore[list-item]
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])


@pytest.mark.parametrize(
    ("text", "found"), [("f", ("", "f")), ("dev@/a@b", ("dev", "/a@b")), ("dev@prompt", ("dev", "prompt"))]
)
def test_a_vault_id_is_split_at_the_first_at(text: str, found: tuple[str, str]) -> None:
    assert split_vault_id(text) == found
