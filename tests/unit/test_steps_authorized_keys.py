"""The module `authorized_key`: whose files of keys it changes, and where a user's links may lead it."""

import os
import pwd
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.steps_request import done, kept, refused

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGlQUzggxmS8XOj4vb0AbBDSX9aMUS9pno"


def test_authorized_keys(tmp_path: Path) -> None:
    path = tmp_path / "dot/authorized_keys"
    me = pwd.getpwuid(os.getuid()).pw_name
    where: dict[str, Any] = {"user": me, "path": str(path)}
    done("authorized_key", **where, key=f"{KEY} a@b")
    assert (path.read_text(), path.stat().st_mode & 0o777) == (f"{KEY} a@b\n", 0o600)
    path.write_text(f"# mine\nssh-rsa AAAAother x\n{KEY} a@b\n")
    kept("authorized_key", **where, key=f"{KEY} a@b")
    done("authorized_key", **where, key=f"{KEY} a@b", key_options='command="/bin/x",no-pty')
    assert path.read_text().endswith(f'command="/bin/x",no-pty {KEY} a@b\n')
    done("authorized_key", **where, key=KEY, state="absent")
    assert path.read_text() == "# mine\nssh-rsa AAAAother x\n"
    done("authorized_key", **where, key=KEY, exclusive=True)
    assert path.read_text() == f"{KEY}\n"
    assert "invalid key" in refused("authorized_key", **where, key="not a key")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives directories to another user")
@pytest.mark.parametrize("manage", [True, False])
def test_a_linked_directory_of_keys_stays_its_owner_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manage: bool
) -> None:
    home, other = tmp_path / "home", tmp_path / "etc"
    for path in (home, other):
        path.mkdir(mode=0o755)
    (home / ".ssh").symlink_to(other)
    (other / "authorized_keys").write_text(f"{KEY}\n")
    nobody = pwd.getpwnam("nobody")
    moved = pwd.struct_passwd((*nobody[:5], str(home), nobody[6]))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: moved)
    given: dict[str, Any] = {"user": "nobody", "key": f"{KEY} mine", "manage_dir": manage}
    assert "not nobody's" in refused("authorized_key", **given)
    assert "not nobody's" in refused("authorized_key", **given, check=True)
    seen = other.stat()
    assert (seen.st_uid, stat.S_IMODE(seen.st_mode)) == (os.geteuid(), 0o755)
    assert (other / "authorized_keys").read_text() == f"{KEY}\n"
    os.chown(other, nobody.pw_uid, nobody.pw_gid)
    done("authorized_key", **given)
    assert (other / "authorized_keys").read_text() == f"{KEY} mine\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="makes links of another user's")
def test_a_file_of_keys_that_its_owner_links_to_another_s_file_gives_him_nothing(tmp_path: Path) -> None:
    path, secret = tmp_path / "dot/authorized_keys", tmp_path / "shadow"
    path.parent.mkdir()
    secret.write_text("root:secret\n")
    path.symlink_to(secret)
    os.chown(path, pwd.getpwnam("nobody").pw_uid, -1, follow_symlinks=False)
    assert "not nobody's" in refused("authorized_key", user="nobody", path=str(path), key=KEY)
    assert (path.is_symlink(), secret.read_text()) == (True, "root:secret\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="makes links of another user's")
@pytest.mark.parametrize(("link", "maker"), [(".ssh", "nobody"), (".ssh", "root"), ("keys", "nobody")])
@pytest.mark.parametrize("manage", [True, False])
def test_no_link_of_a_user_on_the_way_to_his_keys_leads_to_another_s(
    tmp_path: Path, link: str, maker: str, manage: bool
) -> None:
    home, other, nobody = tmp_path / "home", tmp_path / "etc", pwd.getpwnam("nobody")
    for path in (home, other / "ssh", home / "own/ssh"):
        path.mkdir(parents=True, mode=0o755)
    for path in (home, home / "own"):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    target = other if link == ".ssh" else other / "ssh"
    (target / "authorized_keys").write_text(f"{KEY}\n")
    (home / link).symlink_to(other)
    os.chown(home / link, pwd.getpwnam(maker).pw_uid, -1, follow_symlinks=False)
    below = home / link if link == ".ssh" else home / link / "ssh"
    given: dict[str, Any] = {"user": "nobody", "path": str(below / "authorized_keys"), "manage_dir": manage}
    for follow in (False, True):
        for check in (True, False):
            told = refused("authorized_key", **given, key=f"{KEY} mine", follow=follow, check=check)
            assert "not nobody's" in told
    assert (target / "authorized_keys").read_text() == f"{KEY}\n"
    assert (target / "authorized_keys").stat().st_uid == 0
    assert [(path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) for path in (other, other / "ssh")] == [
        (0, 0o755)
    ] * 2
    (home / link).unlink()  # to what is his own it may lead
    (home / link).symlink_to("own")
    os.chown(home / link, nobody.pw_uid, -1, follow_symlinks=False)
    if link == "keys":  # a directory of another's in his own is not his
        assert "not nobody's" in refused("authorized_key", **given, key=f"{KEY} mine")
        assert (home / "own/ssh").stat().st_uid == 0
    os.chown(home / "own/ssh", nobody.pw_uid, nobody.pw_gid)
    done("authorized_key", **given, key=f"{KEY} mine")
    assert (below / "authorized_keys").read_text() == f"{KEY} mine\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives directories to another user")
def test_the_directory_that_a_followed_file_of_keys_is_in_stays_as_it_is(tmp_path: Path) -> None:
    path, target = tmp_path / "dot/keys", tmp_path / "etc/keys"
    for each in (path, target):
        each.parent.mkdir()
    target.write_text("")
    path.symlink_to(target)
    done("authorized_key", user="nobody", path=str(path), key=KEY, follow=True)
    assert (target.read_text(), path.is_symlink()) == (f"{KEY}\n", True)
    assert (target.parent.stat().st_uid, path.parent.stat().st_uid) == (0, pwd.getpwnam("nobody").pw_uid)
