"""Where users reach a daemon's doors from other machines, as its lease says it to those that wait."""

from __future__ import annotations

import re
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from rm.config import Config
from rm.core.store import Doors
from rm.errors import ConfigError
from rm.web.pages.listen import address_of, is_local

# as in a URL, and no option of ssh
MACHINE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?\]")
EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})


def doors_of(config: Config) -> Doors:
    """`https.url` and `web.url`; where one is "", the address that the door listens on, or this machine's
    name if it listens on all of them. A door whose port is chosen when it opens has no address. The
    machine is `daemon.advertise`.

    Raises:
        ConfigError: one of them is not a URL of such a door, or no name of a machine.
    """
    https, page, machine = config.https, config.web, _advertised(config.daemon.advertise)
    name = machine or socket.gethostname()
    return Doors(
        _given(https.url, "https.url", ("https",), "https://rm.example.org:6832").rstrip("/")
        or _listened(https.listen, "https.listen", "https", name),
        _given(page.url, "web.url", ("https", "http"), "https://rm.example.org/")
        or _listened(page.listen, "web.listen", "http", name, "/"),
        machine,
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


def _advertised(name: str) -> str:
    found = f"[{name}]" if ":" in name and not name.startswith("[") else name
    if found and not MACHINE.fullmatch(found):
        raise ConfigError(
            f"daemon.advertise is '{name}', which is not the name or address of a machine.",
            "Write control1.example.org or 10.0.0.1.",
        )
    return found


def _listened(listen: str, key: str, scheme: str, name: str, path: str = "") -> str:
    if not listen:
        return ""
    host, port = address_of(listen, key)
    if host not in EVERY_ADDRESS:
        name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{port}{path}" if port else ""
