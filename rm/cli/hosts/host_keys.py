"""`rmx host show-key` and `accept-key`: of the daemon's hosts, or of an inventory's before a daemon runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rm.cli.heartbeat import Heartbeat
from rm.cli.output import note
from rm.cli.session import Session, emit_json, host_operand, json_option, table
from rm.errors import HostKeyError, RmError, UsageError

if TYPE_CHECKING:
    from rm.core.model.host import Host

F = TypeVar("F", bound=Callable[..., Any])
AT_ONCE = 16
COLUMNS = ("HOST", "TYPE", "PRESENTED", "PINNED")
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}(?![A-Za-z0-9+/])")


@dataclass(frozen=True, slots=True)
class Key:
    """What a host presents, and what is pinned for it: (type, fingerprint), or None; `problem` if it did not
    answer."""

    host: str
    presented: tuple[str, str] | None
    pinned: tuple[str, str] | None
    problem: RmError | None = None

    @property
    def known(self) -> bool:
        return self.presented is not None and self.presented == self.pinned

    def row(self) -> tuple[str, ...]:
        kind, fingerprint = self.presented or ("-", "-")
        pinned = "none" if self.pinned is None else "the same" if self.known else self.pinned[1]
        return self.host, kind, fingerprint, pinned

    def fields(self) -> dict[str, Any]:
        def key(pair: tuple[str, str] | None) -> dict[str, str] | None:
            return {"type": pair[0], "fingerprint": pair[1]} if pair else None

        problem = {"problem": str(self.problem)} if self.problem else {}
        return {"host": self.host, "presented": key(self.presented), "pinned": key(self.pinned), **problem}


class OfDaemon:
    """The daemon looks, and pins."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def names(self) -> list[str]:
        return [host.name for host in self.session.client.hosts()]

    def look(self, name: str) -> Key:
        with self.session.new_client() as client:
            keys = client.host_keys(name)
        pinned = (keys.pinned.type, keys.pinned.fingerprint) if keys.pinned else None
        return Key(name, (keys.presented.type, keys.presented.fingerprint), pinned)

    def accept(self, name: str, fingerprint: str) -> None:
        self.session.client.accept_key(name, fingerprint)


class OfInventory:
    """This command looks over SSH, and pins in the file in which playbooks and the daemon look."""

    def __init__(self, session: Session, inventories: Sequence[str], known_hosts: str | None) -> None:
        from rm.adapters.playbook.inventory_files import read_inventory
        from rm.bootstrap.choices import ssh_settings
        from rm.config import load_config
        from rm.playbook.inventory.hosts import to_hosts

        inventory = read_inventory(inventories, programs=True)[0]
        self.hosts: dict[str, Host] = {host.name: host for host in to_hosts(inventory)}
        settings = ssh_settings(load_config(session.config_flag))
        file = Path(known_hosts or settings.known_hosts).expanduser()
        self.settings = replace(settings, known_hosts=file, trusts_inventory=True)

    def names(self) -> list[str]:
        return list(self.hosts)

    def look(self, name: str) -> Key:
        from rm.adapters.hosts.ssh import pinned_key, present_key

        host = self._host(name)
        return Key(name, present_key(host, self.settings)[:2], pinned_key(host, self.settings))

    def accept(self, name: str, fingerprint: str) -> None:
        from rm.adapters.hosts.ssh import accept_key

        accept_key(self._host(name), fingerprint, self.settings)

    def _host(self, name: str) -> Host:
        if name not in self.hosts:
            raise UsageError(f"The inventory holds no host {name}.", f"It holds {', '.join(self.hosts)}.")
        return self.hosts[name]


def key_options(command: F) -> F:
    command = click.option(
        "--known-hosts", metavar="FILE", help="With --inventory: the file of pinned keys (ssh.known_hosts)."
    )(command)
    command = click.option(
        "-i", "--inventory", multiple=True, metavar="FILE", help="Hosts of this inventory; needs no daemon."
    )(command)
    return click.option("--all", "everything", is_flag=True, help="All hosts.")(command)


def _source(session: Session, inventory: Sequence[str], known_hosts: str | None) -> OfDaemon | OfInventory:
    if known_hosts and not inventory:
        raise UsageError("--known-hosts goes with --inventory.", "The daemon has a file of its own.")
    return OfInventory(session, inventory, known_hosts) if inventory else OfDaemon(session)


def _looked_at(
    where: OfDaemon | OfInventory, host: str | None, host_word: str | None, everything: bool
) -> list[Key]:
    """The keys that were asked for. Any failure of one host is raised; for all hosts it is reported."""
    named = [word for word in (host, host_word) if word]
    if len(named) + everything != 1:
        raise UsageError("Name one host, as an operand or with --host=NAME, or give --all.")
    if named:
        return [where.look(named[0])]

    def look(name: str) -> Key:
        try:
            return where.look(name)
        except RmError as problem:
            return Key(name, None, None, problem)

    names = where.names()
    found: list[Key] = []
    said = Heartbeat(lambda: f"{len(found)} of {len(names)} hosts have shown their keys")
    with said, ThreadPoolExecutor(AT_ONCE) as pool:
        for key in pool.map(look, names):
            found.append(key)
    for key in found:
        if key.problem is not None:
            note(str(key.problem))
    return found


