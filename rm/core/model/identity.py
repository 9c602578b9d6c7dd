"""Which cluster this is: its hosts obey no other's daemon."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """`id` is made at random with the database, and stays; "" where there is none to keep apart. `led_at`
    shows where its daemon runs: `machine:/path/of/its/socket`."""

    id: str = ""
    led_at: str = ""

    def __str__(self) -> str:
        return f"{self.id} (led at {self.led_at or 'an unknown place'})"


NO_CLUSTER = ClusterIdentity()
