"""The way to a daemon, by its address; each is loaded only when it is taken."""

from __future__ import annotations

from rm.client.address import Address
from rm.client.unix_door import Door, UnixDoor


def door_to(address: Address) -> Door:
    if address.scheme == "ssh":
        from rm.client.ssh_door import SshDoor

        return SshDoor(address)
    if address.scheme == "https":
        from rm.client.https_door import HttpsDoor

        return HttpsDoor(address)
    return UnixDoor(address.path)
