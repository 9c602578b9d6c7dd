"""What a survey of hosts comes to: findings with what to mend, the grave ones apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rm.playbook.inventory.survey import TOPICS, findings, row
from tests.command_line import caller

PEER = {"name": "b", "interface": "eth0", "problem": "", "named": True}
GOOD: dict[str, Any] = {
    "python": "3.11.2", "kernel": "6.1", "root": True, "synchronized": True,
    "cgroup": 2, "bpf": True, "bursts": True,
    "tools": ["tc", "nft", "ip", "sudo"],
    "controllers": ["cpu", "cpuset", "devices", "freezer", "memory", "pids"],
    "interfaces": {"eth0": {"mtu_bytes": 1500, "mbps": 25000, "up": True}},
    "own_name": ["a", ["10.0.0.1"]], "peers": [PEER], "home": ["nas:/home", "nfs4"],
    "free_bytes": {"/opt": 1 << 34}, "uids": {"ada": 1001},
}  # fmt: skip
USERS = {"ada": 1001}


def test_a_good_host_has_no_finding() -> None:
    assert findings({"a": GOOD}, {"a": (900, 1000)}, USERS) == []
    assert row(GOOD, (-12_000, 1_000)) == (
        "3.11.2", "6.1", "-12 ±1 ms", "v2", "tc,nft,ip", "eth0 25000M", "nfs4 (nas:/home)",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "topic", "said", "grave"),
    [
        ({"root": False}, "root", "sudo asks for a password", False),
        ({"root": False, "login": "root", "uid": 1000}, "root", "root by name, and has uid 1000", False),
        ({"synchronized": False}, "clock", "clock is not synchronised", False),
        ({"cgroup": 0, "controllers": []}, "cgroup", "There are no control groups", False),
        ({"controllers": ["cpu", "pids", "freezer"]}, "cgroup", "(version 2) lack memory", False),
        ({"tools": ["tc", "ip", "sudo"]}, "tools", "The program nft is missing", False),
        ({"tools": ["tc", "nft", "ip"]}, "tools", "The program sudo is missing", False),
        ({"peers": [{**PEER, "interface": "lo"}]}, "network", "does not leave", True),
        (
            {"peers": [{**PEER, "problem": "late"}]},
            "network",
            "b is not reached",
            True,
        ),
        ({"peers": [{**PEER, "named": False}]}, "names", "not known there by their names: b.", False),
        ({"own_name": ["a", []]}, "names", "does not know its own name, a.", False),
        ({"own_name": ["a", ["127.0.1.1", "::1"]]}, "names", "own name, a, leads to 127.0.1.1, ::1.", False),
        ({"free_bytes": {"/opt": 5 << 20}}, "disk", "/opt has 5 MiB free", True),
        ({"uids": {"ada": 2002}}, "users", "The user ada has uid 2002, on the control machine 1001", True),
        ({"uids": {"ada": None}}, "users", "unknown: ada", False),
        ({"bpf": False}, "cgroup", "no BPF", False),
        ({"bursts": False}, "network", "takes no BPF programs for traffic", False),
    ],
)
def test_each_fault_is_named_with_what_to_mend(
    change: dict[str, Any], topic: str, said: str, grave: bool
) -> None:
    (found,) = findings({"a": {**GOOD, **change}}, {}, USERS)
    assert (found.topic, found.host, said in found.what, found.grave) == (topic, "a", True, grave)
    assert found.topic in TOPICS
    assert found.mend


@pytest.mark.parametrize(
    ("problem", "mend"),
    [
        ("[Errno -3] Temporary failure in name resolution", "Give b its address as ansible_host"),
        ("[Errno -2] Name or service not known", "Give b its address as ansible_host"),
        ("[Errno 111] Connection refused", "Open the network"),
    ],
)
def test_a_name_that_hosts_do_not_know_is_no_closed_network(problem: str, mend: str) -> None:
    peer = {**PEER, "interface": "", "problem": problem}
    (found,) = findings({"a": {**GOOD, "peers": [peer]}}, {}, USERS)
    assert found.mend.startswith(mend)


def test_a_name_that_leads_to_an_address_of_the_host_is_good() -> None:
    for addresses in (["127.0.1.1", "10.0.0.1"], ["fe80::1%eth0"], ["2001:db8::1"]):
        assert findings({"a": {**GOOD, "own_name": ["a", addresses]}}, {}, USERS) == []


def test_clocks_count_beyond_their_uncertainty_and_homes_by_the_most() -> None:
    (late,) = findings({"a": GOOD}, {"a": (-2_500_000, 1_000_000)}, USERS)
    assert "-2.500 s off" in late.what
    assert findings({"a": GOOD}, {"a": (1_050_000, 1_000_000)}, USERS) == []
    homes = {"a": GOOD, "b": GOOD, "c": {**GOOD, "home": ["/dev/sda1", "ext4"]}}
    (odd,) = findings(homes, {}, USERS)
    assert (odd.topic, odd.host, odd.what) == (
        "home",
        "c",
        "/home is local, on most hosts it is nfs4 (nas:/home).",
    )


FULL = {**GOOD, "now_us": 1, "uid": 0, "login": "root", "bursts": None, "uids": {}}
HOSTILE = "\x1b[2J\nb: forged"


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [{}],
        [{**FULL, "kernel": 5}],
        [{**FULL, "home": ["x"]}],
        [{**FULL, "peers": [7]}],
        [{**FULL, "own_name": ["a", ["nonsense"]]}],
        [{**FULL, "kernel": HOSTILE, "own_name": [HOSTILE, []], "peers": [{**PEER, "problem": HOSTILE}]}],
    ],
)
def test_a_host_that_lies_of_itself_hides_no_other_and_steers_no_terminal(
    answers: list[Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It ended `rmx check` of all hosts."""

    class Ways:
        def __init__(self, *_: object) -> None:
            pass

        def send(self, name: str, batch: object, request: dict[str, Any]) -> dict[str, Any]:
            if request["steps"][0]["op"] == "ping":
                return {"results": [{}]}
            return {"results": answers if name == "a" else [FULL]}

        def close(self) -> None:
            pass

    monkeypatch.setattr("rm.adapters.playbook.hosts.Ways", Ways)
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)  # as at a terminal
    monkeypatch.setenv("RM_CONFIG", str(tmp_path / "rm.toml"))
    (tmp_path / "rm.toml").write_text(f'[daemon]\nstate_dir = "{tmp_path}"\n')
    inventory = tmp_path / "hosts"
    inventory.write_text("a ansible_host=192.0.2.1\nb ansible_host=192.0.2.2\n")
    call = caller(capfd)
    shown = call("check", "-i", str(inventory))
    assert shown.code in (0, 1), shown.err
    assert "\x1b" not in shown.out
    assert "b: forged" not in shown.out.splitlines()
    told = json.loads(call("check", "-i", str(inventory), "--json").out)
    assert told["hosts"]["b"]["kernel"] == "6.1"
