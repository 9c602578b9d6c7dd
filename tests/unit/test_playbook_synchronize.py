"""`synchronize`: rsync over the SSH settings of the host, as Ansible runs it, and why where it cannot."""

from __future__ import annotations

import os
import stat
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.become import Passwords
from rm.adapters.playbook.control import Hands, carry_out, synchronize
from rm.adapters.playbook.control.synchronize import options
from rm.core.model.host import Host
from rm.playbook.model.problems import BadArgument
from tests.steps_request import step

HOST = Host("gpu01", "z", "10.0.0.1", 2222, "ada")
SSH = """#!/bin/sh
# an ssh that leads to this machine: the words before the host are kept
printf '%s\\n' "$@" > WORDS
while [ "$1" != 10.0.0.1 ]; do shift; done
shift
exec sh -c "$*"
"""
SUDO = """#!/bin/sh
[ "$1 $2" = "-n -u" ] || exit 9
shift 3
exec "$@"
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a tree to copy, and `ssh` and `sudo` that stay on this machine."""
    (tmp_path / "from").mkdir()
    (tmp_path / "from/one").write_text("1")
    (tmp_path / "from/two").write_text("2")
    (tmp_path / "bin").mkdir()
    for name, text in (("ssh", SSH.replace("WORDS", f"{tmp_path}/words")), ("sudo", SUDO)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path


def ask(tree: Path, check: bool = False, **given: Any) -> dict[str, Any]:
    """One step on HOST; `local`, `become`, `passwords` and `settings` are of the way there."""
    way = {name: given.pop(name) for name in ("local", "become", "passwords", "settings") if name in given}
    way.setdefault("settings", SshSettings(tree / "known hosts", (tree / "key",)))
    one = {**step(1, "synchronize", **given), "check": check}
    request = {"steps": [one], "check": check, "diff": False, "planned": {}}
    hands = Hands(HOST, request, lambda host, request: {}, lambda: None, (HOST,), threading.Event(), **way)
    answer: dict[str, Any] = carry_out(hands)["results"][0]
    return answer


def words(tree: Path) -> list[str]:
    return (tree / "words").read_text().splitlines()


def test_a_tree_goes_there_once_and_what_is_no_more_goes_away(tree: Path) -> None:
    given = {"src": f"{tree}/from/", "dest": f"{tree}/to"}
    assert ask(tree, check=True, **given)["changed"]
    assert not (tree / "to").exists()
    first = ask(tree, **given)
    assert (first["changed"], first["rc"]) == (True, 0)
    assert [line.split()[-1] for line in first["stdout_lines"]][-3:] == ["./", "one", "two"]
    assert not ask(tree, **given)["changed"]
    (tree / "from/one").unlink()
    gone = ask(tree, delete=True, **given)
    assert (gone["changed"], sorted(os.listdir(tree / "to"))) == (True, ["two"])


def test_it_goes_over_the_ssh_settings_of_the_host(tree: Path) -> None:
    (tree / "key").touch(0o600)
    ask(tree, src=f"{tree}/from/one", dest=f"{tree}/to")
    said = words(tree)
    assert said[said.index("-F") + 1] == "none"
    assert said[said.index("-i") + 1] == f"{tree}/key"
    for option in (
        "BatchMode=yes", "StrictHostKeyChecking=yes", f'UserKnownHostsFile="{tree}/known hosts"', "Port=2222",
        "GlobalKnownHostsFile=/dev/null", "IdentitiesOnly=yes",
    ):  # fmt: skip
        assert option in said
    assert said[said.index("-l") + 1] == "ada"
    ask(
        tree, src=f"{tree}/from/one", dest=f"{tree}/to", dest_port=22, private_key="/k", set_remote_user=False
    )
    said = words(tree)
    assert ("Port=22" in said, said[said.index("-i") + 1], "-l" in said) == (True, "/k", False)


def test_a_tree_comes_back_as_another_user_there(tree: Path) -> None:
    pulled = ask(tree, src=f"{tree}/from/", dest=f"{tree}/back/", mode="pull", become=True)
    assert pulled["changed"], pulled
    assert sorted(os.listdir(tree / "back")) == ["one", "two"]
    assert "sudo -n -u root rsync" in pulled["cmd"]


def test_on_this_machine_nothing_goes_over_ssh(tree: Path) -> None:
    assert ask(tree, src=f"{tree}/from/one", dest=f"{tree}/copy", local=True)["changed"]
    assert (tree / "copy").read_text() == "1"
    assert not (tree / "words").exists()


def test_a_name_that_begins_as_an_option_is_a_name(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    odd = f"--rsh=touch {tree}/harm;"
    Path(odd).parent.mkdir(parents=True)
    answer = ask(tree, local=True, src=f"{tree}/from/one", dest=odd)
    assert answer["rc"] == 0, answer
    assert Path(odd).read_text() == "1"
    assert not (tree / "harm").exists()


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ({"become": True, "passwords": Passwords(become="x")}, "sudo asks for a password here"),
        ({"passwords": Passwords(login="x")}, "use a key"),
    ],
)
def test_passwords_are_refused(tree: Path, way: dict[str, Any], said: str) -> None:
    answer = ask(tree, src=f"{tree}/from/", dest="/x", **way)
    assert answer["failed"]
    assert said in answer["msg"]


