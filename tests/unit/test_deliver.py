"""Delivery of logs into users' directories: as the user only, under rm.toml's names only, never held up."""

from __future__ import annotations

import ctypes
import os
import pwd
import queue
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.store.log_directory import LogDirectory
from rm.daemon.execution.deliver import PROGRAM, Deliverer, Delivery
from rm.daemon.execution.deliver_as_user import configured_pattern, named_by
from tests.fakes import PATIENCE_S

OWNER, OTHER = "nobody", "daemon"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it becomes other users")


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (
            "rm-%j.out",
            ["rm-7.out", "rm-7.0.out", "rm-7_3.1.out"],
            ["rm-x.out", "rm-7.outs", "xrm-7.out"],
        ),
        ("%j", ["7", "7_3", "7.0"], ["authorized_keys", "", "7_"]),
        ("%A_%a.x", ["7_3.x", "7_%a.x", "7_3.0.x"], ["7_x.x", "7.x"]),
        ("%x.log", ["train.log", "a b.3.log"], [".bashrc", ".log", "train", "a/b.log"]),
        ("%x", ["anything"], [".profile", "../up", "a/b"]),
        ("100%%-%4t", ["100%-0003"], ["100-3", "100x-3"]),
        ("a.b+c", ["a.b+c"], ["aXb+c", "a.bbc"]),
        ("", [], ["", ".", "..", "x"]),
    ],
)
def test_only_names_that_the_pattern_makes(pattern: str, good: list[str], bad: list[str]) -> None:
    assert [name for name in good if not named_by(pattern, name)] == []
    assert [name for name in bad if named_by(pattern, name)] == []


def test_the_helper_reads_the_pattern_from_rm_toml(tmp_path: Path) -> None:
    file = tmp_path / "rm.toml"
    assert configured_pattern(str(file)) == "rm-%j.out"
    file.write_text('[jobs]\ndeliver = "%x.log"\n')
    assert configured_pattern(str(file)) == "%x.log"
    file.write_text('[daemon]\nlog_level = "info"\n')
    assert configured_pattern(str(file)) == "rm-%j.out"


@pytest.fixture
def homes() -> Iterator[Callable[[str], Path]]:
    """Makes directories that nobody but the user may write to."""
    with tempfile.TemporaryDirectory(prefix="rm-homes-") as top:
        os.chmod(top, 0o755)

        def home(user: str) -> Path:
            place = Path(tempfile.mkdtemp(dir=top))
            account = pwd.getpwnam(user)
            os.chown(place, account.pw_uid, account.pw_gid)
            return place

        yield home


class Outcomes:
    """Delivers one log for a user, and waits for what comes of it."""

    def __init__(self, log: Path, **options: Any) -> None:
        self.log, self.logs = log, LogDirectory(log.parent.parent)
        self.deliverer = Deliverer(self.logs, "rm-%j.out", **options)
        self.said: queue.Queue[tuple[str, str]] = queue.Queue()

    def begin(self, user: str, place: Path, name: str = "rm-1.out", attempt: int = 1, **more: Any) -> None:
        delivery = Delivery(user, str(place), ((0, name),), **more)
        self.deliverer.submit(delivery, 1, attempt, lambda why: self.said.put((user, why)))

    def of(self, user: str, place: Path, name: str = "rm-1.out", **attempts: Any) -> str:
        self.begin(user, place, name, **attempts)
        return self.said.get(timeout=PATIENCE_S)[1]


@pytest.fixture
def outcomes(tmp_path: Path) -> Outcomes:
    folder = tmp_path / "1.1"
    folder.mkdir()
    for rank in range(5):
        (folder / f"{rank}.out").write_text("said\n")
    return Outcomes(folder / "0.out")


