"""limits.conf as pam_limits(8) reads it."""

from __future__ import annotations

import grp
import os
import pwd
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent_process import AGENTS

sys.path.insert(0, str(AGENTS))
import rm_fence
import rm_fence_limits
from rm_fence_limits import UNLIMITED, lines, of_login

sys.path.remove(str(AGENTS))

Limits = Callable[..., dict[str, int]]
ME = pwd.getpwnam("daemon")
GROUP = grp.getgrgid(ME.pw_gid).gr_name


@pytest.fixture
def limits(tmp_path: Path) -> Limits:
    """`limits(conf)`: what a user gets by such a limits.conf."""

    def of(
        conf: str, user: str = "daemon", uid: int = 1001, gids: tuple[int, ...] = (ME.pw_gid,)
    ) -> dict[str, int]:
        (tmp_path / "limits.conf").write_text(conf)
        found = of_login(lines(str(tmp_path / "limits.conf"), "/none"), user, uid, list(gids))
        return {f"{item} {kind}": value for (item, kind), value in found.items()}

    return of


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("* soft nofile 4096", {"nofile soft": 4096}),
        ("* - memlock unlimited", {"memlock soft": UNLIMITED, "memlock hard": UNLIMITED}),
        ("daemon hard core 0  # none", {"core hard": 0}),
        ("* hard stack 8192", {"stack hard": 8192 << 10}),
        ("* hard cpu 10", {"cpu hard": 600}),
        ("* - nice -5", {"nice soft": 25, "nice hard": 25}),
        (f"@{GROUP} soft nproc 7", {"nproc soft": 7}),
        ("@nobody-is-in-this soft nproc 7", {}),
        ("1000: soft nproc 7", {"nproc soft": 7}),
        ("1002: soft nproc 7", {}),
        (":1001 soft nproc 7", {"nproc soft": 7}),
        (":1002 soft nproc 7", {}),
        (f"@{ME.pw_gid}:{ME.pw_gid} soft nproc 7", {"nproc soft": 7}),
        ("other soft nproc 7", {}),
        ("# * soft nproc 7", {}),
        ("* soft nproc", {}),
        ("* soft nproc many", {}),
        ("* soft nproc -7", {}),
        ("* medium nproc 7", {}),
        ("* soft maxlogins 7", {}),
    ],
)
def test_one_line(limits: Limits, line: str, wanted: dict[str, int]) -> None:
    assert limits(line) == wanted


def test_the_closest_line_wins_and_of_equals_the_last(limits: Limits) -> None:
    conf = f"daemon soft nproc 3\n@{GROUP} soft nproc 2\n* soft nproc 1\n* soft nofile 5\n* soft nofile 6\n"
    assert limits(conf) == {"nproc soft": 3, "nofile soft": 6}


def test_one_dash_lifts_everything(limits: Limits) -> None:
    assert set(limits("* soft nproc 1\ndaemon -").values()) == {UNLIMITED}


def test_wildcards_and_groups_do_not_bind_root(limits: Limits) -> None:
    assert limits("* soft nproc 1\n@root soft nproc 2\nroot hard nofile 9", "root", 0, (0,)) == {
        "nofile hard": 9
    }


def test_files_are_read_in_order(tmp_path: Path) -> None:
    conf, folder = tmp_path / "limits.conf", tmp_path / "limits.d"
    folder.mkdir()
    conf.write_text("# of this host\n\n  first  # word\n")
    (folder / "20-b.conf").write_text("third")
    (folder / "10-a.conf").write_text("second")
    (folder / "README").write_text("no limits")
    assert lines(str(conf), str(folder)) == [["first"], ["second"], ["third"]]
    assert lines(str(tmp_path / "none"), str(tmp_path / "none.d")) == []


def test_no_soft_limit_lies_above_its_hard_one() -> None:
    pid = os.fork()
    if pid == 0:
        import resource

        refused = rm_fence_limits.impose(
            {("nofile", "hard"): 100, ("core", "hard"): 0}, [["stack", 65536, 65536]]
        )
        good = [
            resource.getrlimit(n)
            for n in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_STACK)
        ]
        os._exit(0 if (refused, good) == ([], [(100, 100), (0, 0), (65536, 65536)]) else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_processor_that_is_gone_is_told_beside_limits_that_can_be_set() -> None:
    pid = os.fork()
    if pid == 0:
        fence = rm_fence.Fence(rm_fence.checked_settings({"limits": [["stack", 65536, 65536]]}))
        fence.cores = [1 << 20]  # more than any machine has
        os._exit(0 if fence.bind_task() == ["processors"] else 1)
    assert os.waitpid(pid, 0)[1] == 0
