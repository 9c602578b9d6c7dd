"""Who ran which playbook: the file in the state directory, which may be another account's than root's."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from rm.adapters.playbook.history import FILE, keep, runs


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_root_follows_no_link_of_the_daemons_account(tmp_path: Path) -> None:
    """Root wrote into any file to which a daemon that was taken over had put a link."""
    account = pwd.getpwnam("daemon")
    state, roots = tmp_path / "state", tmp_path / "authorized_keys"
    state.mkdir(mode=0o700)
    os.chown(state, account.pw_uid, account.pw_gid)
    for above in (tmp_path, *tmp_path.parents):  # how many are the runner's own depends on its workers
        if not above.stat().st_mode & 0o001:
            above.chmod(0o711)
    keep(state, {"by": "root"})
    assert runs(state) == [{"by": "root"}]
    assert (state / FILE).stat().st_uid == account.pw_uid  # who can write there, too

    roots.write_text('{"by": "secret"}\n')
    roots.chmod(0o600)
    (state / FILE).unlink()
    (state / FILE).symlink_to(roots)
    with pytest.raises(PermissionError):
        keep(state, {"by": "root"})
    with pytest.raises(PermissionError):
        runs(state)
    assert roots.read_text() == '{"by": "secret"}\n'
    assert os.geteuid() == os.getegid() == 0
