"""The agent's logs, and what it does where the disk is full."""

from __future__ import annotations

import base64
import ctypes
import errno
import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from tests.agent_process import AGENTS, USER, Agent, Start, until

sys.path.insert(0, str(AGENTS))
import rm_capture
import rm_request
import rm_spool
import rm_still_open

root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")
SH = "#!/bin/sh\n"


@root
def test_a_full_disk_refuses_a_launch_and_still_keeps_an_exit(start: Start) -> None:
    state = start().state
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=711", "none", state], check=True)
    try:
        agent = start()
        agent.launch(SH + "exec sleep 600")
        filler = state / "filler"
        fill_up(filler)
        reply = agent.launch(SH + "x" * 5000, job=2)
        assert (reply["ok"], reply["code"]) == (False, "no-space")
        assert [path.name for path in (state / "jobs").iterdir()] == ["1.1"]
        late = start()
        assert not late.hello["room"]
        agent.call("stop", job=1, attempt=1, grace_us=0, why="cancel", epoch=2)  # a new leader's
        agent.event("exit", job=1, why="cancel")
        assert agent.ask("stop", job=1, attempt=1)["code"] == "stale-epoch"
        agent.end()
        (task,) = start().call("tasks", epoch=2)["tasks"]
        assert (task["state"], task["why"]) == ("exited", "cancel")
        assert not [event for event in late.events if event["event"] == "room"]
        filler.unlink()
        late.event("room")
        assert start().hello["room"]
    finally:
        subprocess.run(["umount", "-l", state], check=True)


@root
@pytest.mark.parametrize("fills", ['cat /dev/zero >>"$0"', 'cat /dev/zero >>"$RM_REPORTS"'])
def test_an_ended_job_that_filled_the_spool_is_forgotten_all_the_same(start: Start, fills: str) -> None:
    state = start().state
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=711", "none", state], check=True)
    try:
        agent = start()
        agent.launch(SH + f"{fills}\nexit 3", env={"PATH": os.environ["PATH"]})
        agent.event("exit", job=1, code=3)
        agent.call("discard", job=1, attempt=1)
        assert not list((state / "jobs").iterdir())
        assert agent.launch(SH + "exit 4", job=2)["ok"]
        agent.event("exit", job=2, code=4)
        assert agent.launch(SH + "exit 4", job=1)["code"] == "discarded"
    finally:
        subprocess.run(["umount", "-l", state], check=True)


@pytest.mark.parametrize(
    "fills", ['head -c 80000000 /dev/zero >>"$0"', 'fallocate --keep-size --length 80000000 "$RM_REPORTS"']
)
def test_a_job_that_fills_the_spool_ends_and_leaves_the_others_their_room(agent: Agent, fills: str) -> None:
    agent.launch(SH + "exec sleep 600", job=2)
    agent.launch(SH + fills + "\nexec sleep 600", env={"PATH": os.environ["PATH"]})
    ended = agent.event("exit", job=1)
    assert "filled the disk" in ended["why"]
    files = [path for path in (agent.state / "jobs/1.1").rglob("*") if path.is_file()]
    assert sum(path.stat().st_blocks * 512 for path in files) < 64 << 20
    states = {task["job"]: task["state"] for task in agent.call("tasks")["tasks"]}
    assert states == {1: "exited", 2: "running"}
    agent.call("stop", job=2, attempt=1, grace_us=0, why="cancel")


