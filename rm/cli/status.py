"""`rmx status`: is the daemon well, and what does it hold?"""

from __future__ import annotations

import click

from rm.cli.jobs.show import moment
from rm.cli.session import Session, emit_json, json_option, printable
from rm.units import fold_hosts


@click.command()
@json_option
@click.pass_obj
def status(session: Session, /, as_json: bool) -> None:
    """Show the daemon's version and age, and counts of jobs and hosts by state."""
    answer = session.client.get("status")
    if as_json:
        emit_json({key: value for key, value in answer.items() if key != "version"})
        return
    daemon = answer["daemon"]
    click.echo(f"daemon    {daemon['version']}, pid {daemon['pid']}, since {moment(daemon['started_us'])}")
    click.echo(f"socket    {session.client.address}")
    if answer.get("waiting"):
        click.echo(f"waiting   {printable(answer['waiting'])}")
    for damage in answer.get("set_aside", ()):
        click.echo(f"damaged   {printable(damage)} It is set aside in the table set_aside.")
    for fault in answer.get("policy_faults", ()):
        click.echo(f"policy    {printable(fault)} The daemon's log has the details.")
    if others := answer.get("other_agents"):
        where = printable(fold_hosts(others))
        click.echo(f"agents    another version than this rm's on {where}: run `rmx playbook run bootstrap`")
    for title in ("jobs", "hosts", "policies"):
        pairs = ", ".join(f"{name} {value}" for name, value in answer[title].items())
        click.echo(f"{title:<10}{printable(pairs) or 'none'}")
