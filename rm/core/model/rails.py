"""The rails of a job: the networks that all of its hosts share, each by an interface of its own."""

from __future__ import annotations

from collections.abc import Sequence

from rm.core.model.host import Host, Nic


def rails(host: Host, hosts: Sequence[Host]) -> tuple[Nic, ...]:
    """The interfaces of `host`, one of `hosts`, through which it reaches the others, in the same order and of
    the same number on each of them, as Gloo needs; first the one that carries jobs' traffic.

    Another interface counts if its driver says that it is as fast as that one, and each of the hosts has such
    a one on the same network, with an address of its own (bridges of containers have the same one
    everywhere). A host whose inventory declares the interface uses that alone, and so do the hosts of its
    jobs.
    """
    mine = _networks(host)
    everyone = [_networks(each) for each in hosts]
    first = {next(iter(networks), "") for networks in everyone}
    shared = [n for n in next(iter(everyone), {}) if all(n in networks for networks in everyone)]
    if len(first) != 1 or first != set(shared[:1]):  # each reaches the others by routers
        shared = []
    else:
        shared = [n for n in shared if len({networks[n].address for networks in everyone}) == len(hosts)]
    return tuple(mine[n] for n in shared if n in mine) or host.nics[:1]


def rdma_devices(host: Host, used: Sequence[Nic]) -> tuple[str, ...]:
    """The RDMA devices of these interfaces, if each has one; none where others of the host may be meant for
    jobs, which is so if there are devices whose interface is faster or has no address."""
    speed_bps = min((nic.speed_bps for nic in used), default=0)
    meant = any(nic.rdma and (not nic.address or nic.speed_bps > speed_bps) for nic in host.nics)
    return () if meant or not all(nic.rdma for nic in used) else tuple(nic.rdma for nic in used)


def _networks(host: Host) -> dict[str, Nic]:
    """By network: the interface of jobs' traffic, and what is as fast, unless that one is declared."""
    first, *others = host.nics or (Nic(""),)
    declared = "interface" not in host.found
    alike = [nic for nic in others if nic.speed_bps == first.speed_bps > 0 and not declared]
    found: dict[str, Nic] = {}
    for nic in (first, *alike):
        if nic.network:
            found.setdefault(nic.network, nic)
    return found
