"""Where users reach a daemon's doors from other machines, as its lease says it to those that wait."""

from __future__ import annotations

import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from rm.config import Config
from rm.core.store import Doors
from rm.errors import ConfigError
from rm.web.pages.listen import address_of, is_local

EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})


def doors_of(config: Config) -> Doors:
    """`https.url` and `web.url`; where one is "", the address that the door listens on, or this machine's
    name if it listens on all of them. A door whose port is chosen when it opens has no address.

    Raises:
        ConfigError: one of them is not a URL of such a door.
    """
    https, page = config.https, config.web
    return Doors(
        _given(https.url, "https.url", ("https",), "https://rm.example.org:6832").rstrip("/")
        or _listened(https.listen, "https.listen", "https"),
        _given(page.url, "web.url", ("https", "http"), "https://rm.example.org/")
        or _listened(page.listen, "web.listen", "http", "/"),
    )


def is_of_one_machine(url: str) -> bool:
    """Does it mean another machine wherever it is read?"""
    return is_local(urlsplit(url).hostname or "")


def _given(url: str, key: str, schemes: Collection[str], example: str) -> str:
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        sound = bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if (
        not sound
        or parts.scheme not in schemes
        or parts.netloc.rpartition("@")[1]
        or parts.query
        or parts.fragment
        or (key == "https.url" and parts.path.strip("/"))
        or not (url.isascii() and url.isprintable() and " " not in url)
    ):
        raise ConfigError(f"{key} is '{url}', which is not an address of this door.", f"Write {example}.")
    return url


def _listened(listen: str, key: str, scheme: str, path: str = "") -> str:
    if not listen:
        return ""
    host, port = address_of(listen, key)
    name = socket.gethostname() if host in EVERY_ADDRESS else host
    return f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}{path}" if port else ""
