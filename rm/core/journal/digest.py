"""What a step asks of the hosts, as a few characters that differ when that differs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace

from rm.core.journal.plain import to_plain
from rm.core.model.network.alignment import Alignment
from rm.core.scheduling.cycle import Outcome

LONG = ("links", "schedules", "shaping", "together")  # of a large cluster thousands, few of which change


class Digests:
    """Knows the texts of what the alignment before consisted of."""

    def __init__(self) -> None:
        self._texts: dict[int, bytes] = {}  # by identity
        self._told: Alignment | None = None  # keeps those objects, so that no other one gets their identity

    def of(self, outcome: Outcome, alignment: Alignment) -> str:
        """ "" when the step asks nothing new. The decisions hold the placements in full."""
        if not outcome.intents and not outcome.realigned:
            return ""
        said: list[object] = [
            (i.action.kind, i.action.job, i.action.attempt, i.action.host) for i in outcome.intents
        ]
        if not outcome.realigned:
            return _hashed([repr(said).encode()])
        begin = repr(said)[:-1] + (", " if said else "")
        return _hashed([begin.encode(), *self._parts(alignment), b"]"])

    def _parts(self, alignment: Alignment) -> Iterator[bytes]:
        """The text of `to_plain`, in pieces: megabytes are neither put together nor made anew."""
        before, self._texts = self._texts, {}
        told, self._told = self._told, alignment
        rest = to_plain(replace(alignment, links=(), schedules=(), shaping=(), together=()))
        between = b"{"
        for field in fields(Alignment):
            name = field.name
            if name in LONG and (items := getattr(alignment, name)):
                ids = [*map(id, items)]
                known = zip(map(before.get, ids), items, strict=True)
                texts = [text or repr(to_plain(item)).encode() for text, item in known]
                self._texts.update(zip(ids, texts, strict=True))
                yield between + f"{name!r}: [".encode()
                yield b", ".join(texts)
                yield b"]"
            elif name in rest:
                yield between + f"{name!r}: {rest[name]!r}".encode()
            else:
                continue
            between = b", "
        yield b"{}" if between == b"{" else b"}"
        del told  # until here what was looked up by identity was there


def _hashed(parts: Iterable[bytes]) -> str:
    found = hashlib.blake2b(digest_size=6)
    for part in parts:
        found.update(part)
    return found.hexdigest()
