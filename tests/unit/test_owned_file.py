"""What root does with the rights of the daemon's account."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rm.adapters.owned_file import as_owner_of
from rm.errors import ConfigError


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
@pytest.mark.parametrize("refused", ["setgroups", "setegid", "seteuid"])
def test_what_root_cannot_become_leaves_it_all_its_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """A container may not know the account: then the kernel refuses its ids, one by one."""
    os.chown(tmp_path, 4321, 4321)
    had, given = (os.geteuid(), os.getegid(), os.getgroups()), getattr(os, refused)

    def refuse(wanted: object) -> None:
        if wanted in (4321, []):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        given(wanted)

    with monkeypatch.context() as patch:
        patch.setattr(os, refused, refuse)
        with pytest.raises(ConfigError, match=f"account 4321, which owns {tmp_path}"), as_owner_of(tmp_path):
            pytest.fail("it went on with root's rights")
    assert (os.geteuid(), os.getegid(), os.getgroups()) == had
    with as_owner_of(tmp_path):
        assert (os.geteuid(), os.getegid(), os.getgroups()) == (4321, 4321, [])
    assert (os.geteuid(), os.getegid(), os.getgroups()) == had


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_root_keeps_no_rights_where_the_account_leads_it_to_a_directory_of_roots(tmp_path: Path) -> None:
    """In /tmp, which is root's, an account may have put what SQLite follows."""
    roots, state = tmp_path / "tmp", tmp_path / "state"
    roots.mkdir(mode=0o1777)
    state.mkdir()
    os.chown(state, 4321, 4321)
    (state / "database").symlink_to(roots)
    with pytest.raises(ConfigError, match="link of another account"), as_owner_of(state / "database"):
        pytest.fail("it went on with root's rights")