def test_where_rsync_is_not_there_it_says_on_which_machine(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = ask(tree, src=f"{tree}/from/", dest="/x", rsync_path="/nowhere/rsync")
    assert answer["failed"]
    assert "rsync is not installed on host gpu01" in answer["msg"] or "not found" in answer["msg"]
    assert ask(tree, src=f"{tree}/none", dest=f"{tree}/x")["rc"] == 23
    monkeypatch.setenv("PATH", str(tree / "bin"))
    answer = ask(tree, src=f"{tree}/from/", dest="/x")
    assert answer["msg"].startswith("rsync is not installed on this machine")


def test_arguments_are_rsyncs_options_as_in_ansible() -> None:
    def of(**given: Any) -> list[str]:
        return options(step(1, "synchronize", src="/a", dest="/b", **given)["args"], False)

    usual = ["--delay-updates", "-F", "--compress", "--archive"]
    assert of() == usual
    assert of(recursive=False, owner=False) == [*usual, "--no-recursive", "--no-owner"]
    assert of(archive=False, times=True, delay_updates=False, compress=False) == ["--times"]
    assert of(checksum=True, copy_links=True, existing_only=True, rsync_timeout=9) == [
        "--delay-updates", "-F", "--compress", "--timeout=9", "--existing", "--checksum", "--copy-links",
        "--archive",
    ]  # fmt: skip
    assert of(link_dest=["/old"])[-3:] == ["-H", "-vv", "--link-dest=/old"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"src": "other:/a", "dest": "/b"}, "between the control machine and the host"),
        ({"src": "/a", "dest": "rsync://other/b"}, "between the control machine and the host"),
        ({"src": "/a", "dest": "/b", "rsync_opts": [""]}, "an empty text"),
    ],
)
def test_what_rm_does_not_do_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadArgument, match=said):
        step(1, "synchronize", **given)


def test_a_private_file_stays_private(tree: Path) -> None:
    (tree / "from/one").chmod(0o600)
    ask(tree, src=f"{tree}/from/one", dest=f"{tree}/to")
    assert stat.S_IMODE((tree / "to").stat().st_mode) == 0o600


def test_what_a_host_says_without_end_takes_no_memory(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host in whose rsync's place a flood runs filled the memory of the control machine."""
    (tree / "rsync").write_text("#!/bin/sh\nhead -c 30000000 /dev/zero >&2\necho the last >&2\nexit 9\n")
    (tree / "rsync").chmod(0o755)
    tracemalloc.start()
    try:
        answer = ask(tree, src=f"{tree}/from/", dest="/x", rsync_path=f"{tree}/rsync")
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
    assert answer["failed"]
    assert "the last" in answer["msg"]
    monkeypatch.setattr(synchronize, "OUT_BYTES", 1000)
    for number in range(100):
        (tree / f"from/{number}").write_text("x")
    answer = ask(tree, src=f"{tree}/from/", dest=f"{tree}/to")
    assert "Synchronize the tree in parts" in answer["msg"]