@root
def test_a_job_that_fills_the_disk_by_a_file_of_an_ended_one_ends_too(agent: Agent) -> None:
    environment = {"PATH": os.environ["PATH"]}
    agent.launch(SH + f"until test -e {agent.state}/go; do sleep 0.01; done", env=environment)
    reports, aside = agent.state / "jobs/1.1/0/reports.jsonl", agent.state / "still_open"
    opens = f"exec 7>>{reports}\necho open\nuntil test -e {agent.state}/gone; do sleep 0.01; done\n"
    agent.launch(SH + opens + "head -c 80000000 /dev/zero >&7\nexec sleep 600", job=2, env=environment)
    until(lambda: agent.log(2) == "open\n", "the second job has the file of the first one open")
    (agent.state / "go").touch()
    agent.event("exit", job=1)
    agent.call("discard", job=1, attempt=1)
    assert [path.name for path in (agent.state / "jobs").iterdir()] == ["2.1"]
    (agent.state / "gone").touch()
    assert "filled the disk" in agent.event("exit", job=2)["why"]
    until(lambda: not list(aside.iterdir()), "it is removed when nobody writes to it any more")


@root
def test_who_fills_the_disk_by_a_file_of_an_ended_job_and_ends_leaves_the_room_to_others(
    start: Start,
) -> None:
    """Nothing runs any more when it has ended: the agent looks all the same."""
    state = start().state
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m,mode=711", "none", state], check=True)
    try:
        agent, environment = start(), {"PATH": os.environ["PATH"]}
        waits = f"until test -e {state}/go; do sleep 0.01; done\n"
        agent.launch(SH + waits, env=environment)
        opens = f"exec 7>>{state}/jobs/1.1/0/reports.jsonl\necho open\n" + waits.replace("/go", "/gone")
        agent.launch(SH + opens + "cat /dev/zero >&7\nexit 0", job=2, env=environment)
        until(lambda: agent.log(2) == "open\n", "the second job has the file of the first one open")
        (state / "go").touch()
        agent.event("exit", job=1)
        agent.call("discard", job=1, attempt=1)
        (state / "gone").touch()
        agent.event("exit", job=2)
        agent.call("discard", job=2, attempt=1)
        until(lambda: not list((state / "still_open").iterdir()), "it is removed though nothing runs")
        assert agent.launch(SH + "exit 4" + " " * 20_000, job=3)["ok"]
        assert agent.event("exit", job=3)["code"] == 4
    finally:
        subprocess.run(["umount", "-l", state], check=True)


HOLDS = """#!/usr/bin/python3 -u
import fcntl, os, signal, sys, time
fd = os.open({path}, os.O_RDWR)
def hold(*_):
    for kind in fcntl.F_UNLCK, fcntl.F_WRLCK:
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, kind)
        except OSError:
            pass  # it has none, or who looks has it open
signal.signal(signal.SIGIO, hold)
while fcntl.fcntl(fd, fcntl.F_GETLEASE) != fcntl.F_WRLCK:
    hold()
print("held")
{then}
while True:
    signal.pause()
"""


def test_a_job_that_holds_a_lease_on_a_file_with_which_it_fills_the_spool_ends(agent: Agent) -> None:
    path = 'os.environ["RM_REPORTS"]'
    agent.launch(HOLDS.format(path=path, then='os.write(fd, b"x" * 80_000_000)'))
    assert "filled the disk" in agent.event("exit", job=1)["why"]


@root
@pytest.mark.parametrize("room", ["enough", "none"])
def test_the_agent_does_not_wait_for_who_holds_a_lease_on_a_file_of_an_ended_job(
    start: Start, room: str
) -> None:
    """A process of another job of its user, which answers no signal of the kernel's: that takes 45 s."""
    state = start().state
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m,mode=711", "none", state], check=True)
    agent = start()
    try:
        agent.launch(SH + f"until test -e {state}/go; do sleep 0.01; done", env={"PATH": os.environ["PATH"]})
        path = str(state / "jobs/1.1/0/reports.jsonl")
        deaf = HOLDS.format(path=repr(path), then="signal.signal(signal.SIGIO, lambda *_: None)")
        agent.launch(deaf, job=2)
        until(lambda: agent.log(2) == "held\n", "the second job holds a lease on the file of the first one")
        (state / "go").touch()
        agent.event("exit", job=1)
        if room == "none":
            fill_up(state / "filler")
        agent.ask("discard", job=1, attempt=1)  # refused without room, all the same
        (kept,) = (state / "still_open").iterdir()
        assert is_leased(kept), "the kernel has not ended the lease meanwhile"
        if room == "enough":
            assert not list((state / "jobs").glob("1.1"))
    finally:
        agent.call("stop", job=2, attempt=1, grace_us=0, why="cancel")
        agent.event("exit", job=2)
        subprocess.run(["umount", "-l", state], check=True)


