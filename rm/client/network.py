"""`client.network`: links, and measurements between hosts."""

from __future__ import annotations

from rm.api.network import History, Link, Links, Measure, Measured, Pair, Pairs
from rm.client.asking import Asking


class Network:
    def __init__(self, ask: Asking) -> None:
        self._ask = ask

    def links(self) -> list[Link]:
        """The links with the jobs that share them."""
        return list(self._ask.get(Links, "links").links)

    def pairs(self) -> list[Pair]:
        """The newest measurement of each ordered pair of hosts."""
        return list(self._ask.get(Pairs, "network").pairs)

    def measure(self, zone: str | None = None) -> Measured:
        """Measure now, in one zone or in all; answered when it is over."""
        return self._ask.post(Measured, "network", "measure", body=Measure(zone=zone))

    def history(self, source: str, destination: str, since_s: float = 86_400) -> History:
        """The measurements of one direction in the last `since_s` seconds."""
        return self._ask.get(
            History, "network", "history", source=source, destination=destination, since_s=since_s
        )
