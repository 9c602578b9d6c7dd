"""Why a daemon is late with its answer, for commands that scripts call in loops."""

from __future__ import annotations

from rm.cli.output import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rm.client.address import Address


def say_why(address: Address) -> bool:
    """Say on standard error what the daemon waits for, if it says so itself. False: it says nothing."""
    from rm.client.ways.silence import what_it_waits_for, who_leads

    if why := what_it_waits_for(address):
        note(why)
    return bool(why) or who_leads(address) is not None
