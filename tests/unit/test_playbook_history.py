"""Who ran which playbook: the file in the state directory, which may be another account's than root's."""

from __future__ import annotations

import os
import pwd
import threading
from pathlib import Path

import pytest

from rm.adapters.playbook.history import FILE, entry_of, keep, runs
from rm.playbook.model.steps import TaskResult
from rm.playbook.run.report import Report


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_root_follows_no_link_of_the_daemons_account(tmp_path: Path) -> None:
    """Root wrote into any file to which a daemon that was taken over had put a link."""
    account = pwd.getpwnam("daemon")
    state, roots = tmp_path / "state", tmp_path / "authorized_keys"
    state.mkdir(mode=0o700)
    os.chown(state, account.pw_uid, account.pw_gid)
    keep(state, {"by": "root"})
    assert runs(state) == [{"by": "root"}]
    assert (state / FILE).stat().st_uid == account.pw_uid  # who can write there, too

    for mode in (0o600, 0o660):  # what root's groups may do is root's, too
        roots.write_text('{"by": "secret"}\n')
        roots.chmod(mode)
        for put in (os.symlink, os.link):
            (state / FILE).unlink(missing_ok=True)
            put(roots, state / FILE)
            for use in (lambda: keep(state, {"by": "root"}), lambda: runs(state)):
                with pytest.raises(
                    OSError, match=r"levels of symbolic links|no file of the directory's owner"
                ):
                    use()
        assert roots.read_text() == '{"by": "secret"}\n'


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_no_other_thread_loses_roots_rights_meanwhile(tmp_path: Path) -> None:
    """The ids of a process are those of all its threads: one of them read what is root's, or failed."""
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, pwd.getpwnam("daemon").pw_uid, pwd.getpwnam("daemon").pw_gid)
    over, seen = threading.Event(), set()

    def look() -> None:
        while not over.is_set():
            seen.add((os.geteuid(), os.getegid()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for number in range(300):
            keep(state, {"number": number})
            assert runs(state)[-1] == {"number": number}
    finally:
        over.set()
        thread.join()
    assert seen == {(0, 0)}


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(OSError, match="no file of the directory's owner"):
        runs(tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_a_file_that_another_run_of_roots_had_only_just_made_is_the_accounts(tmp_path: Path) -> None:
    account = pwd.getpwnam("daemon")
    os.chown(tmp_path, account.pw_uid, account.pw_gid)
    (tmp_path / FILE).touch(mode=0o600)
    keep(tmp_path, {"by": "root"})
    assert runs(tmp_path) == [{"by": "root"}]
    assert (tmp_path / FILE).stat().st_uid == account.pw_uid


def test_no_words_of_a_host_hide_a_run_or_end_the_reading_of_all(tmp_path: Path) -> None:
    """A line separator in a host's message was the end of a line: what came after it was read as a run."""
    deep = "[" * 100_000
    for said in ("a\u2028[]\u2028b", f"a\x85{deep}\x85b", "a\x1c{}\x0c5\u2029null"):
        report = Report("site.yml", check=False)
        report.results["n1"] = [TaskResult("n1", "p", "t", "command", "failed", message=said)]
        entry = entry_of(
            report, by="root", began="2026-11-28T10:00:00", took_s=1.0, inventory="i", limit="", tags=(),
            variables={},
        )  # fmt: skip
        keep(tmp_path, entry)
        assert runs(tmp_path)[-1] == entry
        assert all(len(text) < 1100 for text in entry["failures"])
    with (tmp_path / FILE).open("a") as file:  # as an earlier release wrote them
        file.write(f"[]\n5\n{deep}\n")
    assert len(runs(tmp_path)) == 3
