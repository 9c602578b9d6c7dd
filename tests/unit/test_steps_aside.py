"""Two runs that meet at one file: a killed one's leavings go, one at work is waited for, nothing is mixed."""

import fcntl
import importlib
import os
import threading
from pathlib import Path

import pytest

from tests.fakes import PATIENCE_S
from tests.steps_request import one

StepFailed = importlib.import_module("rm_steps_base").StepFailed
private_folder = importlib.import_module("rm_steps_private").private_folder
set_mode = importlib.import_module("rm_steps_write").set_mode
set_aside = importlib.import_module("rm_steps_aside").set_aside


@pytest.mark.parametrize("old", ["new", "old", None])
def test_what_a_killed_run_left_aside_is_removed(tmp_path, old):
    path, aside = tmp_path / "file", tmp_path / ".file.rm-new"
    if old is not None:
        path.write_text(old)
    aside.write_text("ha")
    result = one("copy", content="new", dest=str(path))
    assert (result["changed"], path.read_text()) == (old != "new", "new")
    assert os.listdir(tmp_path) == ["file"]


def test_check_mode_removes_nothing(tmp_path):
    path, aside = tmp_path / "file", tmp_path / ".file.rm-new"
    path.write_text("new")
    aside.write_text("ha")
    one("copy", check=True, content="new", dest=str(path))
    assert aside.exists()


def test_a_planted_link_or_directory_is_not_written_through(tmp_path):
    path, aside, victim = tmp_path / "file", tmp_path / ".file.rm-new", tmp_path / "victim"
    victim.write_text("mine")
    aside.symlink_to(victim)
    assert one("copy", content="new", dest=str(path))["changed"]
    assert (path.read_text(), victim.read_text(), path.is_symlink()) == ("new", "mine", False)
    path.unlink()
    aside.mkdir()
    refused = one("copy", content="new", dest=str(path))
    assert refused["failed"]
    assert "in the way" in refused["msg"]


def test_a_step_still_at_work_is_waited_for(tmp_path):
    path = tmp_path / "file"
    begun, go_on = threading.Event(), threading.Event()

    def first():
        with set_aside(str(path)) as (fd, aside):
            os.write(fd, b"fir")
            begun.set()
            assert go_on.wait(PATIENCE_S)
            os.write(fd, b"st")
            os.close(fd)
            os.rename(aside, path)

    threads = [threading.Thread(target=first)]
    threads[0].start()
    assert begun.wait(PATIENCE_S)
    done = []
    second = {"content": "second", "dest": str(path)}
    threads.append(threading.Thread(target=lambda: done.append(one("copy", **second))))
    threads[1].start()
    assert not path.exists()
    assert not done
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert done[0]["changed"]
    assert path.read_text() == "second"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root has files of two users")
def test_in_a_directory_of_all_a_strangers_lock_keeps_nobody_waiting(tmp_path):
    path, aside = tmp_path / "file", tmp_path / ".file.rm-new"
    tmp_path.chmod(0o1777)
    aside.write_text("mine")
    os.chown(aside, 12345, 12345)
    with open(aside) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert one("copy", content="new", dest=str(path))["changed"]
    assert path.read_text() == "new"


def test_what_is_renamed_is_what_was_written(tmp_path):
    path, aside, planted = tmp_path / "file", tmp_path / ".file.rm-new", tmp_path / "planted"
    path.write_text("old")
    planted.write_text("planted")
    result = one("copy", content="new", dest=str(path), validate=f"mv -T {planted} %s")
    assert "Another run is writing" in result["msg"]
    assert path.read_text() == "old"
    assert not aside.exists()


def test_a_backup_is_not_written_through_a_planted_link(tmp_path, monkeypatch):
    path, victim = tmp_path / "file", tmp_path / "victim"
    path.write_text("old")
    victim.write_text("mine")
    monkeypatch.setattr("time.strftime", lambda form: "now")
    backup = tmp_path / f"file.{os.getpid()}.now~"
    backup.symlink_to(victim)
    other = one("copy", content="new", dest=str(path), backup=True)["backup_file"]
    assert other == f"{path}.{os.getpid() + 1}.now~"
    assert (path.read_text(), victim.read_text(), Path(other).read_text()) == ("new", "mine", "old")
    backup.unlink()
    path.write_text("old")
    path.chmod(0o640)
    assert one("copy", content="new", dest=str(path), backup=True)["backup_file"] == str(backup)
    assert (backup.read_text(), backup.stat().st_mode & 0o7777) == ("old", 0o640)


def test_a_mode_is_never_set_through_a_link(tmp_path):
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("mine")
    victim.chmod(0o600)
    link.symlink_to(victim)
    with pytest.raises(StepFailed, match="became a link"):
        set_mode(str(link), 0o666)
    assert victim.stat().st_mode & 0o7777 == 0o600


def test_what_is_kept_for_later_steps_is_private():
    folder = private_folder(f"test-{os.getpid()}")
    try:
        assert os.stat(folder).st_mode & 0o7777 == 0o700
        os.chmod(folder, 0o750)
        with pytest.raises(StepFailed, match="not a private directory"):
            private_folder(f"test-{os.getpid()}")
    finally:
        os.rmdir(folder)


def test_many_writers_of_one_file_leave_one_of_theirs(tmp_path):
    path = tmp_path / "file"
    texts = [f"{number}" * 20_000 for number in range(8)]
    threads = [
        threading.Thread(target=lambda text=text: one("copy", content=text, dest=str(path))) for text in texts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert path.read_text() in texts
    assert os.listdir(tmp_path) == ["file"]
