"""`rmx config`: the configuration as the daemon would see it, and what is wrong with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from rm.cli.groups import Group
from rm.cli.output import note
from rm.cli.session import Session, emit_json, json_option
from rm.errors import ConfigError

if TYPE_CHECKING:
    from rm.config import Loaded


@click.group(cls=Group)
def config() -> None:
    """Show and check the configuration, and where it comes from."""


def _loaded(session: Session) -> Loaded:
    from rm.config import load

    return load(
        session.config_flag, flags={"daemon.socket": session.socket_flag} if session.socket_flag else None
    )


def _complaints(loaded: Loaded) -> list[str]:
    import logging

    from rm.bootstrap.checks import complaints

    logging.getLogger("rm").addHandler(logging.NullHandler())  # the daemon's log would say it once more
    return [loaded.located(sentence) for sentence in complaints(loaded.config)]


@config.command()
@json_option
@click.pass_obj
def check(session: Session, /, as_json: bool) -> int:
    """List all errors of the configuration, also of policies, meshes, alerts and certificates."""
    loaded = _loaded(session)
    found = _complaints(loaded)
    if as_json:
        emit_json({"complaints": found})
    for sentence in () if as_json else found:
        note(sentence)
    if not found and not as_json:
        click.echo("Nothing is wrong with the configuration.")
    return ConfigError.exit_code if found else 0


@config.command()
@click.option("--origin", is_flag=True, help="Also show where each value comes from.")
@json_option
@click.pass_obj
def show(session: Session, /, origin: bool, as_json: bool) -> None:
    """Print every key with its value, as rm.toml, the environment and flags make it."""
    from rm.config import flatten

    loaded = _loaded(session)
    for sentence in _complaints(loaded):
        note(sentence)
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