@as_root
def test_a_log_is_written_as_its_user(outcomes: Outcomes, homes: Callable[[str], Path]) -> None:
    home = homes(OWNER)
    precious = home.parent / "precious"
    precious.write_text("precious")
    (home / "rm-1.out").symlink_to(precious)
    assert outcomes.of(OWNER, home) == ""
    assert (home / "rm-1.out").read_text() == "said\n"
    assert not (home / "rm-1.out").is_symlink()
    assert (home / "rm-1.out").stat().st_uid == pwd.getpwnam(OWNER).pw_uid
    assert precious.read_text() == "precious"
    refused = outcomes.of(OTHER, home)
    assert refused.startswith(f"the output was not delivered to {home}: Permission denied")
    assert [p.name for p in home.iterdir()] == ["rm-1.out"]
    assert "no user nosuchuser" in outcomes.of("nosuchuser", home)


@as_root
def test_a_log_has_the_mode_that_its_users_umask_gives(
    outcomes: Outcomes, homes: Callable[[str], Path]
) -> None:
    for umask, mode in ((0o077, 0o600), (0o022, 0o644), (0o002, 0o664)):
        home = homes(OWNER)
        assert outcomes.of(OWNER, home, umask=umask) == ""
        assert (home / "rm-1.out").stat().st_mode & 0o777 == mode


@as_root
def test_a_requeued_jobs_file_has_all_attempts_unless_it_is_truncated(
    outcomes: Outcomes, homes: Callable[[str], Path]
) -> None:
    home, top = homes(OWNER), outcomes.log.parent.parent
    for attempt in (3, 60):  # those between printed nothing
        (top / f"1.{attempt}").mkdir()
        (top / f"1.{attempt}" / "0.out").write_text(f"attempt {attempt}\n")
    assert outcomes.of(OWNER, home, attempt=3, whole=True) == ""
    assert (home / "rm-1.out").read_text() == "said\nattempt 3\n"
    assert outcomes.of(OWNER, home, attempt=3) == ""
    assert (home / "rm-1.out").read_text() == "attempt 3\n"
    assert outcomes.of(OWNER, home, attempt=60, whole=True) == ""
    assert (home / "rm-1.out").read_text() == "attempt 60\n"  # of the newest 50 attempts
    assert os.listdir(home) == ["rm-1.out"]


@as_root
def test_many_that_wait_are_written_together_and_told_apart(
    outcomes: Outcomes, homes: Callable[[str], Path]
) -> None:
    home, hers = homes(OWNER), homes(OTHER)
    wanted = {f"rm-{number}.out" for number in range(120)}
    for name in wanted:
        outcomes.begin(OWNER, home, name)
    outcomes.begin(OWNER, home, "authorized_keys")  # one that cannot be written is no other's harm
    outcomes.begin(OWNER, hers)
    said = [outcomes.said.get(timeout=PATIENCE_S)[1] for _ in range(122)]
    assert said[:120] == [""] * 120
    assert "is not a name that" in said[120]
    assert "Permission denied" in said[121]
    assert {path.name for path in home.iterdir()} == wanted
    assert not list(hers.iterdir())


