"""What root's playbooks write below a user's directory: his links lead to what is his, and nowhere else."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.steps_request import done, one, refused

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes links of another user's")
NOBODY = pwd.getpwnam("nobody").pw_uid
LINE = {"line": "a line", "owner": "nobody"}
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("copy", {"dest": "led/file", "content": "new", "owner": "nobody"}),
    ("copy", {"dest": "led/below/file", "content": "new"}),
    ("lineinfile", {"path": "led/file", "create": True, **LINE}),
    ("lineinfile", {"path": "there", **LINE}),
    ("file", {"path": "led", "state": "directory", "owner": "nobody"}),
    ("file", {"path": "led/below", "state": "directory", "owner": "nobody", "recurse": True}),
    ("file", {"path": "led/new", "state": "directory"}),
    ("file", {"path": "led/secret", "state": "absent"}),
    ("file", {"path": "led/link", "state": "link", "src": "/"}),
    ("file", {"path": "there", "state": "file", "mode": "0644"}),
]


def prepared(tmp_path: Path, owner: int) -> tuple[Path, Path]:
    """A user's home with links into a directory of `owner`, and that directory."""
    home, led_to = tmp_path / "home", tmp_path / "led_to"
    (led_to / "below").mkdir(parents=True)
    home.mkdir()
    (led_to / "secret").write_text("secret\n")
    (home / "led").symlink_to("../led_to")
    (home / "there").symlink_to(led_to / "secret")
    for path in (home, home / "led", home / "there"):
        os.chown(path, NOBODY, -1, follow_symlinks=False)
    for path in (led_to, led_to / "below", led_to / "secret"):
        os.chown(path, owner, -1)
    return home, led_to


def seen(path: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_uid, p.stat().st_mode) for p in (path, *path.rglob("*"))}


def at(home: Path, given: dict[str, Any]) -> dict[str, Any]:
    return {name: str(home / value) if name in ("dest", "path") else value for name, value in given.items()}


@pytest.mark.parametrize(("module", "given"), STEPS)
def test_a_link_on_the_way_gives_its_user_nothing_of_root_s(
    tmp_path: Path, module: str, given: dict[str, Any]
) -> None:
    home, roots = prepared(tmp_path, owner=0)
    before = seen(roots)
    for check in (True, False):
        assert "is a link of another user's to what is not his" in refused(
            module, check=check, **at(home, given)
        )
    assert seen(roots) == before
    assert (roots / "secret").read_text() == "secret\n"


@pytest.mark.parametrize(("module", "given"), STEPS)
def test_a_user_s_links_to_what_is_his_are_followed(
    tmp_path: Path, module: str, given: dict[str, Any]
) -> None:
    home, _ = prepared(tmp_path, owner=NOBODY)
    assert not one(module, **at(home, given))["failed"]


def test_an_archive_is_unpacked_through_no_link_of_a_user_to_what_is_root_s(tmp_path: Path) -> None:
    home, roots = prepared(tmp_path, owner=0)
    (tmp_path / "file").write_text("new")
    archive = shutil.make_archive(str(tmp_path / "archive"), "tar", tmp_path, "file")
    given = {"src": archive, "dest": f"{home}/led", "remote_src": True}
    assert "is a link of another user's to what is not his" in refused("unarchive", **given)
    assert not (roots / "file").exists()
    done("unarchive", **{**given, "dest": str(roots)})


def test_root_s_own_links_are_followed(tmp_path: Path) -> None:
    home, roots = prepared(tmp_path, owner=0)
    os.chown(home / "led", 0, -1, follow_symlinks=False)
    done("copy", dest=f"{home}/led/file", content="new")
    assert (roots / "file").read_text() == "new"


def test_links_that_lead_to_each_other_come_to_an_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "Too many levels" in refused("copy", dest=f"{tmp_path}/a/file", content="new")
