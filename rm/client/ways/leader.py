"""Where the daemon is that leads, as another daemon of the cluster tells."""

from __future__ import annotations

import http.client
import socket

from rm.client.address import Address, parse
from rm.errors import ConfigError

LEADER, LEADER_URL = "Rm-Leader", "Rm-Leader-Url"


def named_leader(address: Address, response: http.client.HTTPResponse) -> Address | None:
    """The leader that the daemon at `address` names in its answer, for the same user; None: it names nobody.

    Raises:
        ConfigError: it is none to which the user's token may go.
    """
    return _at_https(address, response) if address.scheme == "https" else _at_socket(address, response)


def _at_socket(address: Address, response: http.client.HTTPResponse) -> Address | None:
    machine, _, path = response.getheader(LEADER, "").partition(" ")
    if not path:
        return None
    if address.scheme == "unix" and machine == socket.gethostname():
        return Address("unix", path)
    leader = parse(f"ssh://{machine}{path}", "the leader's address")
    # the account decides who the caller is: it must be the one that the user named
    return leader._replace(user=address.user, port=address.port)


def _at_https(address: Address, response: http.client.HTTPResponse) -> Address | None:
    """The token goes only where the user's own configuration says, for any answer of a daemon."""
    url = response.getheader(LEADER_URL, "")
    if not url:
        return None
    leader = parse(url, "the leader's address")
    if not address.names(leader):
        raise ConfigError(
            f"The daemon at {address} waits: another leads the cluster, at {url}, which your "
            "configuration does not name.",
            f'Add it to rm.toml, if you trust it: [daemon] peers = ["{url}"], or set RM_DAEMON={url}.',
        )
    return address.at(leader)
