"""Whose a host is: each belongs to one cluster, and obeys no other's daemon until an admin says so."""

from __future__ import annotations

import asyncio
import time

from rm.core.model.identity import ClusterIdentity
from rm.daemon.agents import Hosts
from rm.errors import Conflict, Unreachable
from rm.protocol.codes import Code, code_of
from rm.protocol.hosts import Adopt
from rm.protocol.line import shown
from rm.protocol.notifications import Hello

TIMEOUT_S = 30.0
STOP_S = 20.0  # for the tasks of the other cluster's jobs, which are killed
LOOK_S = 0.2
LISTED = 10
# How far hosts may move the job ids of one life of a daemon: none can use them up
IDS_MOVED_MAX = 1_000_000


def claim(hosts: Hosts, host: str, hello: Hello) -> str:
    """Make the machine that says hello this cluster's, by this name, unless it is another cluster's or has
    another name in this one: then a sentence says so.

    Whoever led a machine under two names would start twice as much there as it has room for, and stop under
    each what it started under the other.

    Raises:
        RmError: the host was not heard.
    """
    ours, name = hosts.cluster, hello.known_as
    if not ours.id or (hello.cluster == ours.id and name == host):
        return ""
    if hello.cluster not in ("", ours.id):
        return foreign(host, hello, ours)
    if name and _may_be(hosts, name, hello):
        return _second_name(host, name)
    asked = Adopt(cluster=ours.id, led_at=ours.led_at, host=host, renamed_from=name)
    answer = hosts.call(host, asked, TIMEOUT_S)
    error = answer.exception(TIMEOUT_S)
    code = code_of(error)
    if code is Code.FOREIGN_CLUSTER:  # another daemon was faster
        return f"{shown(error)} To take it over: rmx host adopt {host}"
    if code is Code.NO_SUCH_OP:  # an older agent belongs to nobody
        return ""
    name = answer.result(TIMEOUT_S).known_as  # "" of an older agent; another one was faster, perhaps
    return "" if name in ("", host) else _second_name(host, name)


def _may_be(hosts: Hosts, name: str, hello: Hello) -> bool:
    """May the host of this name be the machine that says hello? Not if another machine answers for it."""
    other = hosts.hello(name)
    return hosts.knows(name) and (other is None or other.boot_id == hello.boot_id)


def _second_name(host: str, name: str) -> str:
    return (
        f"{host} is the machine that this cluster knows as {shown(name)}: nothing is done there by a second "
        f"name. Remove one of them (rmx host remove {host}), or correct its address in the inventory."
    )


def foreign(host: str, hello: Hello, ours: ClusterIdentity) -> str:
    theirs = ClusterIdentity(shown(hello.cluster), shown(hello.led_at))
    return (
        f"{host} belongs to cluster {theirs}, and this daemon leads cluster {ours}: nothing is done there. "
        "If that cluster's database was lost, restore it (rmx restore FILE); to take the host over: "
        f"rmx host adopt {host}"
    )


async def take_over(hosts: Hosts, host: str, stop_jobs: bool) -> None:
    """Make another cluster's host this one's.

    Raises:
        Conflict: it is this one's already, or tasks of the other's jobs run there and are not to be stopped.
        RmError: the host was not heard, or refused.
    """
    hello, ours = hosts.hello(host), hosts.cluster
    if hello is None:
        raise Unreachable(f"Host {host} is not connected.", "`rmx hosts` says why.")
    if hello.cluster in ("", ours.id):
        raise Conflict(f"Host {host} belongs to no other cluster.", "There is nothing to take over.")
    asked = Adopt(cluster=ours.id, led_at=ours.led_at, instead_of=hello.cluster, stop_jobs=stop_jobs)
    until = time.monotonic() + STOP_S
    while True:
        running = (await asyncio.wrap_future(hosts.call(host, asked, TIMEOUT_S))).running
        if not running:
            break
        if not stop_jobs or time.monotonic() > until:
            more = f" and {len(running) - LISTED} more" if len(running) > LISTED else ""
            raise Conflict(
                f"Host {host} still runs jobs of cluster {shown(hello.cluster)}: "
                f"{', '.join(map(str, running[:LISTED]))}{more}.",
                "Wait for their end, or kill them: rmx host adopt --stop-jobs " + host
                if not stop_jobs
                else "Their processes do not end; look at the host.",
            )
        await asyncio.sleep(LOOK_S)
    hosts.reconnect(host)  # its next hello names this cluster
