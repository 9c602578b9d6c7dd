"""Where packets are lost, as a trace shows it, in words.

As in mtr: a hop that answers seldom has other things to do, as long as those behind it answer; packets are
lost from the first hop on from which none of the further ones answers every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CERTAIN = 2  # answers that must be missing at the last hop


@dataclass(frozen=True, slots=True)
class Hop:
    """`address` "": nobody answered."""

    address: str
    answered: int
    rtt_us: int | None = None  # the fastest round trip


@dataclass(frozen=True, slots=True)
class Path:
    """`hops` as of `rm.protocol.probes.Way`, each asked `sent` times."""

    hops: tuple[Hop, ...]
    sent: int
    reached: bool

    def in_words(self) -> str:
        return " > ".join(hop.address or "?" for hop in self.hops) or "nobody"


def lost_from(path: Path) -> int | None:
    """The number of the first hop, from 0 on, at which packets are lost; the number of hops: behind the last
    that answered. None: the trace does not show it."""
    if not path.reached:
        return len(path.hops)
    if not path.hops or path.sent - path.hops[-1].answered < CERTAIN:
        return None
    first = len(path.hops)
    while first and path.hops[first - 1].answered < path.sent:
        first -= 1
    return first


def said_of(path: Path, source: str, destination: str) -> str:
    """A sentence's part for an alert: the path, and where packets are lost."""
    where = lost_from(path)
    way = f"trace: {source} > {path.in_words()}"
    if where is None:
        return f"{way}, all answered {path.hops[-1].answered if path.hops else 0} of {path.sent}"
    before = path.hops[where - 1] if where else None
    if before is None:
        begins = f"right behind {source}"
    else:
        begins = (
            f"behind hop {where} ({before.address or 'silent'}, answered {before.answered} of {path.sent})"
        )
    if where == len(path.hops):
        return f"{way}, then nobody up to {destination}: lost {begins}"
    hop = path.hops[where]
    named = f"hop {where + 1} ({hop.address or 'silent'}) answered {hop.answered} of {path.sent}"
    return f"{way}: lost {begins}; {named}"


def path_of(hops: Sequence[tuple[str, int, int | None]], sent: int, reached: bool) -> Path:
    return Path(tuple(Hop(*hop) for hop in hops), sent, reached)
