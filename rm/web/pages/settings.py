"""Who is let in to the page, and how."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rm.errors import ConfigError

PROXY_SECRET = "Rm-Proxy-Secret"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


class WebSettings(Protocol):
    """The table [web] of rm.toml."""

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def anonymous(self) -> bool: ...
    @property
    def session_hours(self) -> float: ...
    @property
    def proxy_header(self) -> str: ...
    @property
    def proxy_addresses(self) -> Sequence[str]: ...
    @property
    def proxy_secret_file(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Proxy:
    """A reverse proxy that has asked people who they are: it names them in `header`. It is believed at
    `addresses` only and, where it has one, with its secret. Without a secret it must be on another machine:
    every user of this one can connect from its addresses."""

    header: str
    addresses: tuple[Network, ...]
    secret: str = field(default="", repr=False)

    def trusts(self, address: str, secret: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        here = any(found in network for network in self.addresses)
        given = secret.encode("utf-8", "surrogatepass")  # any bytes that a header can have
        proven = hmac.compare_digest(given, self.secret.encode())
        return here and proven and (bool(self.secret) or not is_own(found))


def is_own(address: Address) -> bool:
    """Is it one of this machine's addresses? Only to those a socket can be bound."""
    kind = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as own:
            own.bind((str(address), 0))
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class PageSettings:
    """`anonymous`: who is not logged in may look. `own_key`: who knows it is the user whose process this
    is; "" = nobody is."""

    names: tuple[str, ...] = ()
    anonymous: bool = False
    session_s: float = 12 * 3600
    proxy: Proxy | None = None
    own_key: str = field(default="", repr=False)


def settings_of(web: WebSettings) -> PageSettings:
    """Raises ConfigError."""
    return PageSettings(tuple(web.names), web.anonymous, web.session_hours * 3600, proxy_of(web))


def proxy_of(web: WebSettings) -> Proxy | None:
    if not web.proxy_header:
        return None
    addresses = []
    for text in web.proxy_addresses:
        try:
            addresses.append(ipaddress.ip_network(text))
        except ValueError:
            raise ConfigError(
                f"web.proxy_addresses names '{text}', which is not an address.",
                "Write addresses or networks: 10.0.0.7, 10.0.0.0/24.",
            ) from None
    if not addresses:
        raise ConfigError(
            "web.proxy_header is set, and web.proxy_addresses is empty.",
            "Name the addresses that the reverse proxy connects from.",
        )
    secret = ""
    if web.proxy_secret_file:
        try:
            secret = Path(web.proxy_secret_file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"web.proxy_secret_file cannot be read: {error}.") from None
        if len(secret) < 16:
            raise ConfigError("The secret in web.proxy_secret_file has fewer than 16 characters.")
    local = [a for a in addresses for own in LOOPBACK if a.version == own.version and a.overlaps(own)]
    local += [a for a in addresses if a.num_addresses == 1 and is_own(a.network_address)]
    if local and not secret:
        raise ConfigError(
            f"web.proxy_addresses has {local[0]}, from which every user of this machine can connect.",
            f"Set web.proxy_secret_file, and let the proxy send its content as {PROXY_SECRET}.",
        )
    return Proxy(web.proxy_header, tuple(addresses), secret)
