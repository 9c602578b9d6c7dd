"""known_hosts as text: what is about a host, what is revoked, and what pinning a key changes."""

from __future__ import annotations

import os
import pwd
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from rm.adapters.hosts.known_hosts import AUTHORITY, REVOKED, about, with_key
from rm.adapters.hosts.pinning import changed
from rm.errors import ConfigError

TEXT = """\
# a comment

10.0.0.1,gpu01 ssh-ed25519 AAA comment
[10.0.0.1]:2222 ssh-ed25519 BBB
10.0.1.* ssh-ed25519 CCC
*.example.org,!bad.example.org ssh-ed25519 DDD
@revoked * ssh-ed25519 EEE
@cert-authority *.example.org ssh-ed25519 FFF
broken
@revoked
|1|broken ssh-ed25519 GGG
"""


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("10.0.0.1", ["AAA", "EEE"]),
        ("GPU01", ["AAA", "EEE"]),
        ("[10.0.0.1]:2222", ["BBB", "EEE"]),
        ("10.0.1.77", ["CCC", "EEE"]),
        ("10.0.10.1", ["EEE"]),
        ("good.example.org", ["DDD", "EEE", "FFF"]),
        ("bad.example.org", ["EEE", "FFF"]),
    ],
)
def test_a_host_is_found_by_name_pattern_and_exception(name: str, keys: list[str]) -> None:
    found = about(TEXT, [name])
    assert [line.key for line in found] == keys
    assert {line.key: line.marker for line in found if line.marker} == {
        key: marker for key, marker in (("EEE", REVOKED), ("FFF", AUTHORITY)) if key in keys
    }


def test_a_hashed_name_is_found(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    kind, key = (tmp_path / "key.pub").read_text().split()[:2]
    file.write_text(f"10.0.0.9 {kind} {key}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    assert "10.0.0.9" not in file.read_text()
    assert [line.key for line in about(file.read_text(), ["10.0.0.9"])] == [key]
    assert about(file.read_text(), ["10.0.0.8"]) == []
    kept = with_key(file.read_text().splitlines(), "10.0.0.9", kind, "NEW")
    assert kept == [f"10.0.0.9 {kind} NEW"]


def test_pinning_leaves_the_host_one_key_and_all_else_as_it_was() -> None:
    lines = TEXT.splitlines()
    for name in ("10.0.0.1", "10.0.1.77", "good.example.org", "new"):
        after = "\n".join(with_key(lines, name, "ssh-ed25519", "NEW"))
        accepted = [line.key for line in about(after, [name]) if not line.marker]
        assert accepted == ["NEW"]
        assert [line.key for line in about(after, [name]) if line.marker == REVOKED] == ["EEE"]
        for other in ("gpu01", "10.0.1.78", "other.example.org", "[10.0.0.1]:2222"):
            assert about(after, [other])[0].key == about(TEXT, [other])[0].key
        assert "# a comment" in after


def test_what_is_pinned_is_there_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "known_hosts"
    for line in ("a ssh-ed25519 AAA", "b ssh-ed25519 BBB"):
        with changed(file) as lines:
            lines.append(line)
    assert file.read_text() == "a ssh-ed25519 AAA\nb ssh-ed25519 BBB\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert not file.with_name("known_hosts.new").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
@pytest.mark.parametrize("put", [os.symlink, os.link])
@pytest.mark.parametrize("name", ["known_hosts", "known_hosts.lock", "known_hosts.new"])
def test_root_pins_keys_through_no_link_of_the_daemons_account(
    tmp_path: Path, name: str, put: object
) -> None:
    account, roots, folder = pwd.getpwnam("daemon"), tmp_path / "shadow", tmp_path / "state"
    folder.mkdir()
    os.chown(folder, account.pw_uid, account.pw_gid)
    roots.write_text("secret\n")
    assert callable(put)
    put(roots, folder / name)
    begun = name.endswith(".new")  # of a writer that was killed: it is taken away
    refused = nullcontext() if begun else pytest.raises(ConfigError, match="No host key can be pinned")
    with refused, changed(folder / "known_hosts") as lines:
        lines.append("a ssh-ed25519 AAA")
    assert (roots.read_text(), roots.stat().st_uid) == ("secret\n", 0)
    for made in folder.iterdir():
        if not made.samefile(roots):
            assert "secret" not in made.read_text()
            assert made.stat().st_uid == account.pw_uid


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_root_pins_no_key_where_the_daemons_account_leads_it_by_a_link(tmp_path: Path, when: str) -> None:
    account, roots, state = pwd.getpwnam("daemon"), tmp_path / "roots", tmp_path / "state"
    folder = state / "keys"
    roots.mkdir()
    folder.mkdir(parents=True)
    for path in (state, folder):
        os.chown(path, account.pw_uid, account.pw_gid)
    for name in ("known_hosts", "known_hosts.new"):
        (roots / name).write_text("root's\n")

    def exchange() -> None:
        folder.rename(state / "away")
        folder.symlink_to(roots)

    if when == "before":
        exchange()
    refused = pytest.raises(ConfigError, match=r"No host key can be pinned .*--known-hosts")
    with refused if when == "before" else nullcontext(), changed(folder / "known_hosts") as lines:
        assert lines == []
        lines.append("a ssh-ed25519 AAA")
        if when == "meanwhile":
            exchange()
    assert {path.name: path.read_text() for path in roots.iterdir()} == dict.fromkeys(
        ("known_hosts", "known_hosts.new"), "root's\n"
    )
    if when == "meanwhile":  # in the directory that was found first
        assert (state / "away" / "known_hosts").read_text() == "a ssh-ed25519 AAA\n"


def test_keys_are_pinned_where_the_administrators_own_links_lead(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "relative").symlink_to("there/../there")
    (tmp_path / "absolute").symlink_to(tmp_path / "relative")
    (tmp_path / "round").symlink_to("round")
    with changed(tmp_path / "absolute" / "new" / "known_hosts") as lines:
        lines.append("a ssh-ed25519 AAA")
    assert (tmp_path / "there" / "new" / "known_hosts").read_text() == "a ssh-ed25519 AAA\n"
    with pytest.raises(ConfigError, match="symbolic links"), changed(tmp_path / "round" / "known_hosts"):
        pass
