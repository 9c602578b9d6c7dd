"""Job ids, hosts and partitions for the shell's completion: the daemon's, none when it does not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click
from click.shell_completion import CompletionItem

from rm.cli.client import Client
from rm.cli.session import Session
from rm.errors import RmError

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Found = Iterator[tuple[str, str]]  # (word, what it is)
TIMEOUT_S = 3.0  # longer than that nobody waits for a completion


def _jobs(client: Client) -> Found:
    for job in client.get("jobs", _timeout_s=TIMEOUT_S)["jobs"]:
        yield str(job["id"]), f"{job['spec']['name']}, {job['state']}"


def _hosts(client: Client) -> Found:
    for host in client.get("hosts", _timeout_s=TIMEOUT_S)["hosts"]:
        yield host["name"], f"{host['zone']}, {host['state']}"


def _partitions(client: Client) -> Found:
    names = {
        name for host in client.get("hosts", _timeout_s=TIMEOUT_S)["hosts"] for name in host["partitions"]
    }
    yield from ((name, "") for name in sorted(names))


def _completes(found: Callable[[Client], Found]) -> Complete:
    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, word = incomplete.rpartition(",")  # of a list the last word
        given = ctx.find_root().params
        try:
            address = Session(given.get("socket"), given.get("config")).address
            words = list(found(Client(address, patience_s=0)))
        except RmError:  # a message would land in the middle of the user's line
            return []
        return [CompletionItem(before + comma + w, help=what) for w, what in words if w.startswith(word)]

    return complete


jobs = _completes(_jobs)
hosts = _completes(_hosts)
partitions = _completes(_partitions)
