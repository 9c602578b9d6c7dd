"""The lab's beginning and end: side by side, interrupted, failed, killed, without root; nothing stays."""

from __future__ import annotations

import getpass
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import yaml

from rm.errors import Conflict, NotFound, RmError, UsageError
from rm.lab import Degrade, Lab, LabSpec, load, up
from tests.cluster import until

pytestmark = pytest.mark.lab
MakeLab = Callable[..., Lab]
ROOT = Path(__file__).parents[2]
TRIES = 5


def ssh(lab: Lab, host: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        lab.ssh_command(host, words),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


def traces(directory: Path, inside: Sequence[str] = ()) -> list[str]:
    """Processes that hold a file of the directory, and mounts below it that `inside` sees."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link).startswith(f"{directory}/"):
                found.append(str(link))
        except OSError:  # it ended meanwhile
            continue
    argv = [*inside, "cat", "/proc/self/mounts"]
    mounts = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    return found + [line for line in mounts if str(directory) in line]


def left_nothing(directory: Path, inside: Sequence[str] = ()) -> None:
    """A process that is ending closes its files one after the other: the last may be seen a moment longer."""
    until(lambda: not traces(directory, inside), f"nothing of {directory} is left")


def spaces(lab: Lab) -> set[str]:
    """The network namespaces of a lab's hosts."""
    return {os.readlink(f"/proc/{status.init}/ns/net") for status in lab.statuses() if status.init}


def users(of: set[str]) -> dict[tuple[str, str], str]:
    """Which of these network namespaces a process is in, by its number and when it was started.

    The kernel gives the number of a namespace that is gone to the next one, which may be another lab's.
    """
    found = {}
    for link in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            space, status = os.readlink(link), (link.parents[1] / "stat").read_text()
        except OSError:  # it ended meanwhile
            continue
        if space in of:
            found[link.parts[2], status.rpartition(")")[2].split()[19]] = space
    return found


def test_two_labs_stand_side_by_side_and_leave_nothing(make_lab: MakeLab, tmp_path: Path) -> None:
    first, second = make_lab(zones=2, hosts=2), make_lab(zones=1, hosts=2)
    assert {h.address for h in first.hosts}.isdisjoint(h.address for h in second.hosts)
    state = json.loads((first.directory / "lab.json").read_text())
    assert Path("/sys/class/net", state["control"]).exists()
    assert traces(first.directory)
    gone = spaces(first)
    assert len(gone) == 2
    inside = users(gone)
    assert {*inside.values()} == gone
    first.down()
    first.down()
    assert not first.directory.exists()
    left_nothing(first.directory)
    until(lambda: inside.keys().isdisjoint(users(gone)), "nobody is in its networks")
    assert not Path("/sys/class/net", state["control"]).exists()
    assert not (state["cgroup"] and Path(state["cgroup"]).exists())
    assert "rm_lab" not in subprocess.run(["nft", "list", "tables"], capture_output=True, text=True).stdout
    with pytest.raises(NotFound, match="No lab is up"):
        load(first.directory)
    assert ssh(load(second.directory), "z1h2", "hostname").stdout == "z1h2\n"
    with pytest.raises(Conflict, match=r"up in .* already"):
        up(LabSpec(zones=1, hosts=1), second.directory)


def test_a_lab_runs_nothing_that_lies_where_it_is_made(
    make_lab: MakeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In /tmp, say, where everybody may put a package rm for root to run."""
    for package in ("rm", "rm/lab"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    lab = make_lab(zones=1, hosts=1)
    assert lab.statuses()
    assert not (tmp_path / "run").exists()


def test_a_lab_whose_keeper_was_killed_is_cleared_by_the_next(make_lab: MakeLab, tmp_path: Path) -> None:
    lab = make_lab(zones=1, hosts=1)
    keeper = json.loads((lab.directory / "lab.json").read_text())["keeper"]
    handle = os.pidfd_open(keeper)
    os.kill(keeper, signal.SIGKILL)
    select.select([handle], [], [])
    os.close(handle)
    with pytest.raises(NotFound, match="No lab is up"):
        load(lab.directory)
    again = up(LabSpec(zones=1, hosts=1), lab.directory)
    assert ssh(again, "z1h1", "hostname").stdout == "z1h1\n"


def test_a_lab_that_cannot_be_made_leaves_nothing(make_lab: MakeLab, tmp_path: Path) -> None:
    place = tmp_path / "place"
    with pytest.raises(RmError, match="z1h1 did not come up"):
        up(LabSpec(zones=1, hosts=3, congestion_control="nosuch"), place)
    assert not place.exists()
    left_nothing(place)


def test_interrupted_up_leaves_nothing(make_lab: MakeLab, tmp_path: Path) -> None:
    place = tmp_path / "place"
    argv = [sys.executable, "-c", "import sys; from rm.cli.start import main; sys.exit(main())"]
    argv += ["lab", "--dir", str(place), "up", "--zones", "2", "--hosts", "40"]
    for _ in range(TRIES):
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if "starting" in line:
                    break
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
        if process.returncode != 0:
            break
        load(place).down()  # it was up before the signal reached it
    assert process.returncode == 130, rest
    assert not place.exists()
    left_nothing(place)


@pytest.mark.parametrize(
    "spec",
    [
        {"zones": 3, "hosts": 2},
        {"zones": 0, "hosts": 2},
        {"degrade": {"z7h1": Degrade(loss_pct=1)}},
        {"zone_loss_pct": 100},
        {"zones": 1, "leaves": 2},
        {"zones": 2, "leaves": 2, "spines": 1},
        {"zones": 1, "leaves": 5, "spines": 1},
    ],
)
def test_an_impossible_lab_is_refused_in_a_sentence(spec: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="cannot be built"):
        LabSpec(**spec)  # type: ignore[arg-type]


# --- without root ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unprivileged:
    """A user who is not root: what to put before a command to run it so, and a Python that can import rm.

    `etc` is his own view of /etc, or None where the tests themselves do not run as root.
    """

    name: str
    become: list[str]
    python: str
    environment: dict[str, str]
    etc: Path | None = None

    def lab(self, *words: str, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """`rmx lab WORDS…`, called by `before`."""
        program = "import sys; from rm.cli.start import main; sys.exit(main())"
        return subprocess.run(
            [*self.become, *before, self.python, "-c", program, "lab", *words],
            env=self.environment,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )


@contextmanager
def own_view(room: Path) -> Iterator[list[str]]:
    """A mount namespace in which /etc is the copy `room`/etc; what to put before a command that runs in it.

    So a user can be made whom no other test on this machine sees.
    """
    mount = f"mount --bind {room}/etc /etc && echo made && exec cat"
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"made\n"
        yield ["nsenter", "--mount", f"--target={holder.pid}", "--"]
        holder.stdin.close()  # it ends


@pytest.fixture
def unprivileged() -> Iterator[Unprivileged]:
    if os.geteuid() != 0:
        yield Unprivileged(getpass.getuser(), [], sys.executable, {**os.environ})
        return
    if not all(map(shutil.which, ("useradd", "newuidmap", "runuser", "unshare", "nsenter"))):
        pytest.skip("needs the packages passwd, uidmap and util-linux")
    name = "rmlab"
    # not below pytest's own directory, which other users cannot enter
    with tempfile.TemporaryDirectory(prefix="rm-unprivileged-") as directory:
        room = Path(directory)
        room.chmod(0o755)
        # a copy, because a checkout or a virtual environment below /root is closed to others
        for package in (ROOT / "rm", Path(click.__file__).parent, Path(yaml.__file__).parent):
            shutil.copytree(package, room / package.name)
        subprocess.run(["chmod", "-R", "a+rX", room], check=True)
        subprocess.run(["cp", "-a", "/etc", room], check=True)
        with own_view(room) as inside:
            add = [
                *inside,
                "useradd",
                "--create-home",
                "--home-dir",
                room / "home",
                "--shell",
                "/bin/sh",
                name,
            ]
            subprocess.run(add, check=True)
            become = [*inside, "runuser", "-u", name, "--"]
            new_enough = ["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
            pythons = (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")
            fits = (
                p
                for p in pythons
                if not subprocess.run([*become, p, *new_enough], stderr=subprocess.DEVNULL).returncode
            )
            if (python := next(fits, None)) is None:
                pytest.skip("no Python 3.11 that another user may run")
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": str(room / "home"),
                "PYTHONPATH": str(room),
                "LANG": "C.UTF-8",
            }
            yield Unprivileged(name, become, python, environment, room / "etc")


@pytest.mark.parametrize("ids", ["many", "one"])
def test_a_lab_without_root(unprivileged: Unprivileged, ids: str) -> None:
    rmx = unprivileged.lab
    if ids == "one":
        if unprivileged.etc is None:
            pytest.skip("only root can make a user without subordinate ids")
        for file in (unprivileged.etc / "subuid", unprivileged.etc / "subgid"):
            lines = file.read_text().splitlines(keepends=True)
            file.write_text("".join(line for line in lines if not line.startswith(f"{unprivileged.name}:")))
    done = rmx("up", "--zones", "2", "--hosts", "3", "--json")
    if "refuses the lab its namespaces" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    try:
        made = json.loads(done.stdout)
        assert made["mode"] == {"many": "users", "one": "user"}[ids]
        for host in ("z1h1", "z2h1"):
            assert rmx("ssh", host, "hostname; whoami").stdout.split() == [host, "root"]
        writes = "mkdir /opt/rm-x /var/lib/rm-x && touch /usr/local/bin/x /etc/x /root/x"
        assert rmx("ssh", "z1h1", writes).returncode == 0
        if ids == "many":
            assert rmx("ssh", "z1h1", "useradd -m rmjob && su rmjob -c 'id -un'").stdout == "rmjob\n"
        before = {host["name"]: host["boot_id"] for host in made["hosts"]}
        assert rmx("crash", "z1h2").returncode == 0
        assert rmx("boot", "z1h2").returncode == 0
        rebooted = rmx("ssh", "z1h2", "cat /proc/sys/kernel/random/boot_id").stdout.strip()
        assert rebooted not in ("", before["z1h2"])
    finally:
        assert rmx("down").returncode == 0
    assert not Path(made["directory"]).exists()
    left_nothing(Path(made["directory"]), unprivileged.become)


def test_a_system_that_refuses_user_namespaces_is_told_as_such(
    unprivileged: Unprivileged,
) -> None:
    """The limit is set in a user namespace of its own, so that it holds for nobody else."""
    limit = "/proc/sys/user/max_user_namespaces"
    before = Path(limit).read_text()
    apart = ["unshare", "--user", "--map-current-user", "--keep-caps"]
    shell = ["sh", "-c", f'echo 0 > {limit} && exec "$@"', "sh"]
    if subprocess.run([*unprivileged.become, *apart, *shell, "true"], capture_output=True).returncode != 0:
        pytest.skip("this system lets users make no user namespace to try it in")
    directory = f"/dev/shm/rm-lab-refused-{os.getpid()}"
    done = unprivileged.lab("--dir", directory, "up", "--hosts", "2", before=[*apart, *shell])
    assert done.returncode == 2
    sentence = done.stderr.splitlines()[-1]
    assert "refuses the lab its namespaces" in sentence
    assert "Run it as root, or let an administrator set `sysctl user.max_user_namespaces=" in sentence
    assert "Traceback" not in done.stderr
    assert not Path(directory).exists()
    assert Path(limit).read_text() == before
