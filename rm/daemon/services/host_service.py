"""The use cases about hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.host import Host, HostState
from rm.core.model.host_acceptance import accept_host, keys_of, steering
from rm.core.model.snapshot import Free
from rm.core.scheduling.cycle import Cycle
from rm.daemon.agents import Hosts
from rm.daemon.execution.claims import take_over
from rm.daemon.monitoring.service import MonitorService
from rm.daemon.services.asking import Asking
from rm.daemon.services.host_keys import HostKeyDesk, Keys
from rm.errors import Conflict, Forbidden, NotFound, Refusal
from rm.units import name_order

NAMED = 300  # characters of names of variables in an error
HOSTS_AT_ONCE = 200  # of an inventory, in one turn of the leader


class HostService:
    """Its methods run in the web server's event loop.

    Args:
        asking: the way to the leader.
        hosts: the connected agents.
        keys: shows and pins the hosts' SSH keys.
        monitoring: forgets removed hosts; None where there is none.
    """

    def __init__(
        self,
        *,
        asking: Asking,
        hosts: Hosts,
        keys: Keys,
        monitoring: MonitorService | None,
    ) -> None:
        self._asking = asking
        self._hosts = hosts
        self._keys = HostKeyDesk(keys)
        self._monitoring = monitoring

    async def hosts(self) -> Sequence[tuple[Host, Free | None, Sequence[int]]]:
        def ask(cycle: Cycle, now_us: int) -> list[tuple[Host, Free | None, Sequence[int]]]:
            state = cycle.state
            return [
                (
                    shown(h, state.jobs_on.get(h.name, set())),
                    state.free.get(h.name),
                    sorted(state.jobs_on.get(h.name, ())),
                )
                for h in sorted(state.hosts.values(), key=lambda h: name_order(h.name))
            ]

        answer: Sequence[tuple[Host, Free | None, Sequence[int]]] = await self._asking.ask(ask)
        return answer

    async def add_hosts(self, hosts: Sequence[Host], by: str, may_steer: bool = False) -> Sequence[Host]:
        """`may_steer`: whose the daemon's machine is sets any variable, for playbooks that run there.

        Raises:
            UsageError: one of them is no host that rm accepts; none is added.
            Forbidden: a variable is not his to set; none of those that are added together is added.
        """
        for host in hosts:
            accept_host(host)
        names = [h.name for h in hosts]
        for begin in range(0, len(hosts), HOSTS_AT_ONCE):
            part = hosts[begin : begin + HOSTS_AT_ONCE]
            await self._asking.request(partial(_all_added, part, may_steer), weight=len(part))

        def ask(cycle: Cycle, now_us: int) -> list[Host]:
            return [cycle.state.hosts[n] for n in names if n in cycle.state.hosts]

        added: list[Host] = await self._asking.ask(ask)
        for host in added:
            self._hosts.add(host)
        return added

    async def drain(self, name: str, reason: str, by: str) -> Host:
        return await self._change_host(name, ev.HostDrained(name, by, reason))

    async def resume(self, name: str, by: str) -> Host:
        return await self._change_host(name, ev.HostResumed(name, by))

    async def adopt(self, name: str, stop_jobs: bool, by: str) -> Host:
        """Take the host over from another cluster; see `rm.daemon.execution.claims`."""
        host = await self._host(name)
        await take_over(self._hosts, name, stop_jobs)
        return host

    async def remove_host(self, name: str, by: str) -> Host:
        host = await self._host(name)

        def make(state: ClusterState) -> list[ev.Event]:
            if busy := sorted(state.jobs_on.get(name, ())):
                listed = ", ".join(map(str, busy))
                raise Conflict(
                    f"Host {name} still runs job {listed}.",
                    f"Drain it first: rmx host drain {name}",
                )
            return [ev.HostRemoved(name, by)]

        await self._asking.request(make)
        self._hosts.remove(name)
        if self._monitoring is not None:
            await self._monitoring.forget_host(name)
        return host

    async def present_key(self, name: str) -> Mapping[str, Any]:
        return await self._keys.present(await self._host(name))

    async def accept_key(self, name: str, fingerprint: str, by: str) -> Mapping[str, Any]:
        host = await self._host(name)
        answer = await self._keys.accept(host, fingerprint)
        self._hosts.add(host)  # try again at once
        return answer

    async def _host(self, name: str) -> Host:
        def ask(cycle: Cycle, now_us: int) -> Host:
            return known_host(cycle.state, name)

        host: Host = await self._asking.ask(ask)
        return host

    async def _change_host(self, name: str, event: ev.Event) -> Host:
        def make(state: ClusterState) -> list[ev.Event]:
            known_host(state, name)
            return [event]

        def answer(state: ClusterState) -> Host:
            return shown(state.hosts[name], state.jobs_on.get(name, set()))

        host: Host = await self._asking.request(make, answer)
        return host


def known_host(state: ClusterState, name: str) -> Host:
    if name not in state.hosts:
        raise NotFound(f"There is no host '{name}'.", "`rmx hosts` lists them.", Refusal.UNKNOWN_HOST)
    return state.hosts[name]


def _all_added(hosts: Sequence[Host], may_steer: bool, state: ClusterState) -> list[ev.Event]:
    keys = set() if may_steer else keys_of(state.hosts.values())
    for host in () if may_steer else hosts:
        if names := steering(host, state.hosts.get(host.name), keys):
            raise Forbidden(
                f"An administrator cannot set {', '.join(names)[:NAMED]} of host {host.name}: that would "
                "steer logins and playbooks that have the daemon's rights.",
                "Leave out what names programs and files of the daemon's machine, or let "
                "root or the daemon's user import the inventory at its machine.",
            )
    return [ev.HostAdded(host) for host in hosts]


def shown(host: Host, jobs: set[int]) -> Host:
    """The host with the state people ask about: a drained host is DRAINING while jobs run."""
    if not host.drained_by or host.state is HostState.DOWN:
        return host
    state = HostState.DRAINING if jobs else HostState.DRAINED
    return replace(host, state=state, reason=host.drained_by)
