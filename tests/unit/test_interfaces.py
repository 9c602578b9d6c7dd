"""Which interface carries jobs' traffic: what a host's agent finds of its own kernel, and what is chosen."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from rm.core.jobs import events as ev
from rm.core.model.host import HostState, Nic
from rm.daemon.execution.agent_news import nics_of
from rm.daemon.execution.environment import _interfaces
from rm.protocol.hosts import Interface
from tests import builders
from tests.unit.test_lifecycle import World

sys.path.insert(0, str(Path(__file__).parents[2] / "agents"))
import rm_interfaces

IP = shutil.which("ip", path="/usr/sbin:/usr/bin:/sbin:/bin") or ""


def card(name: str, **facts: object) -> Interface:
    return msgspec.convert({"name": name, "address": "10.0.0.1", **facts}, Interface)


def names(*cards: Interface) -> list[str]:
    return [nic.name for nic in nics_of(cards)]


def test_the_card_that_leads_to_most_hosts_comes_first() -> None:
    lo = card("lo", address="127.0.0.1")
    fast = card("ib0", speed_bps=400 * 10**9)
    slow = card("eth0", speed_bps=10**9, routes=3, control=True)
    some = card("eth1", speed_bps=10**10, routes=1)
    assert names(lo, fast, slow, some) == ["eth0", "eth1", "ib0"]


def test_without_other_hosts_the_way_to_the_daemon_counts_and_then_speed() -> None:
    assert names(card("a", speed_bps=5), card("b", control=True), card("c", speed_bps=9)) == ["b", "c", "a"]


def test_what_carries_nothing_is_left_out() -> None:
    assert names(card("lo", address="127.0.0.1"), card("down", up=False), card("bare", address="")) == []
    assert names(card("lo", address="127.0.0.1", routes=2)) == ["lo"]  # all hosts are one machine
    assert nics_of([]) == ()


def test_a_declared_interface_comes_first_and_its_speed_is_the_links() -> None:
    world = World()
    found = (Nic("eth0", "10.0.0.1", 7, routes=2), Nic("ib0", "10.1.0.1", 9))
    up = ev.HostUp("h3", "boot", "1", interface="eth0", nic_bps=7, nics=found)
    world.do(ev.HostAdded(builders.host("h3", nic_mbps=0, state=HostState.UNKNOWN)), up)
    host = world.state.hosts["h3"]
    assert (host.interface, host.nic_bps) == ("eth0", 7)
    declared = builders.host("h3", nic_mbps=0, interface="ib0")
    world.do(ev.HostAdded(declared), up)
    host = world.state.hosts["h3"]
    assert (host.interface, host.nic_bps, [nic.name for nic in host.nics]) == ("ib0", 9, ["ib0", "eth0"])


def test_an_interface_is_declared_by_any_of_its_names() -> None:
    """What the host's own rules and NCCL compare with is the kernel's name."""
    world = World()
    nics = nics_of(
        [card("eth0", routes=2, speed_bps=7), card("ib0", altnames=["ibp65s0", "rail0"], speed_bps=9)]
    )
    up = ev.HostUp("h3", "boot", "1", interface="eth0", nic_bps=7, nics=nics)
    world.do(ev.HostAdded(builders.host("h3", nic_mbps=0, interface="rail0")), up)
    host = world.state.hosts["h3"]
    assert (host.interface, host.nic_bps, [nic.name for nic in host.nics]) == ("rail0", 9, ["ib0", "eth0"])
    assert dict(_interfaces(host, [host]))["NCCL_SOCKET_IFNAME"] == "ib0"


def test_the_other_names_of_an_interface_are_found(tmp_path: Path) -> None:
    links = [{"ifname": "lo", "altnames": ["first0", "second0"]}, {"ifname": "eth0"}]
    program = tmp_path / "ip"
    program.write_text(f"#!/bin/sh\ncat > /dev/null\ncat <<'END'\n{json.dumps(links)}\nEND\n")
    program.chmod(0o755)
    found = {one["name"]: one["altnames"] for one in rm_interfaces.interfaces([], str(program))}
    assert found["lo"] == ["first0", "second0"]
    assert rm_interfaces.interfaces([], "")[0]["altnames"] == []


@pytest.mark.skipif(not IP, reason="needs iproute2")
def test_the_kernels_routes_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "127.0.0.9 1 127.0.0.1 22")
    found = {one["name"]: one for one in rm_interfaces.interfaces(["127.0.0.2", "127.0.0.3"], IP)}
    assert (found["lo"]["routes"], found["lo"]["control"], found["lo"]["up"]) == (2, True, True)
    assert found["lo"]["address"] == "127.0.0.1"
    assert found["lo"]["mtu_bytes"] > 0
    assert msgspec.convert(list(found.values()), list[Interface])


def test_an_odd_answer_or_none_leaves_routes_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    for says in ("garbage", '[["x"]]', "[]", json.dumps([{"dst": "127.0.0.2"}])):
        program = tmp_path / "ip"
        program.write_text(f"#!/bin/sh\ncat > /dev/null\ncat <<'END'\n{says}\nEND\n")
        program.chmod(0o755)
        found = rm_interfaces.interfaces(["127.0.0.2", "no such\nname"], str(program))
        assert {one["routes"] for one in found} == {0}
    assert {one["routes"] for one in rm_interfaces.interfaces(["127.0.0.2"], "")} == {0}


def test_the_network_behind_an_interfaces_gateways_is_found(tmp_path: Path) -> None:
    """As the kernel of a host with a routed rail tells it; `lo` stands for the rail."""
    rail = {"gateway": "127.0.0.254", "dev": "lo", "flags": []}
    routes = [
        {"dst": "default", **rail}, {"dst": "127.0.0.0/24", "dev": "lo", "scope": "link"},
        {"dst": "127.0.0.0/16", **rail}, {"dst": "127.0.0.0/12", **rail, "dev": "eth0"},
        {"dst": "126.0.0.0/8", **rail}, {"dst": "127.0.0.1", **rail},
        {"dst": "127.0.0.0/9", "nexthops": [{**rail, "dev": "eth0"}]},
    ]  # fmt: skip
    program = tmp_path / "ip"
    (tmp_path / "lo").mkdir()
    (tmp_path / "lo/carrier").write_text("1\n")

    def found(*more: dict[str, object]) -> str:
        program.write_text(f"#!/bin/sh\ncat > /dev/null\ncat <<'END'\n{json.dumps([*routes, *more])}\nEND\n")
        program.chmod(0o755)
        cards = rm_interfaces.interfaces([], str(program), sysfs=str(tmp_path))
        return str(next(one["routed"] for one in cards if one["name"] == "lo"))

    assert found() == "127.0.0.0/16"
    by_ipv6 = {"dst": "127.0.0.0/10", "via": {"family": "inet6", "host": "fe80::1"}, "dev": "lo"}
    assert found(by_ipv6) == "127.0.0.0/10"
    assert found({"dst": "127.0.0.0/9", "nexthops": [{**rail, "dev": "eth0"}, rail]}) == "127.0.0.0/9"
    (tmp_path / "lo/carrier").write_text("0\n")
    assert found() == ""


def test_rdma_devices_are_found_behind_their_interfaces(tmp_path: Path) -> None:
    gids = tmp_path / "mlx5_1/ports/1/gid_attrs/ndevs"
    gids.mkdir(parents=True)
    (gids / "0").write_text("lo\n")
    (gids / "1").mkdir()  # as unreadable as the kernel's unused entries
    (tmp_path / "mlx5_0/device/net/ib0").mkdir(parents=True)
    found = {one["name"]: one for one in rm_interfaces.interfaces([], "", rdma=str(tmp_path))}
    assert found["lo"]["rdma"] == "mlx5_1"


def test_what_the_driver_says_of_a_card_is_read(tmp_path: Path) -> None:
    (tmp_path / "lo/device").mkdir(parents=True)
    for name, text in (("speed", "-1"), ("mtu", "9000"), ("device/numa_node", "1"), ("flags", "0x1002")):
        (tmp_path / "lo" / name).write_text(text + "\n")
    found = {one["name"]: one for one in rm_interfaces.interfaces([], "", sysfs=str(tmp_path))}["lo"]
    assert (found["speed_bps"], found["mtu_bytes"], found["numa_node"], found["up"]) == (0, 9000, 1, False)
