"""A message of an alert to an address of the web."""

from __future__ import annotations

from urllib.parse import urlsplit

from rm.adapters.http_exchange import AGAIN, NoAnswer, status_of
from rm.core.alerts.channel import NotTold

HEADERS = {"Content-Type": "application/json", "User-Agent": "rm"}


def post(
    who: str, address: str, body: bytes, timeout_s: float, ca_file: str, headers: dict[str, str]
) -> None:
    """`who` is the receiver, within a sentence; `body` is JSON; `headers` come beside HEADERS.

    `timeout_s` is of the whole exchange; `ca_file`: certificates to trust, "" = the system's.

    Raises:
        NotTold: it was not taken; the address, which may be a secret, is not in it.
    """
    try:
        status = status_of(
            who,
            "POST",
            address,
            body,
            {**HEADERS, **headers},
            timeout_s=timeout_s,
            ca_file=ca_file,
            proxied=True,
        )
    except NoAnswer as error:
        raise NotTold(str(error)) from None
    if not 200 <= status < 300:
        again = status >= 500 or status in AGAIN
        raise NotTold(f"{who[:1].upper()}{who[1:]} answered with HTTP status {status}.", again)


def host_of(address: str) -> str:
    """What of an address may be shown."""
    try:
        return urlsplit(address).hostname or "?"
    except ValueError:
        return "?"
