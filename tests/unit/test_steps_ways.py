"""What root's playbooks write below a user's directory: his links lead to what is his, and nowhere else."""

from __future__ import annotations

import importlib
import os
import pwd
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.steps_request import done, one, refused

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes links of another user's")
base, write = (importlib.import_module(name) for name in ("rm_steps_base", "rm_steps_write"))
aside = importlib.import_module("rm_steps_aside")
NOBODY = pwd.getpwnam("nobody").pw_uid
LED = "is a link that another user made or may move"
LINE = {"line": "a line", "owner": "nobody"}
OPTION = {"section": "a", "option": "b", "value": "c", "owner": "nobody"}
ACCESS = {"user": "nobody", "key": "ssh-ed25519 AAAA", "manage_dir": False}
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
    ("file", {"path": "new", "state": "link", "src": "led/secret", "owner": "nobody"}),
    ("file", {"path": "new", "state": "link", "src": "there", "mode": "0644"}),
    ("file", {"path": "there", "state": "link", "mode": "0644"}),
    ("file", {"path": "new", "state": "hard", "src": "led/secret", "owner": "nobody"}),
    ("copy", {"dest": "there", "content": "new", "follow": True, "owner": "nobody"}),
    ("ini_file", {"path": "there", "follow": True, **OPTION}),
    ("ini_file", {"path": "led/ini", **OPTION}),
    ("assemble", {"src": "parts", "dest": "there", "remote_src": True, "follow": True}),
    ("replace", {"path": "led/secret", "regexp": "none", "replace": "", "owner": "nobody"}),
    ("get_url", {"url": "file:///dev/null", "dest": "led/secret", "force": False, "owner": "nobody"}),
    ("authorized_key", {"path": "there", "follow": True, **ACCESS}),
]
CREATING: list[tuple[str, dict[str, Any]]] = [
    ("lineinfile", {"path": "none", "create": True, **LINE}),
    ("blockinfile", {"path": "none", "create": True, "block": "a block", "owner": "nobody"}),
    ("file", {"path": "none", "state": "touch", "owner": "nobody"}),
    ("copy", {"dest": "none", "content": "new", "follow": True, "owner": "nobody"}),
    ("ini_file", {"path": "none", "follow": True, **OPTION}),
    ("assemble", {"src": "parts", "dest": "none", "remote_src": True, "follow": True}),
    ("authorized_key", {"path": "none", "follow": True, **ACCESS}),
]


def prepared(tmp_path: Path, owner: int) -> tuple[Path, Path]:
    """A user's home with links into a directory of `owner`, and that directory."""
    home, led_to = tmp_path / "home", tmp_path / "led_to"
    (led_to / "below").mkdir(parents=True)
    home.mkdir()
    (led_to / "secret").write_text("secret\n")
    (led_to / "ini").write_text("[a]\nb = c\n")
    (home / "parts").mkdir()
    (home / "led").symlink_to("../led_to")
    (home / "there").symlink_to(led_to / "secret")
    for path in (home, home / "led", home / "there"):
        os.chown(path, NOBODY, -1, follow_symlinks=False)
    for path in (led_to, led_to / "below", led_to / "secret", led_to / "ini"):
        os.chown(path, owner, -1)
    return home, led_to


def seen(path: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_uid, p.stat().st_mode) for p in (path, *path.rglob("*"))}


def at(home: Path, given: dict[str, Any]) -> dict[str, Any]:
    paths = {"dest", "path"} | ({"src"} if given.get("state") != "link" else set())
    return {name: str(home / value) if name in paths else value for name, value in given.items()}


@pytest.mark.parametrize(("module", "given"), STEPS)
def test_a_link_on_the_way_gives_its_user_nothing_of_root_s(
    tmp_path: Path, module: str, given: dict[str, Any]
) -> None:
    home, roots = prepared(tmp_path, owner=0)
    before = seen(roots)
    for check in (True, False):
        assert LED in refused(module, check=check, **at(home, given))
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
    assert LED in refused("unarchive", **given)
    assert not (roots / "file").exists()
    done("unarchive", **{**given, "dest": str(roots)})