def is_leased(path: Path) -> bool:
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    inode = str(path.stat().st_ino)
    return any("LEASE" in words and words[-3].split(":")[-1] == inode for words in locks)


REOPENS = """#!/usr/bin/python3 -u
import os, time
fd = os.open("{state}/jobs/1.1/{file}", os.{how})
print("open")
while not os.path.exists("{state}/gone"):
    time.sleep(0.01)
try:
    os.open("/proc/self/fd/%d" % fd, os.O_WRONLY)
except PermissionError:
    print("refused")
"""


@root
@pytest.mark.parametrize("how", ["O_RDONLY", "O_PATH"])
@pytest.mark.parametrize("file", ["script", "0/reports.jsonl"])
@pytest.mark.parametrize("forgotten", [True, False])
def test_nobody_opens_a_file_of_an_ended_job_for_writing(
    agent: Agent, how: str, file: str, forgotten: bool
) -> None:
    """Through a descriptor that does not write, when its job has ended, and is `forgotten`."""
    state = agent.state
    agent.launch(SH + f"until test -e {state}/go; do sleep 0.01; done", env={"PATH": os.environ["PATH"]})
    agent.launch(REOPENS.format(state=state, file=file, how=how), job=2)
    until(lambda: agent.log(2) == "open\n", "the second job has the file of the first one open")
    (state / "go").touch()
    agent.event("exit", job=1)
    if forgotten:
        agent.call("discard", job=1, attempt=1)
    else:
        agent.call("ping")  # answered after the end was dealt with
    (state / "gone").touch()
    assert agent.event("exit", job=2)["code"] == 0
    assert agent.log(2) == "open\nrefused\n"


@root
def test_who_only_reads_a_file_of_an_ended_job_keeps_nothing_of_the_disk(agent: Agent) -> None:
    state = agent.state
    agent.launch(SH + 'head -c 3000000 /dev/zero >"$RM_REPORTS"', env={"PATH": os.environ["PATH"]})
    path = state / "jobs/1.1/0/reports.jsonl"
    until(lambda: path.exists(), "the file is there")
    with path.open("rb") as reader:
        agent.event("exit", job=1, code=0)
        agent.call("discard", job=1, attempt=1)
        assert (os.fstat(reader.fileno()).st_nlink, os.fstat(reader.fileno()).st_blocks) == (0, 0)


@root
def test_a_file_that_its_user_has_under_another_name_stays_his(agent: Agent) -> None:
    state = agent.state
    theirs = state / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    agent.launch(SH + f'ln "$RM_REPORTS" {theirs}/kept', env={"PATH": os.environ["PATH"]})
    agent.event("exit", job=1, code=0)
    agent.call("discard", job=1, attempt=1)
    about = (theirs / "kept").stat()
    assert (about.st_uid, about.st_mode & 0o777, about.st_nlink) == (pwd.getpwnam(USER).pw_uid, 0o600, 1)
    assert not list((state / "still_open").iterdir())


