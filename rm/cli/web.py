"""`rmx web`: the page, served on this machine by a process of its own."""

from __future__ import annotations

import click

from rm.cli.session import Session, note
from rm.errors import UsageError


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="ADDRESS:PORT",
    help="Where; port 0 takes any that is free.",
)
@click.option(
    "--name", "names", multiple=True, metavar="NAME", help="Another name that this machine is called by."
)
@click.pass_obj
def web(session: Session, /, listen: str, names: tuple[str, ...]) -> None:
    """Serve the page about jobs, links and the network until Ctrl-C. It reads only."""
    import asyncio

    from rm.web.pages.listen import address_of, is_local, serve_page

    host, _ = address_of(listen)
    socket = _socket_of(session)

    async def serve() -> None:
        runner, url = await serve_page(socket, listen, names)
        click.echo(url)
        if not is_local(host):
            note("Whoever reaches this address can read the page: it asks nobody who they are.")
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
    from rm.cli.ssh_door import SshDoor

    door = SshDoor(address)
    door.open()
    return door.local
