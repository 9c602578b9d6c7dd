"""The networks that all hosts of a job share: which interfaces NCCL and Gloo are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rm.core.model.host import Host, Nic
from rm.core.model.job import Task
from rm.core.model.network.rails import rails, rdma_devices
from rm.daemon.execution.environment import task_environment
from tests import builders

FAST = 100 * 10**9


def card(name: str, address: str, speed_bps: int = FAST, rdma: str = "", bits: int = 24) -> Nic:
    network = f"{address.rpartition('.')[0]}.0/{bits}" if address else ""
    return Nic(name, address, speed_bps, rdma=rdma, network=network)


def host(number: int, *cards: Nic) -> Host:
    found = ("interface", "nic_bps")
    return replace(builders.host(f"h{number}", interface=cards[0].name), nics=cards, found=found)


def pair(*names: str) -> list[Host]:
    """Two hosts with an interface of these names on a network of its own each."""
    return [
        host(n, *(card(name, f"10.{rail}.0.{n}", rdma=f"mlx5_{rail}") for rail, name in enumerate(names)))
        for n in (1, 2)
    ]


def told(hosts: list[Host]) -> list[list[str]]:
    return [[nic.name for nic in rails(each, hosts)] for each in hosts]


def test_all_networks_that_the_hosts_share_are_named() -> None:
    assert told(pair("eth0", "eth1", "eth2")) == [["eth0", "eth1", "eth2"]] * 2


def test_they_come_in_the_same_order_on_each_host() -> None:
    one, other = pair("eth0", "eth1", "eth2")
    first, *others = other.nics
    renamed = replace(other, nics=(first, *(replace(n, name=f"p{n.name}") for n in reversed(others))))
    assert told([one, renamed]) == [["eth0", "eth1", "eth2"], ["eth0", "peth1", "peth2"]]


@pytest.mark.parametrize(
    "second",
    [
        card("eth1", "10.9.0.2"),  # another network
        card("eth1", "10.1.0.2", speed_bps=10**9),  # slower
        card("eth1", "10.1.0.1"),  # the same address on both, as bridges of containers have
        card("eth1", ""),
        replace(card("eth1", "10.1.0.2"), network=""),  # its link is down
    ],
)
def test_what_does_not_lead_to_the_other_host_is_left_out(second: Nic) -> None:
    one, other = pair("eth0", "eth1")
    assert told([one, replace(other, nics=(other.nics[0], second))]) == [["eth0"], ["eth0"]]


def routed(*names: str) -> list[Host]:
    """Two hosts with a network of their own for each interface; routers connect interfaces of one name."""
    return [
        host(n, *(replace(card(name, f"10.{rail}.{n}.2"), routed=f"10.{rail}.0.0/16")
                  for rail, name in enumerate(names)))
        for n in (1, 2)
    ]  # fmt: skip


def test_rails_that_routers_connect_are_named() -> None:
    assert told(routed("eth0", "eth1", "eth2")) == [["eth0", "eth1", "eth2"]] * 2
    one, other = routed("eth0", "eth1")
    first = replace(other.nics[0], routed="")  # the default route leads to the others
    assert told([one, replace(other, nics=(first, other.nics[1]))]) == [["eth0", "eth1"]] * 2
    private = [card("eth1", f"192.168.1.{n}") for n in (1, 2)]  # of two racks
    racks = [replace(each, nics=(each.nics[0], nic)) for each, nic in zip((one, other), private, strict=True)]
    assert told(racks) == [["eth0"]] * 2
    lost = replace(other.nics[1], routed="")
    assert told([one, replace(other, nics=(other.nics[0], lost))]) == [["eth0"]] * 2


def test_an_interface_counts_once_though_two_networks_lead_to_it() -> None:
    """A network of the wires and one of the gateways behind them, which two interfaces of one host hold."""
    one, other = pair("eth0", "eth1", "eth2")
    wide = [tuple(replace(nic, routed="10.0.0.0/8") for nic in each.nics) for each in (one, other)]
    assert told([replace(one, nics=wide[0]), replace(other, nics=wide[1])]) == [["eth0", "eth1", "eth2"]] * 2
    assert told([replace(one, nics=wide[0]), other]) == [["eth0", "eth1", "eth2"]] * 2


def test_another_hosts_first_interface_is_no_second_one() -> None:
    one, other = pair("eth0", "eth1")
    assert told([one, replace(other, nics=other.nics[::-1])]) == [["eth0"], ["eth1"]]


def test_a_declared_interface_is_used_alone() -> None:
    one, other = pair("eth0", "eth1")
    assert told([replace(one, found=()), other]) == [["eth0"], ["eth0"]]


def variables(hosts: list[Host]) -> dict[str, str]:
    job = builders.job(1, ntasks=2, tasks=tuple(Task(n, each.name) for n, each in enumerate(hosts)))
    assert job.placement is not None
    env = task_environment(job, job.placement.tasks[0], hosts[0], {each.name: each for each in hosts})
    return {name: value for name, value in env.items() if name.startswith(("NCCL", "GLOO"))}


def test_libraries_are_told_whole_names() -> None:
    assert variables(pair("eth0", "eth1")) == {
        "NCCL_SOCKET_IFNAME": "=eth0,eth1",
        "GLOO_SOCKET_IFNAME": "eth0,eth1",
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1",
    }


def test_one_interface_is_told_by_its_name_unless_others_begin_so() -> None:
    one, other = pair("eth1")
    assert variables([one, other]) == {"NCCL_SOCKET_IFNAME": "eth1", "GLOO_SOCKET_IFNAME": "eth1"}
    beside = replace(one, nics=(*one.nics, card("eth10", "10.5.0.1")))
    assert variables([beside, other])["NCCL_SOCKET_IFNAME"] == "=eth1"


def test_devices_without_an_address_keep_all_devices_for_nccl() -> None:
    one, _ = pair("eth0", "eth1")
    assert rdma_devices(one, one.nics) == ("mlx5_0", "mlx5_1")
    assert rdma_devices(replace(one, nics=(*one.nics, card("ib0", "", rdma="mlx5_4"))), one.nics) == ()
    assert rdma_devices(one, (replace(one.nics[0], rdma=""), one.nics[1])) == ()
    faster = card(
        "ib0", "10.8.0.1", 4 * FAST, rdma="mlx5_4"
    )  # routes lead elsewhere, NCCL's own way does not
    assert rdma_devices(replace(one, nics=(*one.nics, faster)), one.nics) == ()
    slower = card("eth9", "10.8.0.1", FAST // 10, rdma="mlx5_4")
    assert rdma_devices(replace(one, nics=(*one.nics, slower)), one.nics) == ("mlx5_0", "mlx5_1")


def test_an_interface_of_unknown_speed_is_no_rail() -> None:
    """Such as a tunnel beside a virtual machine's card: neither driver reports one."""
    unknown = [
        replace(each, nics=tuple(replace(n, speed_bps=0) for n in each.nics)) for each in pair("a", "b")
    ]
    assert told(unknown) == [["a"], ["a"]]