@root
@pytest.mark.parametrize("removed", ["an interrupted launch", "a slice's spare folder"])
def test_no_way_of_removing_a_folder_leaves_an_open_file_out_of_sight(tmp_path: Path, removed: str) -> None:
    spool = rm_spool.Spool(str(tmp_path))
    user = pwd.getpwnam(USER)
    folder = spool.folder(1, 1)
    if removed != "an interrupted launch":
        of_slice = spool.slice_folder(1, 1)
        os.makedirs(of_slice.path)
        folder = rm_spool.Folder(of_slice.at("spare"), 1, 1, spool.state)
    os.close(folder.lock())
    folder.fill([0], SH, user.pw_uid, user.pw_gid)
    with open(folder.reports(0), "a") as file:
        (folder if removed == "an interrupted launch" else of_slice).remove()
        about = os.fstat(file.fileno())
        assert (about.st_nlink, about.st_uid, about.st_mode & 0o777) == (1, 0, 0)
        (kept,) = (tmp_path / "still_open").iterdir()
        assert (kept.name, kept.stat().st_ino) == (f"{user.pw_uid}.{about.st_ino}", about.st_ino)


@root
def test_who_has_written_much_and_ended_costs_its_user_no_other_job(tmp_path: Path) -> None:
    """Only while somebody writes to such files are all jobs of their user ended, for these together."""
    aside = rm_still_open.StillOpen(str(tmp_path))
    for inode in (1, 2):
        with open(tmp_path / "still_open" / f"1000.{inode}", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 40 << 20)
    with open(tmp_path / "still_open/1000.1", "ab"), open(tmp_path / "still_open/1000.2", "ab"):
        assert aside.look() == {1000}
        assert aside.look() == set()
    with open(tmp_path / "still_open/1000.1", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 80 << 20)
    assert aside.look() == set()
    assert aside.is_empty()


def test_a_look_that_finds_no_descriptors_left_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = rm_still_open.StillOpen(str(tmp_path))
    (tmp_path / "still_open/1000.1").touch()

    def none_left(*_: Any, **__: Any) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", none_left)
        assert aside.look() == set()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", none_left)
        assert aside.look() == set()
    assert not aside.is_empty()


OPENS = "import os, sys\nwhile True: os.close(os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND))"
LOOKS = "import sys, rm_still_open\nfor _ in range(5000): rm_still_open.is_written_to(sys.argv[1])"


def test_who_opens_a_file_just_when_it_is_looked_at_does_not_end_the_agent(tmp_path: Path) -> None:
    file = tmp_path / "reports"
    file.touch()
    with subprocess.Popen([sys.executable, "-c", OPENS, file]) as opener:
        try:
            looked = subprocess.run([sys.executable, "-c", LOOKS, file], cwd=AGENTS, check=False)
        finally:
            opener.kill()
    assert looked.returncode == 0


def whole_log(agent: Agent, job: int = 1) -> tuple[bytes, dict[str, Any]]:
    """All that `logs` gives of rank 0 when it is read from its beginning to its end, and the last answer."""
    data, offset = b"", 0
    while True:
        reply = agent.call("logs", job=job, attempt=1, rank=0, stream="out", offset=offset, limit=1 << 18)
        data += base64.b64decode(reply["data"])
        if reply["offset"] == offset:
            return data, reply
        offset = reply["offset"]


def test_of_a_log_without_end_the_beginning_and_the_newest_part_are_kept(agent: Agent) -> None:
    script = SH + "echo the beginning; head -c 30000000 /dev/zero | tr '\\0' x; echo; echo the end\n"
    agent.launch(script, log_bytes=1 << 20)
    assert agent.event("exit", job=1)["code"] == 0
    data, last = whole_log(agent)
    assert data.startswith(b"the beginning\nxxxx")
    assert data.endswith(b"xxxx\nthe end\n")
    assert (last["size"], last["done"]) == (30_000_023, True)
    assert len(data) == last["kept_bytes"] <= 1 << 20
    (said,) = [line for line in data.splitlines() if b"not kept" in line]
    cut = int(said.split()[1])
    assert cut + len(data) == last["size"]
    assert 0 < (agent.state / "jobs/1.1/logs/0").stat().st_blocks * 512 <= 1 << 20


def test_a_task_may_open_its_own_standard_output_again(agent: Agent) -> None:
    agent.launch(SH + "echo one; echo two >/dev/stdout; echo three >/dev/stderr; cat /dev/fd/0")
    assert agent.event("exit", job=1)["code"] == 0
    assert agent.log() == "one\ntwo\nthree\n"


