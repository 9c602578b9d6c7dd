"""`rmx token`: tokens for the HTTPS door."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rm.cli.groups import Group
from rm.cli.output import note
from rm.cli.session import Session, emit_json, json_option, table

if TYPE_CHECKING:
    from rm.api.accounts import TokenScope


@click.group(cls=Group)
def token() -> None:
    """Make, list and revoke tokens for an https:// address."""


@token.command()
@click.option(
    "--scope", type=click.Choice(("read", "submit", "operate", "admin")), required=True,
    help="What it allows, within its owner's rights.",
)  # fmt: skip
@click.option("--expires", default="30d", show_default=True, metavar="TIME", help="How long it is valid.")
@click.option("--name", default="", metavar="TEXT", help="What it is for.")
@click.option("--user", default="", metavar="USER", help="For another user; administrators only.")
@json_option
@click.pass_obj
def create(session: Session, /, scope: TokenScope, expires: str, name: str, user: str, as_json: bool) -> None:
    """Make a token and print it: it is never shown again."""
    from rm.units import SECOND_US, parse_duration_us

    made = session.client.accounts.create_token(
        scope, parse_duration_us(expires) / SECOND_US, name=name, user=user
    )
    if as_json:
        emit_json({"token": made.token, "text": made.text})
        return
    click.echo(made.text)
    note(f"Token {made.token.id} of {made.token.user}. Keep it in a file that only you may read.")


@token.command("list")
@click.option("--user", default="", metavar="USER", help="Of another user; administrators only.")
@click.option("--all", "everybody", is_flag=True, help="Of all users; administrators only.")
@json_option
@click.pass_obj
def list_(session: Session, /, user: str, everybody: bool, as_json: bool) -> None:
    """List tokens, when they end, and when and from where each was used last."""
    from rm.cli.shown import exact_moment

    found = session.client.accounts.tokens("*" if everybody else user)
    if as_json:
        emit_json({"tokens": found})
        return
    rows = [
        (
            one.id,
            one.user,
            one.scope,
            "live" if one.live else "revoked" if one.revoked_us else "over",
            exact_moment(one.expires_us),
            exact_moment(one.used_us) if one.used_us else "never",
            one.used_from or "-",
            one.name,
        )
        for one in found
    ]
    table(("ID", "USER", "SCOPE", "STATE", "ENDS", "LAST USED", "FROM", "NAME"), rows)


@token.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.pass_obj
def revoke(session: Session, /, ids: tuple[str, ...]) -> None:
    """End tokens at once."""
    for one in ids:
        session.client.accounts.revoke_token(one)
        click.echo(f"Token {one} is revoked.")
