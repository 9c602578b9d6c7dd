"""What a host asks of a service, by itself: a name server for records, a web server for a page.

The keys are those of perfSONAR's tests `dns` and `http`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rm.errors import ConfigError
from rm.units import SECOND_US

RECORDS = ("a", "aaaa", "ns", "cname", "soa", "ptr", "mx", "txt")
URL = re.compile(r"https?://(?:[^\s/@?#%:\[\]]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?(?:[/?][^\s#]*)?")


@dataclass(frozen=True, slots=True)
class ServiceTest:
    """`nameserver` "": the one that the host itself uses. `contains`: text that the page must have."""

    query: str = ""
    record: str = "a"
    nameserver: str = ""
    url: str = ""
    contains: str = ""
    timeout_us: int = 10 * SECOND_US

    def in_words(self, test: str) -> str:
        """What is asked, and whom."""
        if test == "http":
            return self.url.partition("?")[0]
        return f"{self.record} of {self.query} at {self.nameserver or 'the usual name server'}"


def read_record(value: object) -> str:
    """Raises ConfigError."""
    found = value.lower() if isinstance(value, str) else ""
    if found not in RECORDS:
        raise ConfigError(f"{value!r:.40} is not one of {', '.join(RECORDS)}.")
    return found


def read_url(value: object) -> str:
    """Raises ConfigError."""
    if not isinstance(value, str) or len(value) > 2_000 or not URL.fullmatch(value):
        raise ConfigError("it is no address of a page.", "Write http:// or https://, host and path.")
    return value
