"""Why a daemon is late with its answer, for commands that scripts call in loops."""

from __future__ import annotations

from rm.cli.output import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rm.client.address import Address


def say_why(address: Address) -> None:
    """Say on standard error what the daemon waits for, if it says so itself."""
    from rm.client.ways.silence import what_it_waits_for

    if why := what_it_waits_for(address):
        note(why)