@root
def test_what_is_printed_never_takes_the_reserve_of_the_disk_and_belongs_to_the_user(start: Start) -> None:
    state = start().state
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m,mode=711", "none", state], check=True)
    try:
        agent = start()
        reserve = {"log_reserve_bytes": 1 << 40}  # of a small disk a tenth: 2 MiB
        agent.launch(SH + "echo begun; exec yes", job=1, **reserve)
        log = state / "jobs/1.1/logs/0"
        until(lambda: log.stat().st_size > 1 << 26, "64 MiB were printed")
        assert log.stat().st_uid == pwd.getpwnam(USER).pw_uid
        assert (state / "jobs/1.1/logs").stat().st_mode & 0o077 == 0
        assert log.stat().st_blocks * 512 < 4 << 20, "one log takes a share of the room that there is"
        agent.call("stop", job=1, attempt=1, grace_us=0, why="cancel")
        agent.event("exit", job=1, why="cancel")
        assert whole_log(agent)[0].startswith(b"begun\ny\ny\n")
        (state / "filler").write_bytes(bytes(os.statvfs(state).f_bavail * 4096 - (1 << 20)))
        agent.launch(SH + "echo quiet", job=2, **reserve)
        assert agent.event("exit", job=2)["code"] == 0
        assert agent.log(2) == "\n[rm: 6 bytes of output are not kept here: the disk is nearly full]\n"
    finally:
        subprocess.run(["umount", "-l", state], check=True)


@root
def test_a_log_says_what_a_full_disk_could_not_keep(start: Start) -> None:
    state = start().state
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m,mode=711", "none", state], check=True)
    try:
        agent = start()
        (gate := state / "gate").touch()
        agent.launch(SH + f"while [ -e {gate} ]; do sleep 0.02; done; echo ended", job=1)
        log = state / "jobs/1.1/logs/0"
        until(lambda: log.exists() and log.stat().st_blocks, "the log has room")
        fill_up(state / "filler")
        gate.unlink()
        until(lambda: b"not kept here" in log.read_bytes(), "the log tells of the line")
        (state / "filler").unlink()
        assert agent.event("exit", job=1)["code"] == 0
        assert agent.log() == "\n[rm: 6 bytes of output are not kept here: the disk is nearly full]\n"
    finally:
        subprocess.run(["umount", "-l", state], check=True)


