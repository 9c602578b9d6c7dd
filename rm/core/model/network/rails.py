"""The rails of a job: the networks that all of its hosts share, each by an interface of its own."""

from __future__ import annotations

from collections.abc import Sequence

from rm.core.model.host import Host, Nic


def rails(host: Host, hosts: Sequence[Host]) -> tuple[Nic, ...]:
    """The interfaces of `host`, one of `hosts`, through which it reaches the others, in the same order and of
    the same number on each of them, as Gloo needs; first the one that carries jobs' traffic.

    Another interface counts if its driver says that it is as fast as that one, and each of the hosts has such
    a one on the same network, with an address of its own (bridges of containers have the same one
    everywhere). The same network is one to which their addresses belong, or one to which their gateways lead
    (each host of a routed rail has a network of its own). Where routers lie between the first interfaces only
    the latter counts: private addresses may be the same in every rack. A host whose inventory declares the
    interface uses that alone, and so do the hosts of its jobs.
    """
    routed_only = len({each.nics[0].network for each in hosts if each.nics}) > 1
    found = {each.name: _networks(each, routed_only) for each in hosts}
    used = {each.name: list(each.nics[:1]) for each in hosts}
    for network in found[hosts[0].name]:
        ends = {name: networks[network] for name, networks in found.items() if network in networks}
        addresses = {nic.address for nic in ends.values()}
        if len(ends) == len(addresses) == len(hosts) and not any(ends[name] in used[name] for name in ends):
            for name, nic in ends.items():
                used[name].append(nic)
    return tuple(used[host.name])


def rdma_devices(host: Host, used: Sequence[Nic]) -> tuple[str, ...]:
    """The RDMA devices of these interfaces, if each has one; none where others of the host may be meant for
    jobs, which is so if there are devices whose interface is faster or has no address."""
    speed_bps = min((nic.speed_bps for nic in used), default=0)
    meant = any(nic.rdma and (not nic.address or nic.speed_bps > speed_bps) for nic in host.nics)
    return () if meant or not all(nic.rdma for nic in used) else tuple(nic.rdma for nic in used)


def _networks(host: Host, routed_only: bool) -> dict[str, Nic]:
    """By network: the interface of jobs' traffic, and what is as fast, unless that one is declared."""
    first, *others = host.nics or (Nic(""),)
    declared = "interface" not in host.found
    alike = [nic for nic in others if nic.speed_bps == first.speed_bps > 0 and not declared]
    found: dict[str, Nic] = {}
    for nic in (first, *alike):
        for network in filter(None, (nic.routed,) if routed_only else (nic.network, nic.routed)):
            found.setdefault(network, nic)
    return found
