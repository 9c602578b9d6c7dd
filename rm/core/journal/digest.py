"""What a step asks of the hosts, as a few characters that differ when that differs."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace

from rm.core.journal.plain import to_plain
from rm.core.model.alignment import Alignment
from rm.core.scheduling.cycle import Outcome

LONG = ("links", "schedules", "shaping")  # of a large cluster thousands, few of which change at a time


class _Text(str):
    """Text that stands for itself in the text of what holds it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Digests:
    """Knows the texts of what the alignment before consisted of."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[object, str]] = {}  # by identity: the object is kept beside it

    def of(self, outcome: Outcome, alignment: Alignment) -> str:
        """ "" when the step asks nothing new. The decisions hold the placements in full."""
        if not outcome.intents and not outcome.realigned:
            return ""
        said: list[object] = [
            (i.action.kind, i.action.job, i.action.attempt, i.action.host) for i in outcome.intents
        ]
        if outcome.realigned:
            said.append(self._plain(alignment))
        return hashlib.blake2b(repr(said).encode(), digest_size=6).hexdigest()

    def _plain(self, alignment: Alignment) -> dict[str, object]:
        """As `to_plain`, with texts for the items of its long parts."""
        before, self._texts = self._texts, {}
        rest = to_plain(replace(alignment, links=(), schedules=(), shaping=()))
        body: dict[str, object] = {}
        for field in fields(Alignment):
            if field.name in LONG and (items := getattr(alignment, field.name)):
                texts = [
                    one
                    if (one := before.get(id(item))) is not None and one[0] is item
                    else (item, repr(to_plain(item)))
                    for item in items
                ]
                self._texts.update(zip(map(id, items), texts, strict=True))
                body[field.name] = _Text(f"[{', '.join([text for _, text in texts])}]")
            elif field.name in rest:
                body[field.name] = rest[field.name]
        return body
