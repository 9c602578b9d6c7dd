"""Two runs that meet at one file: a killed one's leavings go, one at work is waited for, nothing is mixed."""

import importlib
import os
import threading

import pytest

from tests.steps_request import one

set_aside = importlib.import_module("rm_steps_write").set_aside


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
            assert go_on.wait(30)
            os.write(fd, b"st")
            os.close(fd)
            os.rename(aside, path)

    threads = [threading.Thread(target=first)]
    threads[0].start()
    assert begun.wait(30)
    done = []
    second = {"content": "second", "dest": str(path)}
    threads.append(threading.Thread(target=lambda: done.append(one("copy", **second))))
    threads[1].start()
    assert not path.exists()
    assert not done
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert done[0]["changed"]
    assert path.read_text() == "second"
    assert os.listdir(tmp_path) == ["file"]


def test_many_writers_of_one_file_leave_one_of_theirs(tmp_path):
    path = tmp_path / "file"
    texts = [f"{number}" * 20_000 for number in range(8)]
    threads = [
        threading.Thread(target=lambda text=text: one("copy", content=text, dest=str(path))) for text in texts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert path.read_text() in texts
    assert os.listdir(tmp_path) == ["file"]