@root
@pytest.mark.parametrize("for_root", [True, False])
def test_a_log_without_room_for_a_line_of_ours_is_refused(
    tmp_path: Path, for_root: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up between the other files of a launch and its log; `for_root`: it has kept some."""
    fallocate = rm_capture._fallocate

    def full(*given: int) -> int:
        if os.geteuid() == 0 and for_root:
            return int(fallocate(*given))
        ctypes.set_errno(errno.ENOSPC)
        return -1

    monkeypatch.setattr(rm_capture, "_fallocate", full)
    folder = rm_spool.Folder(str(tmp_path), 1, 1)
    (tmp_path / "logs").mkdir()
    user = rm_request.User(pwd.getpwnam(USER))
    if not for_root:
        with pytest.raises(OSError, match="No space"):
            rm_capture.Capture(folder, 0, user, 1 << 20, 0)
        return
    log = rm_capture.Capture(folder, 0, user, 1 << 20, 0)
    os.write(log.entrance, bytes(5_000))
    log.take()
    log.close()
    said = b"\n[rm: 5000 bytes of output are not kept here: No space left on device]\n"
    assert (tmp_path / "logs/0").read_bytes() == said


@root
def test_a_task_that_begins_on_a_full_disk_has_its_log_also_for_the_next_agent(start: Start) -> None:
    state = start().state
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m,mode=711", "none", state], check=True)
    try:
        agent = start()
        agent.launch(f"{SH}echo {'x' * 100}", hold=True)
        fill_up(state / "filler")
        assert agent.call("start", job=1, attempt=1, not_after_us=1 << 62)
        assert agent.event("exit", job=1)["code"] == 0
        assert "101 bytes of output are not kept here" in agent.log()
        (state / "filler").unlink()
        assert "101 bytes of output are not kept here" in start().log()
    finally:
        subprocess.run(["umount", "-l", state], check=True)


@pytest.mark.parametrize("left", [0, 3])
def test_a_log_is_not_whole_whose_end_was_not_on_the_disk_when_the_host_crashed(
    left: int, start: Start
) -> None:
    agent = start()
    agent.launch(f"{SH}echo whole")
    assert agent.event("exit", job=1)["log_bytes"] == 6
    assert "lacks_bytes" not in agent.call("logs", job=1, attempt=1, rank=0, offset=0, limit=100)
    agent.kill()
    folder = agent.state / "jobs/1.1"
    os.truncate(folder / "logs/0", left)
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "boot_id": "before the crash"}))
    part = start().call("logs", job=1, attempt=1, rank=0, offset=0, limit=100)
    assert (base64.b64decode(part["data"]), part["lacks_bytes"]) == (b"whole\n"[:left], 6 - left)


@root
@pytest.mark.parametrize("chdir", ["", "home"])
def test_what_goes_to_a_file_is_read_though_its_task_began_on_a_full_disk(start: Start, chdir: str) -> None:
    state = start().state
    home = state.with_suffix(".home")
    home.mkdir()
    home.chmod(0o777)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m,mode=711", "none", state], check=True)
    try:
        (home / "out").write_text("of another job\n")
        (home / "out").chmod(0o666)
        agent = start()
        where = {"chdir": str(home), "output": "out"} if chdir else {"output": f"{home}/out"}
        agent.launch(f"{SH}echo mine", hold=True, open_mode="append", **where)
        fill_up(state / "filler")
        assert agent.call("start", job=1, attempt=1, not_after_us=1 << 62)
        assert agent.event("exit", job=1)["code"] == 0
        with (home / "out").open("a") as file:
            file.write("of a third\n")
        assert agent.log() == "mine\n"
        assert start().log() == "mine\n"
    finally:
        subprocess.run(["umount", "-l", state], check=True)
        shutil.rmtree(home)


def test_a_torn_line_of_what_was_discarded_is_passed_over(agent: Agent, start: Start) -> None:
    """A full disk takes a piece of a line, and other lines come behind it."""
    agent.call("discard", job=1, attempt=1)
    with (agent.state / "discarded").open("ab") as file:
        file.write(b"2.1 179")
    agent.call("discard", job=3, attempt=1)
    with (agent.state / "discarded").open("ab") as file:
        file.write(b"4.1 1795.1 1795411648\n\xff\n5")
    for one in (agent, start()):
        codes = [one.launch(f"{SH}true", job=job, hold=True).get("code") for job in (1, 3)]
        assert codes == ["discarded", "discarded"]
    assert start().hello["newest_job"] == 3


def test_an_agent_starts_on_a_disk_that_takes_nothing(start: Start) -> None:
    """With discards to forget: it has to write their file anew."""
    state = start().state
    (state / "discarded").write_text("1.1 1000000000\n")
    (state / "discarded.new").mkdir()  # stands for a full disk
    assert start().hello["event"] == "hello"


def test_a_discard_that_a_full_disk_takes_a_piece_of_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = rm_spool.Spool(str(tmp_path))
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:3]))
        with pytest.raises(OSError, match="No space"):
            spool.mark_gone((12, 1))
    spool.mark_gone((13, 1))
    assert [spool.gone(12, 1), spool.gone(13, 1)] == [False, True]


def fill_up(path: Path) -> None:
    with open(path, "wb", 0) as file, pytest.raises(OSError, match="No space"):
        fill(file)


def fill(file: BinaryIO) -> None:
    while True:
        file.write(bytes(1024))