@as_root
def test_large_logs_are_written_in_shares(
    outcomes: Outcomes, homes: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each share has its own time: many large logs are no directory that hangs."""
    asked: list[int] = []
    ask = Deliverer._ask

    def count(self: Deliverer, delivery: Delivery, found: Any) -> list[str]:
        asked.append(len(found))
        return ask(self, delivery, found)

    monkeypatch.setattr(Deliverer, "_ask", count)
    monkeypatch.setattr("rm.daemon.execution.deliver.SHARE_BYTES", 2 * len("said\n"))
    home = homes(OWNER)
    logs = Delivery(OWNER, str(home), tuple((rank, f"rm-1.{rank}.out") for rank in range(5)))
    outcomes.deliverer.submit(logs, 1, 1, lambda why: outcomes.said.put((OWNER, why)))
    assert outcomes.said.get(timeout=PATIENCE_S) == (OWNER, "")
    assert asked == [2, 2, 1]
    assert len(list(home.iterdir())) == 5


@as_root
def test_nothing_is_ever_written_as_root(outcomes: Outcomes, homes: Callable[[str], Path]) -> None:
    home = homes("root")
    assert "root's output is never delivered" in outcomes.of("root", home)
    assert not list(home.iterdir())


@as_root
def test_a_request_cannot_choose_another_kind_of_file(
    outcomes: Outcomes, homes: Callable[[str], Path]
) -> None:
    home = homes(OWNER)
    for name in ("authorized_keys", ".bashrc", "../rm-1.out", "rm-1.out/../x"):
        assert "is not a name that jobs.deliver" in outcomes.of(OWNER, home, name)
    assert not list(home.iterdir())


@as_root
def test_only_files_are_written_and_no_more_than_they_hold(
    outcomes: Outcomes, homes: Callable[[str], Path]
) -> None:
    """What never ends would fill the user's disk."""
    home = homes(OWNER)
    outcomes.log.unlink()
    outcomes.log.symlink_to("/dev/zero")
    assert "what is to be written is not a file" in outcomes.of(OWNER, home)
    assert not list(home.iterdir())


@as_root
def test_the_helper_answers_whatever_is_sent() -> None:
    nameless = b'{"user": "nobody", "directory": "/", "names": ["rm-1.out"]}'  # without its file
    counted = b'{"user": "nobody", "directory": "/", "names": ["rm-1.out"], "logs": [0]}'
    for text in (
        b"", b"[", b"[]", b'{"user": 1, "directory": [], "names": ["rm-1.out"]}', b"\xff", nameless, counted
    ):  # fmt: skip
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            program = [sys.executable, "-I", "-S", PROGRAM, "rm-%j.out"]
            child = subprocess.Popen(program, stdin=theirs, stderr=subprocess.PIPE)
            theirs.close()
            ours.sendall(text) if text else ours.shutdown(socket.SHUT_WR)
            answer = ours.recv(4096).decode()
            assert child.communicate(timeout=PATIENCE_S)[1] == b""
            assert "cannot be understood" in answer


@as_root
def test_a_daemon_without_root_says_that_its_helper_is_missing(
    outcomes: Outcomes, homes: Callable[[str], Path]
) -> None:
    mine, home = homes(OWNER), homes(OTHER)
    outcomes.deliverer = Deliverer(LogDirectory(mine), "rm-%j.out", helper=str(mine / "none.sock"))
    (mine / "1.1").mkdir()
    (mine / "1.1/0.out").touch()
    os.seteuid(pwd.getpwnam(OWNER).pw_uid)
    try:
        why = outcomes.of(OTHER, home)
    finally:
        os.seteuid(0)
    assert "its helper rm-deliver.socket cannot be used (No such file or directory)" in why


@pytest.fixture
def hung(homes: Callable[[str], Path]) -> Iterator[Path]:
    """A directory of a file system whose server never answers: whoever enters it waits."""
    libc = ctypes.CDLL(None, use_errno=True)
    place = homes(OWNER)
    try:
        fd = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"needs FUSE: {error}")
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"fuse", bytes(place), b"fuse", 0, options):
        os.close(fd)
        pytest.skip(f"needs FUSE: {os.strerror(ctypes.get_errno())}")
    try:
        yield place
    finally:
        libc.umount2(bytes(place), 2)
        os.close(fd)


@as_root
def test_a_directory_that_hangs_costs_only_its_user_time(
    outcomes: Outcomes, homes: Callable[[str], Path], hung: Path
) -> None:
    outcomes.deliverer = Deliverer(outcomes.logs, "rm-%j.out", patience_s=4 * PATIENCE_S)
    for _ in range(20):
        outcomes.begin(OWNER, hung)
    home = homes(OTHER)
    outcomes.begin(OTHER, home)
    # the first that is heard of is the other user's, while all twenty wait
    assert outcomes.said.get(timeout=PATIENCE_S) == (OTHER, "")
    assert (home / "rm-1.out").read_text() == "said\n"
    outcomes.deliverer.close()

    patient = Deliverer(outcomes.logs, "rm-%j.out", patience_s=0.1)
    outcomes.deliverer = patient
    assert "the directory did not answer for 0.1 s" in outcomes.of(OWNER, hung)
    assert "did not answer a short while ago" in outcomes.of(OWNER, hung)
