"""`rmx monitor import` and `export`: pSConfig mesh files, perfSONAR's way to say who measures what."""

from __future__ import annotations

import json
from typing import Any

import click

from rm.cli.output import note
from rm.cli.session import Session
from rm.core.model.host import Host
from rm.errors import UsageError


@click.command("import")
@click.argument("file", type=click.File(encoding="utf-8"))
@click.pass_obj
def import_psconfig(session: Session, /, file: Any) -> None:
    """Print the tasks of a pSConfig FILE (- = standard input) as meshes for rm.toml, and their archives."""
    from rm.adapters.sources.psconfig import tables_of, toml_of
    from rm.adapters.sources.psconfig_archives import archives_of

    try:
        document = json.load(file)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file.name} is not JSON: {error}.") from None
    hosts = [Host(h.name, h.zone, h.address) for h in session.client.hosts()]
    mesh_of = dict[str, str]()
    tables, said = tables_of(document, hosts, mesh_of)
    archives = archives_of(document, mesh_of, said)
    for sentence in said:
        note(sentence)
    if tables:
        click.echo(toml_of(tables))
    if archives:
        click.echo("\n" + toml_of(archives, "archive"))


@click.command("export")
@click.argument("meshes", nargs=-1, metavar="[MESH]...")
@click.pass_obj
def export_psconfig(session: Session, /, meshes: tuple[str, ...]) -> None:
    """Print meshes, or all, as a pSConfig file."""
    from rm.adapters.sources.psconfig import document_of

    found = [mesh for mesh in session.client.monitor.meshes().meshes if mesh.kind == "mesh"]
    names = [mesh.name for mesh in found]
    for name in meshes:
        if name not in names:
            raise UsageError(f"There is no mesh '{name}'.", f"There are: {', '.join(names)}.")
    chosen = [mesh for mesh in found if not meshes or mesh.name in meshes]
    addresses = {host.name: host.address for host in session.client.hosts()}
    click.echo(json.dumps(document_of(chosen, addresses), indent=2, ensure_ascii=False))
