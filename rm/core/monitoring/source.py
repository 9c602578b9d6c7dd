"""Archives of measurements that others made: who they are, and which of their endpoints are our hosts.

A source is a table `[[monitor.source]]` of rm.toml; `parse_source` turns it into a value, or says in
one sentence what is wrong with it, so that one malformed source does not stop the others.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from unicodedata import normalize

from rm.core.model.host import Host
from rm.core.monitoring.listed import heading, names_of
from rm.core.monitoring.maintenance import Window, parse_window
from rm.core.monitoring.mesh import LIMITS, LINK_TESTS, USUAL, Every, Mesh, Thresholds, thresholds_of
from rm.errors import ConfigError, UsageError
from rm.units import DAY_US, HOUR_US, MINUTE_US, SECOND_US, parse_duration_us

URL = re.compile(r"https?://(?:([^\s/@?#%:\[\]]+)|\[([0-9A-Fa-f:.]+)\])(?::(\d{1,5}))?(?:/[^\s?#]*)?")
KINDS = ("maddash", "esmond", "opensearch")


@dataclass(frozen=True, slots=True)
class Source:
    """One archive, read every `every_us`, the first time `back_us` back. It is a grid of its own: its
    cells are judged by `thresholds` after `attempts` tries in a row, as a mesh's are.

    `expect_us`: how often it has something new of each pair; from then on confidence sinks.
    `hosts`: endpoints as the archive calls them -> names of our hosts, besides names and addresses.
    `only`: MaDDash's grids, or the indices of OpenSearch (empty = the usual ones).
    """

    name: str
    kind: str
    url: str
    every_us: int = 5 * MINUTE_US
    back_us: int = HOUR_US
    expect_us: int = HOUR_US
    timeout_us: int = 30 * SECOND_US
    hosts: Mapping[str, str] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    attempts: int = 3
    thresholds: Thresholds = USUAL
    maintenance: tuple[Window, ...] = ()

    @property
    def mesh(self) -> str:
        """Under which name its samples and its grid are kept."""
        return f"{self.kind}:{self.name}"

    @property
    def grid(self) -> Mesh:
        """The mesh as which its cells are judged and shown; nobody runs it."""
        return Mesh(
            self.mesh,
            Every(self.every_us),
            tests=LINK_TESTS,
            rounds=0,
            attempts=self.attempts,
            thresholds=self.thresholds,
            maintenance=self.maintenance,
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """What became of the newest time that a source was read. `message` is "" when all went well."""

    source: str
    tried_us: int = 0
    read_us: int = 0  # the newest success
    recorded: int = 0  # new measurements
    refused: int = 0  # measurements that cannot be true
    strangers: int = 0  # of endpoints that are none of our hosts
    message: str = ""


def parse_source(table: Mapping[str, Any]) -> Source:
    """A source from its table.

    Raises:
        ConfigError: what is wrong, naming the source and the key.
    """
    name, where = heading("source", table, KEYS)
    for key in ("kind", "url"):
        if key not in table:
            raise ConfigError(f"{where} has no '{key}'.", f"Kinds are {', '.join(KINDS)}.")
    values: dict[str, Any] = {"name": name}
    if any(key in LIMITS for key in table):
        values["thresholds"] = thresholds_of(table, where)
    for key, value in table.items():
        if key != "name" and key not in LIMITS:
            try:
                values[FIELD.get(key, key)] = READ[key](value)
            except (ConfigError, UsageError) as error:
                raise ConfigError(f"{where}, {key}: {error.what}", error.hint) from None
    return Source(**values)


def endpoints(hosts: Iterable[Host], source: Source) -> dict[str, str]:
    """What the archive may call our hosts, in small letters, to their names."""
    found: dict[str, str] = {}
    names = set()
    for host in hosts:
        names.add(host.name)
        found[host.address.lower()] = host.name
        found[host.name.lower()] = host.name
    found |= {k.lower(): v for k, v in source.hosts.items() if v in names}
    return found


def _kind(value: object) -> str:
    if value not in KINDS:
        raise ConfigError(f"{value!r:.40} is not one of {', '.join(KINDS)}.")
    return str(value)


def read_url(value: object) -> str:
    hint = "Write http:// or https://, host and path; a user's name goes to 'user' and 'password_file'."
    if isinstance(value, str) and any(sign in value for sign in "@?#"):
        raise ConfigError(
            "The address has more than host and path: a user's name, a password or a query.", hint
        )
    if not isinstance(value, str) or not _is_url(value):
        raise ConfigError("It is not an address of an archive, and not shown: it may hold a password.", hint)
    return value.rstrip("/")


def _is_url(text: str) -> bool:
    """As programs read it: no name of which a sign stands for a slash or its like (RFC 3490), no address of
    IPv6 that is none, no port above 65535."""
    found = URL.fullmatch(text)
    if found is None:
        return False
    name, address, port = found.groups()
    try:
        ipaddress.IPv6Address(address or "::")
    except ValueError:
        return False
    return not set("/?#@:") & set(normalize("NFKC", name or "")) and 0 < int(port or 1) <= 65535


def read_duration(least_us: int, most_us: int) -> Any:
    def read(value: object) -> int:
        if not isinstance(value, str):
            raise ConfigError(f"{value!r:.40} is not a duration.", "Write a number with its unit: 5m.")
        found = parse_duration_us(value)
        if not least_us <= found <= most_us:
            raise ConfigError(f"'{value}' is out of range.")
        return found

    return read


def _hosts(value: object) -> Mapping[str, str]:
    if isinstance(value, Mapping) and all(isinstance(v, str) for v in value.values()):
        return dict(value)
    raise ConfigError(f"{value!r:.60} does not map endpoints to names of hosts.")


def read_text(value: object) -> str:
    """A text. What else stands there is not shown: it may be the secret that a file should hold."""
    if isinstance(value, str):
        return value
    raise ConfigError("It is not text.")


def _attempts(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000:
        raise ConfigError(f"{value!r:.40} is not a whole number from 1 to 1000.")
    return value


READ: Mapping[str, Any] = {
    "kind": _kind,
    "url": read_url,
    "every": read_duration(10 * SECOND_US, 7 * DAY_US),
    "back": read_duration(MINUTE_US, 31 * DAY_US),
    "expect": read_duration(SECOND_US, 31 * DAY_US),
    "timeout": read_duration(SECOND_US, 10 * MINUTE_US),
    "hosts": _hosts,
    "only": names_of,
    "user": read_text,
    "password_file": read_text,
    "ca_file": read_text,
    "retry_attempts": _attempts,
    "maintenance": lambda value: tuple(parse_window(text) for text in names_of(value)),
}
FIELD = {
    "every": "every_us",
    "back": "back_us",
    "expect": "expect_us",
    "timeout": "timeout_us",
    "retry_attempts": "attempts",
}
KEYS = ("name", *READ, *LIMITS)