@click.command("show-key")
@host_operand
@key_options
@json_option
@click.pass_obj
def show_key(
    session: Session, /, host: str | None, host_word: str | None, everything: bool, inventory: Sequence[str],
    known_hosts: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Show the key that HOST presents now, and the one that is pinned.

    Exit code 1: a host did not answer.
    """
    found = _looked_at(_source(session, inventory, known_hosts), host, host_word, everything)
    if as_json and everything:
        emit_json({"keys": [key.fields() for key in found]})
    elif as_json:
        emit_json({name: value for name, value in found[0].fields().items() if name != "host"})
    elif everything:
        table(COLUMNS, [key.row() for key in found])
    else:
        for title, pair in (("presented", found[0].presented), ("pinned", found[0].pinned)):
            click.echo(f"{title + ':':<11}" + (" ".join(pair) if pair else "none"))
    return int(any(key.problem is not None for key in found))


@click.command("accept-key")
@host_operand
@key_options
@click.option("--fingerprint", metavar="SHA256:…", help="Accept this key without asking.")
@click.option("--expected", metavar="FILE", help="Accept the keys whose fingerprints FILE holds.")
@click.option("--yes", is_flag=True, help="Accept every key that is presented, without asking.")
@json_option
@click.pass_obj
def accept_key(
    session: Session, /, host: str | None, host_word: str | None, everything: bool, inventory: Sequence[str],
    known_hosts: str | None, fingerprint: str | None, expected: str | None, yes: bool, as_json: bool,
) -> int:  # fmt: skip
    """Pin the key of HOST, or of --all hosts, once it is confirmed.

    Shows the fingerprints and asks; compare them with the hosts' own (ssh-keygen -lf
    /etc/ssh/ssh_host_ed25519_key.pub there). FILE of --expected has a line for each host: its name, and
    its fingerprint anywhere after it (the output of `show-key --all` works). Exit code 1: not all are pinned.
    """
    if sum(map(bool, (fingerprint, expected, yes))) > 1 or (fingerprint and everything):
        raise UsageError("Give only one of --fingerprint (for one host), --expected and --yes.")
    where = _source(session, inventory, known_hosts)
    if fingerprint:
        named = [word for word in (host, host_word) if word]
        if len(named) != 1:
            raise UsageError("Name one host, as an operand or with --host=NAME.")
        where.accept(named[0], fingerprint)
        return _told(where, [named[0]], [], as_json)
    found = _looked_at(where, host, host_word, everything)
    left = [key.host for key in found if key.problem is not None]
    new = [key for key in found if key.presented is not None and not key.known]
    if expected:
        wanted = _expected(expected)
        for key in new:
            if key.presented and key.presented[1] not in wanted.get(key.host, ()):
                left.append(key.host)
                note(f"Host {key.host} presents {key.presented[1]}, which {expected} does not hold for it.")
        new = [key for key in new if key.host not in left]
    elif new and not yes:
        _ask(new, where)
    for key in new:
        assert key.presented is not None
        try:
            where.accept(key.host, key.presented[1])
        except HostKeyError as problem:
            note(str(problem))
            left.append(key.host)
    kept = [key.host for key in found if key.host not in left]
    return _told(where, kept, left, as_json)


def _expected(file: str) -> dict[str, set[str]]:
    try:
        lines = Path(file).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"--expected {file} cannot be read: {problem}.") from None
    found: dict[str, set[str]] = {}
    for line in lines:
        if prints := _FINGERPRINT.findall(line):
            found.setdefault(line.split()[0], set()).add(prints[0])
    if not found:
        raise UsageError(f"--expected {file} holds no fingerprint.", "A line is: NAME … SHA256:…")
    return found


def _ask(new: Sequence[Key], where: OfDaemon | OfInventory) -> None:
    """Raises UsageError without a terminal, and Abort where the answer is no."""
    table(COLUMNS, [key.row() for key in new])
    changed = [key.host for key in new if key.pinned is not None]
    if changed:
        note(f"The key of {', '.join(changed)} has CHANGED. Someone may be intercepting the connection.")
    if not sys.stdin.isatty():
        raise UsageError(
            "There is no terminal to confirm these fingerprints on.",
            "Compare them, then give --fingerprint=SHA256:… for one host, --expected=FILE, or --yes.",
        )
    click.confirm(f"Are these the keys of {len(new)} host(s)?", abort=True, err=True)


def _told(where: OfDaemon | OfInventory, kept: Sequence[str], left: Sequence[str], as_json: bool) -> int:
    if as_json:
        emit_json({"keys": [where.look(name).fields() for name in kept], "not_pinned": list(left)})
    else:
        place = f" in {where.settings.known_hosts}" if isinstance(where, OfInventory) else ""
        click.echo(f"The keys of {len(kept)} host(s) are pinned{place}.")
        if left:
            note(f"Not pinned: {', '.join(left)}.")
    return int(bool(left))
