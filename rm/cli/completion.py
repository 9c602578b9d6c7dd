"""Job ids, hosts and partitions for the shell's completion: the daemon's, none when it does not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from click.shell_completion import CompletionItem

from rm.cli.output import printable
from rm.client import Client
from rm.client.address import Address
from rm.client.connection import Connection
from rm.errors import RmError

Found = Iterator[tuple[str, str]]  # (word, what it is)
TIMEOUT_S = 3.0  # longer than that nobody waits for a completion


def _jobs(client: Client) -> Found:
    for job in client.jobs():
        yield str(job.id), f"{job.spec.name}, {job.state}"


def _hosts(client: Client) -> Found:
    for host in client.hosts():
        yield host.name, f"{host.zone}, {host.state}"


def _partitions(client: Client) -> Found:
    names = {name for host in client.hosts() for name in host.partitions}
    yield from ((name, "") for name in sorted(names))


_FOUND = {"jobs": _jobs, "hosts": _hosts, "partitions": _partitions}


def words(what: str, daemon: Callable[[], Address], incomplete: str) -> list[CompletionItem]:
    """Those that go on from `incomplete`, of a list from its last word; `what` is a key of `_FOUND`."""
    before, comma, word = incomplete.rpartition(",")
    try:
        with Client(Connection(daemon(), patience_s=0, timeout_s=TIMEOUT_S)) as client:
            found = list(_FOUND[what](client))
    except RmError:  # a message would land in the middle of the user's line
        return []
    fits = ((each, printable(says)) for each, says in found if each.startswith(word))
    return [CompletionItem(before + comma + each, help=says) for each, says in fits]