@pytest.mark.parametrize("kind", [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_no_entry_of_an_archive_goes_through_a_link_of_a_user_to_what_is_root_s(
    tmp_path: Path, kind: bytes
) -> None:
    home, roots = prepared(tmp_path, owner=0)
    before = seen(roots)
    with tarfile.open(tmp_path / "archive", "w") as archive:
        secret = tarfile.TarInfo("led/secret")
        entry = tarfile.TarInfo("led/sub/new")
        entry.type, entry.linkname = kind, "led/secret" if kind == tarfile.LNKTYPE else "secret"
        for one_ in (secret, entry) if kind == tarfile.LNKTYPE else (entry,):
            archive.addfile(one_)
    for check in (True, False):
        given = {"src": f"{tmp_path}/archive", "dest": str(home), "remote_src": True, "owner": "nobody"}
        assert LED in refused("unarchive", check=check, **given)
    assert seen(roots) == before


def test_git_clones_through_no_link_of_a_user_to_what_is_root_s(tmp_path: Path) -> None:
    home, roots = prepared(tmp_path, owner=0)
    (home / "none").symlink_to("../led_to/none")
    os.chown(home / "none", NOBODY, -1, follow_symlinks=False)
    for dest in ("led", "led/new", "none"):
        assert LED in refused("git", repo=f"{tmp_path}/repository", dest=f"{home}/{dest}")
    given = {"dest": f"{home}/own", "separate_git_dir": f"{home}/led/new"}
    assert LED in refused("git", repo=f"{tmp_path}/repository", **given)
    assert "new" not in os.listdir(roots)


@pytest.mark.parametrize("target", ["../led_to/none", "../led_to/no/none", "absent/../../led_to/none"])
@pytest.mark.parametrize(("module", "given"), CREATING)
def test_a_link_to_what_is_not_there_makes_nothing_in_a_directory_of_root_s(
    tmp_path: Path, module: str, given: dict[str, Any], target: str
) -> None:
    home, roots = prepared(tmp_path, owner=0)
    (home / "none").symlink_to(target)
    os.chown(home / "none", NOBODY, -1, follow_symlinks=False)
    before = seen(roots)
    for check in (True, False):
        assert LED in refused(module, check=check, **at(home, given))
    assert seen(roots) == before


@pytest.mark.parametrize(("module", "given"), CREATING)
def test_a_user_s_link_to_what_is_not_there_is_followed_to_his_own_directory(
    tmp_path: Path, module: str, given: dict[str, Any]
) -> None:
    home, his = prepared(tmp_path, owner=NOBODY)
    (home / "none").symlink_to("../led_to/none")
    os.chown(home / "none", NOBODY, -1, follow_symlinks=False)
    assert not one(module, **at(home, given))["failed"]
    assert (his / "none").exists()


def test_programs_and_descriptors_go_through_no_link_of_a_user_to_what_is_root_s(tmp_path: Path) -> None:
    home, roots = prepared(tmp_path, owner=0)
    (home / "none").symlink_to("../led_to/none")
    (home / "device").symlink_to("/dev/null")
    for name in ("none", "device"):
        os.chown(home / name, NOBODY, -1, follow_symlinks=False)
    before = seen(roots)
    assert LED in refused("tempfile", path=f"{home}/led")
    key = {"generate_ssh_key": True, "ssh_key_file": f"{home}/none"}
    assert LED in refused("user", name="nobody", create_home=False, **key)  # his home is not this machine's
    with pytest.raises(base.StepFailed, match=LED):
        write.write_output(f"{home}/device", "echo dump")
    assert seen(roots) == before


@pytest.mark.parametrize(
    ("state", "path"),
    [("absent", "led/below"), ("mounted", "led/new"), ("unmounted", "led"), ("remounted", "led")],
)
def test_a_mount_point_behind_a_link_to_what_is_root_s_stays_with_its_line(
    tmp_path: Path, state: str, path: str
) -> None:
    home, roots = prepared(tmp_path, owner=0)
    fstab, before = tmp_path / "fstab", seen(roots)
    fstab.write_text(line := f"none {home}/{path} tmpfs defaults 0 0\n")
    given = {"fstab": str(fstab), "src": "none", "fstype": "tmpfs", "opts": "ro"}
    for check in (True, False):
        assert LED in refused("mount", check=check, path=f"{home}/{path}", state=state, **given)
    assert (fstab.read_text(), seen(roots)) == (line, before)


def own_key(monkeypatch: pytest.MonkeyPatch, home: Path) -> dict[str, Any]:
    """What has `user` make a key of ed25519 below `home`, which is nobody's."""
    monkeypatch.setattr(
        pwd, "getpwnam", lambda name: pwd.struct_passwd((name, "x", NOBODY, 0, "", str(home), ""))
    )
    return {"name": "nobody", "create_home": False, "generate_ssh_key": True, "ssh_key_type": "ed25519"}


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
@pytest.mark.parametrize(("name", "target"), [("id", "none"), ("id.pub", "none"), ("id.pub", "secret")])
def test_neither_file_of_a_new_key_is_written_through_a_link_to_what_is_root_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, target: str
) -> None:
    home, roots = prepared(tmp_path, owner=0)
    (home / name).symlink_to(roots / target)
    os.chown(home / name, NOBODY, -1, follow_symlinks=False)
    before = seen(roots)
    for check in (True, False):
        assert LED in refused("user", check=check, ssh_key_file="id", **own_key(monkeypatch, home))
    assert seen(roots) == before
    assert (roots / "secret").read_text() == "secret\n"


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_a_new_key_is_its_user_s_also_where_his_links_lead_to_what_is_his(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, his = prepared(tmp_path, owner=NOBODY)
    (home / "id.pub").symlink_to(his / "public")
    os.chown(home / "id.pub", NOBODY, -1, follow_symlinks=False)
    made = one("user", ssh_key_file="id", **own_key(monkeypatch, home))
    assert not made["failed"], made
    assert made["ssh_public_key"] == (his / "public").read_text().strip()
    told = subprocess.run(["ssh-keygen", "-y", "-f", home / "id"], capture_output=True, text=True, check=True)
    assert made["ssh_public_key"].split()[1] == told.stdout.split()[1]
    assert [(p.stat().st_uid, p.stat().st_mode & 0o777) for p in (home / "id", his / "public")] == [
        (NOBODY, 0o600),
        (NOBODY, 0o644),
    ]


def test_no_public_key_is_read_through_a_link_to_what_is_root_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, roots = prepared(tmp_path, owner=0)
    (home / "id").write_text("a key")
    (home / "id.pub").symlink_to(roots / "secret")
    os.chown(home / "id.pub", NOBODY, -1, follow_symlinks=False)
    assert LED in refused("user", ssh_key_file="id", **own_key(monkeypatch, home))


def test_root_s_own_links_are_followed(tmp_path: Path) -> None:
    home, roots = prepared(tmp_path, owner=0)
    for path in (home, home / "led"):
        os.chown(path, 0, -1, follow_symlinks=False)
    done("copy", dest=f"{home}/led/file", content="new")
    assert (roots / "file").read_text() == "new"


def test_a_link_of_root_s_that_a_user_may_move_counts_as_his(tmp_path: Path) -> None:
    home, roots = prepared(tmp_path, owner=0)
    os.chown(home / "led", 0, -1, follow_symlinks=False)
    os.rename(home / "led", home / ".ssh")  # as the user may
    assert LED in refused("copy", dest=f"{home}/.ssh/authorized_keys", content="new", owner="nobody")
    assert "authorized_keys" not in os.listdir(roots)


@pytest.mark.parametrize("mode", [0o2775, 0o757])
@pytest.mark.parametrize("owner", [0, NOBODY])
def test_a_link_of_root_s_that_a_group_or_everybody_may_move_is_not_followed(
    tmp_path: Path, mode: int, owner: int
) -> None:
    home, roots = prepared(tmp_path, owner=owner)
    os.chown(home, owner, -1)
    os.chown(home / "led", 0, -1, follow_symlinks=False)
    home.chmod(mode)
    for check in (True, False):
        told = refused("copy", check=check, dest=f"{home}/led/authorized_keys", content="new")
        assert f"is a link of root's that others may move: a group or everybody may write {home}." in told
    assert "authorized_keys" not in os.listdir(roots)


def test_a_user_s_link_that_his_group_may_move_leads_to_what_is_his(tmp_path: Path) -> None:
    """As where a group deploys: `current` leads to the newest of several directories."""
    home, roots = prepared(tmp_path, owner=0)
    (home / "release").mkdir()
    for name in ("current", "away"):
        (home / name).symlink_to(home / "release" if name == "current" else roots)
        os.chown(home / name, NOBODY, -1, follow_symlinks=False)
    for path in (home, home / "release"):
        os.chown(path, NOBODY, -1)
        path.chmod(0o2775)
    done("copy", dest=f"{home}/current/file", content="new")
    assert (home / "release" / "file").read_text() == "new"
    assert "is a link that another user made" in refused("copy", dest=f"{home}/away/file", content="new")
    assert "file" not in os.listdir(roots)


def test_a_link_of_root_s_in_a_sticky_directory_is_followed(tmp_path: Path) -> None:
    home, roots = prepared(tmp_path, owner=0)
    for path in (home, home / "led"):
        os.chown(path, 0, -1, follow_symlinks=False)
    home.chmod(0o1777)
    done("copy", dest=f"{home}/led/file", content="new")
    assert (roots / "file").read_text() == "new"


def test_root_makes_links_in_a_user_s_directory_to_what_is_root_s(tmp_path: Path) -> None:
    home, roots = prepared(tmp_path, owner=0)
    done("file", path=f"{home}/new", src=f"{roots}/secret", state="link")
    done("file", path=f"{home}/new", src=f"{roots}/secret", state="link", mode="0640")
    assert (roots / "secret").stat().st_mode & 0o7777 == 0o640


def test_no_link_to_what_a_user_s_process_has_open_is_followed(tmp_path: Path) -> None:
    home, his = prepared(tmp_path, owner=NOBODY)
    with subprocess.Popen(["sleep", "600"], user=NOBODY, cwd=his) as process:
        (home / "open").symlink_to(f"/proc/{process.pid}/cwd")
        os.chown(home / "open", NOBODY, -1, follow_symlinks=False)
        try:
            told = refused("copy", dest=f"{home}/open/file", content="new")
        finally:
            process.kill()
    assert "leads to what a process has open" in told
    assert "file" not in os.listdir(his)


def test_links_that_lead_to_each_other_come_to_an_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "Too many levels" in refused("copy", dest=f"{tmp_path}/a/file", content="new")


def test_a_directory_that_is_removed_while_it_is_looked_at_fails_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, his = prepared(tmp_path, owner=NOBODY)
    lstat = os.lstat

    def removing(path: Any) -> os.stat_result:
        found = lstat(path)
        if path == str(his):
            his.rename(tmp_path / "elsewhere")
        return found

    monkeypatch.setattr(os, "lstat", removing)
    with pytest.raises(
        base.StepFailed, match=f"^{his}, on the way to {home}/led/file, cannot be looked at: No such"
    ):
        aside.refuse_led_away(f"{home}/led/file")
