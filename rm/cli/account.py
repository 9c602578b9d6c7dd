"""`rmx account`: accounts, their shares, and who is in them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rm.cli.account_file import ROOT, as_toml, from_toml
from rm.cli.groups import Group
from rm.cli.output import printable
from rm.cli.session import Session, emit_json, json_option, table
from rm.cli.sharing_limits import changes_of, given_of, limit_option, words_of
from rm.errors import UsageError

if TYPE_CHECKING:
    from rm.api.sharing import Accounts

SHARES = click.IntRange(0, 2**31 - 1)


@click.group(cls=Group)
def account() -> None:
    """Share the cluster among accounts."""


@account.command()
@click.argument("name")
@click.argument("users", nargs=-1)
@click.option("--parent", metavar="ACCOUNT", help="Below this account (default: the root).")
@click.option("--shares", type=SHARES, help="Of the account, or of the users in it (default: 1).")
@click.option("--description", metavar="TEXT", help="Free text.")
@click.option("--qos", metavar="NAME", help="Of jobs that name no QOS; empty: the parent's.")
@limit_option
@click.option("--default", is_flag=True, help="It becomes the default account of these users.")
@click.pass_obj
def add(
    session: Session, /, name: str, users: tuple[str, ...], limits: tuple[str, ...], **options: Any
) -> None:
    """Add an account, or USERS to an account."""
    sharing = session.client.sharing
    options["limits"] = given_of(limits) or None
    if users:
        sharing.put_members(name, users, **_of_users(options))
        click.echo(f"{', '.join(users)}: in account {name}.")
        return
    _refuse_default(options)
    sharing.add_account(name, **_given(options))
    click.echo(f"Account {name} is there.")


@account.command("set")
@click.argument("name")
@click.argument("users", nargs=-1)
@click.option("--parent", metavar="ACCOUNT", help="Below this account from now on; root: below none.")
@click.option("--shares", type=SHARES, help="Of the account, or of the users in it.")
@click.option("--description", metavar="TEXT", help="Free text.")
@click.option("--qos", metavar="NAME", help="Of jobs that name no QOS; empty: the parent's.")
@limit_option
@click.option("--default", is_flag=True, help="It becomes the default account of these users.")
@click.pass_obj
def set_(
    session: Session, /, name: str, users: tuple[str, ...], limits: tuple[str, ...], **options: Any
) -> None:
    """Change an account, or what USERS have in it; of the account root the limits of the cluster."""
    sharing = session.client.sharing
    options["limits"] = changes_of(limits) or None
    if not _given(options):
        raise UsageError("The request changes nothing.", "Name an option, such as --shares.")
    if users:
        known = {one.user for one in sharing.accounts().members if one.account == name}
        if strangers := [user for user in users if user not in known]:
            raise UsageError(f"{strangers[0]} is not in account {name}.", f"rmx account add {name} USER.")
        sharing.put_members(name, users, **_of_users(options))
    else:
        _refuse_default(options)
        sharing.set_account(name, **_given(options))
    click.echo(f"Account {name} is changed.")


@account.command()
@click.argument("name")
@click.argument("users", nargs=-1)
@click.pass_obj
def remove(session: Session, /, name: str, users: tuple[str, ...]) -> None:
    """Remove an account, or USERS from it.

    Only what no job that has not ended runs for can go.
    """
    sharing = session.client.sharing
    if not users:
        sharing.remove_account(name)
        click.echo(f"Account {name} is removed.")
    for user in users:
        sharing.remove_member(name, user)
        click.echo(f"{user} is no longer in account {name}.")


@account.command()
@json_option
@click.pass_obj
def show(session: Session, /, as_json: bool) -> None:
    """List the accounts as a tree, with their users."""
    found = session.client.sharing.accounts()
    if as_json:
        emit_json({"accounts": found.accounts, "members": found.members, "limits": found.limits})
        return
    if not found.accounts:
        click.echo("There are no accounts. `rmx account add NAME` makes one.")
        return
    header = ("ACCOUNT", "USER", "SHARES", "DEFAULT", "QOS", "LIMITS", "DESCRIPTION")
    rows = list(_rows(found, ROOT))
    if found.limits:
        rows.insert(0, (ROOT, "", "", "", "", words_of(found.limits), ""))
    table(header, rows, right=("SHARES",))


@account.command("export")
@click.pass_obj
def export_(session: Session, /) -> None:
    """Print all accounts as TOML, as `import` reads it."""
    click.echo(as_toml(session.client.sharing.accounts()), nl=False)


@account.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@click.option("--empty", is_flag=True, help="Also from a FILE without accounts: all accounts are removed.")
@click.pass_obj
def import_(session: Session, /, file: Path, empty: bool) -> None:
    """Let the accounts be those of a TOML FILE, and no others (-: what comes in)."""
    read = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    wanted = from_toml(read, str(file))
    if not wanted[0] and not empty and (there := len(session.client.sharing.accounts().accounts)):
        raise UsageError(
            f"{file} has no accounts: to import it would remove all {there} that there are.",
            "If that is meant, say --empty.",
        )
    made = session.client.sharing.import_accounts(*wanted)
    users = len({one.user for one in made.members})
    click.echo(f"{len(made.accounts)} accounts, {users} users, {len(made.qos)} QOS.")


def _rows(found: Accounts, parent: str, depth: int = 0) -> Iterator[tuple[Any, ...]]:
    for one in found.accounts:
        if one.parent == parent:
            said = printable(one.description)
            yield " " * depth + one.name, "", one.shares, "", one.qos, words_of(one.limits), said
            for member in found.members:
                if member.account == one.name:
                    default = "yes" if member.default else ""
                    limits = words_of(member.limits)
                    yield " " * (depth + 1), printable(member.user), member.shares, default, "", limits, ""
            yield from _rows(found, one.name, depth + 1)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    # by identity: 0 shares are said, and equal False
    return {name: value for name, value in options.items() if value is not None and value is not False}


def _of_users(options: Mapping[str, Any]) -> dict[str, Any]:
    given = _given(options)
    for name in ("parent", "description", "qos"):
        if name in given:
            raise UsageError(f"--{name} is for accounts, not for users.", "Leave the users out.")
    return given


def _refuse_default(options: Mapping[str, Any]) -> None:
    if options["default"]:
        raise UsageError("--default is for users.", "Name them: rmx account set NAME USER --default.")
