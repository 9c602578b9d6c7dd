"""`rmx web`: the page, served on this machine by a process of its own."""

from __future__ import annotations

import click

from rm.cli.output import note
from rm.cli.session import Session
from rm.errors import UsageError


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="ADDRESS:PORT",
    help="Address and port; port 0 takes a free one.",
)
@click.option(
    "--name", "names", multiple=True, metavar="NAME", help="Another name that this machine is called by."
)
@click.option("--anonymous", is_flag=True, help="Let anyone who reaches the address look without logging in.")
@click.pass_obj
def web(session: Session, /, listen: str, names: tuple[str, ...], anonymous: bool) -> None:
    """Serve the page about jobs, links and the network until Ctrl-C.

    Anyone who opens the printed link has your rights: keep it to yourself.
    """
    import asyncio
    import secrets

    from rm.web.pages.listen import address_of, is_local, serve_page
    from rm.web.pages.settings import PageSettings

    host, _ = address_of(listen)
    socket = _socket_of(session)
    settings = PageSettings(names, anonymous, own_key=secrets.token_urlsafe(24))

    async def serve() -> None:
        runner, url = await serve_page(socket, listen, settings)
        click.echo(f"{url}enter?key={settings.own_key}")
        if anonymous:
            note(f"Anyone who reaches {url} can look at the page without logging in.")
        if not is_local(host):
            note("The page is not encrypted: anyone who listens on the way can impersonate you.")
        try:
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    asyncio.run(serve())


def _socket_of(session: Session) -> str:
    """A socket of this machine that leads to the daemon, for as long as the connection over SSH lives."""
    address = session.address
    if address.scheme == "https":
        raise UsageError(
            f"The page cannot be served for {address}: it needs the daemon's socket.",
            "Use an ssh:// address, or the page of that daemon itself.",
        )
    if address.scheme == "unix":
        return address.path
    from rm.client.ssh_door import SshDoor

    door = SshDoor(address)
    door.open()
    return door.local
