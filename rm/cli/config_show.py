"""`rmx config show`: the configuration as the daemon would see it."""

from __future__ import annotations

import json

import click

from rm.cli.session import Session, emit_json, json_option


@click.group()
def config() -> None:
    """Show the configuration and where it comes from."""


@config.command()
@click.option("--origin", is_flag=True, help="Also where each value comes from.")
@json_option
@click.pass_obj
def show(session: Session, /, origin: bool, as_json: bool) -> None:
    """Print every key with its value, as rm.toml, the environment and flags make it."""
    from rm.config import flatten, load

    flags = {"daemon.socket": session.socket_flag} if session.socket_flag else None
    loaded = load(session.config_flag, flags=flags)
    pairs = list(flatten(loaded.config))
    if as_json:
        values = {
            key: {"value": value, "origin": loaded.origins[key]} if origin else value for key, value in pairs
        }
        emit_json({"config": values})
        return
    section = None
    for key, value in pairs:
        head, _, name = key.rpartition(".")
        if head != section:
            click.echo(f"{'' if section is None else chr(10)}[{head}]")
            section = head
        line = f"{name} = {json.dumps(value, ensure_ascii=False)}"
        click.echo(f"{line:<50}# {loaded.origins[key]}" if origin else line)
