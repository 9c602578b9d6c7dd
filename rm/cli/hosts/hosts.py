"""`rmx hosts` lists them; `rmx host …` administers them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from rm.cli.groups import Group
from rm.cli.hosts.host_keys import accept_key, show_key
from rm.cli.hosts.host_show import cards, free_of, show, state_of
from rm.cli.output import note
from rm.cli.session import (
    Session,
    emit_json,
    host_names,
    host_operand,
    hosts_operand,
    json_option,
    one_host,
    table,
)
from rm.errors import NotFound, RmError, UsageError
from rm.units import format_bandwidth, format_share, parse_bandwidth_bps, parse_memory_bytes
from rm.written_aside import written_aside

if TYPE_CHECKING:
    from rm.api.hosts import Host

COLUMNS = ("HOST", "ZONE", "STATE", "CPUS", "MEMORY", "GPUS", "LINK", "INTERFACE", "JOBS", "REASON")


def _row(host: Host) -> tuple[Any, ...]:
    free_cpus, free_bytes, free_gpus = free_of(host)
    return (
        host.name,
        host.zone,
        state_of(host),
        f"{free_cpus}/{host.cpus}",
        format_share(free_bytes, host.mem_bytes),
        f"{free_gpus}/{len(host.gpus)}",
        format_bandwidth(host.nic_bps) if host.nic_bps else "-",
        cards(host),
        ",".join(map(str, host.jobs or ())) or "-",
        host.drained_by or host.reason or _cannot(host),
    )


SHAPING = {"classes": "has no traffic classes", "bursts": "does not order bursts (BPF)"}


def _cannot(host: Host) -> str:
    """What its kernel cannot do for jobs; without classes there is nothing to order."""
    told = [f"does not limit {', '.join(host.unenforced)}"] if host.unenforced else []
    return "; ".join([*told, *(SHAPING.get(name, name) for name in host.unshaped[:1])])


@click.command()
@hosts_operand
@click.option("--zone", metavar="ZONE", help="Only of this zone.")
@json_option
@click.pass_obj
def hosts(
    session: Session, /, hosts: tuple[str, ...], host_words: tuple[str, ...], zone: str | None, as_json: bool
) -> None:
    """List hosts, or these HOSTs, with their resources, free and in all."""
    found = [host for host in session.client.hosts() if zone in (None, host.zone)]
    if words := (*hosts, *host_words):
        named = {host.name: host for host in found}
        missing = next((name for name in host_names(words) if name not in named), None)
        if missing is not None:
            where = f" in zone {zone}" if zone else ""
            raise NotFound(f"There is no host '{missing}'{where}.", "`rmx hosts` lists them.")
        found = [named[name] for name in host_names(words)]
    if as_json:
        emit_json({"hosts": found})
    else:
        table(COLUMNS, [_row(host) for host in found], right=("CPUS", "MEMORY", "GPUS", "LINK"))


@click.group(cls=Group)
def host() -> None:
    """Add, import, export, drain, resume, adopt and remove hosts; accept their keys."""


def _told(fields: Mapping[str, Any], as_json: bool, sentence: str) -> None:
    if as_json:
        emit_json(fields)
    else:
        click.echo(sentence)


def _declared(host: Host) -> dict[str, Any]:
    """What somebody has said of the host; its agent finds the rest again."""
    from rm.core.model.host import gpu_features

    names = ("zone", "address", "port", "login", "partitions")
    counts = ("cpus", "mem_bytes", "gpus", "nic_bps", "interface")
    fields = {n: getattr(host, n) for n in (*names, *(one for one in counts if one not in host.found))}
    of_gpus = gpu_features(gpu.model for gpu in host.gpus)
    return {**fields, "features": [one for one in host.features if one not in of_gpus]}


@host.command("add")
@host_operand
@click.option("--zone", metavar="NAME", help="Default: default.")
@click.option("--address", metavar="ADDRESS", help="Where its sshd listens (default: its name).")
@click.option("--port", type=click.IntRange(1, 65535), help="Default: 22.")
@click.option("--login", metavar="USER", help="The SSH user (default: root).")
@click.option("--cpus", type=click.IntRange(1), metavar="N", help="Default: what its agent finds.")
@click.option("--mem", metavar="SIZE", help="Default: what its agent finds.")
@click.option("--gpus", metavar="[MODEL:]N", help="Default: what its agent finds.")
@click.option("--bandwidth", metavar="RATE", help="Capacity of its link, such as 10Gbps.")
@click.option("--interface", metavar="NAME", help="Its network interface for job traffic.")
@click.option("--partition", multiple=True, metavar="NAME")
@click.option("--feature", multiple=True, metavar="NAME", help="For --constraint of jobs.")
@click.option("--group", multiple=True, metavar="NAME", help="A group for playbooks.")
@json_option
@click.pass_obj
def add(session: Session, /, host: str | None, host_word: str | None, as_json: bool, **given: Any) -> None:
    """Add HOST, or change its settings: of one that is there already, what is not named stays."""
    name = one_host(host, host_word)
    from rm.api.hosts import Gpu, HostRequest

    known = next((one for one in session.client.hosts() if one.name == name), None)
    fields = {} if known is None else _declared(known)
    named = ("zone", "address", "port", "login", "cpus", "interface")
    fields |= {key: given[key] for key in named if given[key]}
    if given["mem"]:
        fields["mem_bytes"] = parse_memory_bytes(given["mem"])
    if given["bandwidth"]:
        fields["nic_bps"] = parse_bandwidth_bps(given["bandwidth"])
    if given["partition"]:
        fields["partitions"] = list(given["partition"])
    if given["feature"]:
        fields["features"] = list(given["feature"])
    if given["group"]:
        fields["variables"] = {"group_names": json.dumps(sorted(set(given["group"])))}
    if given["gpus"]:
        model, _, number = given["gpus"].rpartition(":")
        if not number.isdecimal():
            raise UsageError(f"--gpus is '{given['gpus']}'.", "Write a number, or MODEL:NUMBER.")
        fields["gpus"] = [Gpu(index=i, model=model) for i in range(int(number))]
    asked = HostRequest(name=name, **{"address": name, **fields})
    done = "added" if known is None else "already known, and updated"
    _told({"hosts": session.client.add_hosts([asked])}, as_json, f"Host {name} is {done}.")


@host.command("import")
@click.argument("inventory", required=False, metavar="[FILE]")
@click.option("--file", "file_option", metavar="FILE", help="The same as FILE.")
@json_option
@click.pass_obj
def import_(session: Session, /, inventory: str | None, file_option: str | None, as_json: bool) -> None:
    """Add all hosts of the inventory FILE (Ansible's YAML or INI)."""
    file = inventory or file_option
    if not file:
        raise UsageError("No inventory is named.", "Write: rmx host import FILE")
    from rm.adapters.playbook.inventory_files import hosts_for_daemon
    from rm.api.hosts import HostRequest
    from rm.typed import convert

    hosts, dropped = hosts_for_daemon(file)
    before = {host.name for host in session.client.hosts()}
    added = session.client.add_hosts([convert(host, HostRequest, from_attributes=True) for host in hosts])
    if dropped:
        note(
            f"{', '.join(dropped)} stay out of the database; seal them with ansible-vault, or use -K and -k."
        )
    known = sum(host.name in before for host in added)
    counts = [(len(added) - known, "added"), (known, "already known, and updated")]
    said = " and ".join(f"{number} {_are(number)} {what}" for number, what in counts if number)
    _told({"hosts": added}, as_json, f"{said}.")


def _are(number: int) -> str:
    return "host is" if number == 1 else "hosts are"


@host.command()
@click.option("--format", "form", type=click.Choice(["yaml", "ini"]), default="yaml", show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Write there instead of to standard output.")
@json_option
@click.pass_obj
def export(session: Session, /, form: str, output: str | None, as_json: bool) -> None:
    """Write all hosts as an Ansible inventory."""
    from rm.cli.playbook.inventory import daemon_hosts
    from rm.playbook.inventory.export import as_ini, as_yaml

    hosts = daemon_hosts(session)
    text = as_yaml(hosts) if form == "yaml" else as_ini(hosts)
    if output:
        _write_privately(output, text)
    if as_json:
        emit_json({"hosts": len(hosts), "format": form, "inventory": text, "output": output or ""})
    elif output:
        click.echo(f"{len(hosts)} hosts are written to {output}.")
    else:
        click.echo(text, nl=False)


def _write_privately(path: str, text: str) -> None:
    """For the owner only: the variables may hold secrets. A pipe or a device is written to directly."""
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "w", encoding="utf-8") as there:
                there.write(text)
            return
        with written_aside(path, 0o600) as file:
            file.write(text.encode())
    except OSError as problem:
        raise UsageError(f"{path} cannot be written: {problem.strerror}.") from None


host.add_command(show)


def _each(words: Iterable[str], act: Callable[[str], Host], as_json: bool, done: str) -> int:
    """Do it to every host; a failure does not keep the others from it, and is the exit code."""
    changed, code = [], 0
    for name in host_names(words):
        try:
            changed.append(act(name))
        except RmError as error:
            note(str(error))
            code = error.exit_code
            continue
        if not as_json:
            click.echo(f"Host {name} {done}")
    if as_json:
        emit_json({"hosts": changed})
    return code


@host.command()
@hosts_operand
@click.option("--reason", default="", metavar="TEXT", help="Why; shown by `rmx hosts`.")
@json_option
@click.pass_obj
def drain(
    session: Session, /, hosts: tuple[str, ...], host_words: tuple[str, ...], reason: str, as_json: bool
) -> int:
    """Let HOSTs finish their jobs and take no new ones."""
    client, names = session.client, (*hosts, *host_words)
    return _each(names, lambda name: client.drain(name, reason), as_json, "takes no new jobs.")


@host.command()
@hosts_operand
@json_option
@click.pass_obj
def resume(session: Session, /, hosts: tuple[str, ...], host_words: tuple[str, ...], as_json: bool) -> int:
    """Let drained HOSTs take jobs again."""
    client = session.client
    return _each((*hosts, *host_words), client.resume, as_json, "takes jobs again.")


@host.command()
@hosts_operand
@click.option("--stop-jobs", is_flag=True, help="Kill what the other cluster's jobs run there.")
@json_option
@click.pass_obj
def adopt(
    session: Session, /, hosts: tuple[str, ...], host_words: tuple[str, ...], stop_jobs: bool, as_json: bool
) -> int:
    """Take HOSTs over from another cluster, whose daemon they then refuse.

    The files of the other cluster's jobs there, logs included, are removed.
    """
    client, names = session.client, (*hosts, *host_words)

    def one(name: str) -> Host:
        return client.adopt(name, stop_jobs=stop_jobs)

    return _each(names, one, as_json, "belongs to this cluster now.")


@host.command()
@hosts_operand
@json_option
@click.pass_obj
def remove(session: Session, /, hosts: tuple[str, ...], host_words: tuple[str, ...], as_json: bool) -> int:
    """Forget HOSTs; they must hold no job."""
    client = session.client
    return _each((*hosts, *host_words), client.remove_host, as_json, "is removed.")


host.add_command(show_key)
host.add_command(accept_key)
