"""`rmx daemon`: run the daemon in the foreground."""

from __future__ import annotations

import os

import click

from rm.cli.session import Session


@click.command()
@click.option("--database", metavar="URL", help="Where the state is kept.")
@click.option("--state-dir", metavar="DIR", help="Where the daemon's files are.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
@click.pass_obj
def daemon(session: Session, /, database: str | None, state_dir: str | None, log_level: str | None) -> None:
    """Run the daemon until SIGTERM or Ctrl-C."""
    from rm.collector import made_to_stay

    with made_to_stay():  # a fifth of the time that all these modules take
        from rm.bootstrap.daemon import run_daemon
        from rm.config import load

    flags = {
        "daemon.socket": session.socket_flag,
        "daemon.database": database,
        "daemon.state_dir": state_dir,
        "daemon.log_level": log_level,
    }
    if session.config_flag:
        os.environ["RM_CONFIG"] = os.path.abspath(session.config_flag)  # for the programs that it starts
    given = {key: value for key, value in flags.items() if value is not None}
    loaded = load(session.config_flag, flags=given)
    run_daemon(loaded.config, loaded.located)
