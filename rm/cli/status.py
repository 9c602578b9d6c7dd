"""`rmx status`: is the daemon well, and what does it hold?"""

from __future__ import annotations

from collections.abc import Mapping

import click

from rm.cli.output import printable
from rm.cli.session import Session, emit_answer, json_option
from rm.cli.shown import exact_moment
from rm.units import fold_hosts


@click.command()
@json_option
@click.pass_obj
def status(session: Session, /, as_json: bool) -> None:
    """Show the daemon's version and age, and counts of jobs and hosts by state."""
    client = session.client
    answer = client.status()
    if as_json:
        emit_answer(answer)
        return
    daemon = answer.daemon
    click.echo(f"daemon    {daemon.version}, pid {daemon.pid}, since {exact_moment(daemon.started_us)}")
    click.echo(f"socket    {client.connection.answers_at}")
    if answer.waiting:
        click.echo(f"waiting   {printable(answer.waiting)}")
    for damage in answer.set_aside:
        click.echo(f"damaged   {printable(damage)} It is set aside in the table set_aside.")
    for fault in answer.policy_faults:
        click.echo(f"policy    {printable(fault)} The daemon's log has the details.")
    if others := answer.other_agents:
        where = printable(fold_hosts(others))
        click.echo(f"agents    another version than this rm's on {where}: run `rmx playbook run agents`")
    counts: dict[str, Mapping[str, object]] = {
        "jobs": answer.jobs, "hosts": answer.hosts, "policies": answer.policies
    }  # fmt: skip
    for one in answer.licenses:
        used = "?" if one.used is None else one.used
        click.echo(f"licences  {printable(one.name)}: {used} of {one.total} in use")
    for title, counted in counts.items():
        pairs = ", ".join(f"{name} {value}" for name, value in counted.items())
        nothing = "not known while the daemon waits" if answer.waiting else "none"
        click.echo(f"{title:<10}{printable(pairs) or nothing}")
