"""What has become of the elements of a job array: sets of indices, as `rm.arrays` writes them.

The array's own record holds all of its elements, however many wait. An element gets a job of its own when it
is placed, and keeps it from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, reduce
from operator import or_

from rm.arrays import mask, text_of

BITS_KEPT = 512  # of a set for each character of its text


@dataclass(frozen=True)  # without slots: a set is kept as a text, as bits, or both
class Array:
    """Each element is in exactly one of these sets, but for `held`, which are among `waiting`, and
    `admin_held`, which are among those, or among `dropped`: they are held if they wait again.

    `waiting` and `dropped` (cancelled before they started) have no job of their own. Those that have one are
    `requeued` (it pends again), `running` (it holds hosts), `completed`, `failed` (it ended otherwise) or
    `cancelled`. At most `limit` run at once; 0: any number. `exit_code` and `exit_signal` are those of the
    element that ended worst. `turn_us` is about how long the last ones that ended kept their
    place; 0: none has.

    The text of a set that has changed is written when somebody reads it: of 100,000 elements it takes a
    millisecond, and a turn of the leader moves hundreds before anything is stored or shown.
    """

    waiting: str = ""
    held: str = ""
    requeued: str = ""
    running: str = ""
    completed: str = ""
    failed: str = ""
    cancelled: str = ""
    dropped: str = ""
    limit: int = 0
    exit_code: int = 0
    exit_signal: int = 0
    turn_us: int = 0
    admin_held: str = ""  # by an administrator

    @cached_property
    def _masks(self) -> dict[str, int]:
        """The sets that were asked for, since reading a long list takes milliseconds, and those that have no
        text yet."""
        return {}

    def has(self, name: str) -> int:
        """One of the sets."""
        found = self._masks.get(name)
        if found is None:
            text = getattr(self, name)
            found = mask(text)
            if _is_kept(found, text):
                self._masks[name] = found
        return found

    def any_in(self, *names: str) -> bool:
        """Has one of these sets an element? It writes no text and reads none."""
        return any(self._masks.get(name) or self.__dict__.get(name) for name in names)

    def _text(self, name: str) -> str:
        """Of a set that has none yet. The page's thread may ask at the same time as the leader's."""
        found = self._masks.get(name)
        if found is None:
            return str(self.__dict__[name])
        text = self.__dict__[name] = text_of(found)
        if not _is_kept(found, text):
            self._masks.pop(name, None)
        return text

    def changed(self, sets: dict[str, int], **others: int) -> Array:
        """With these sets, and these numbers, in place of what it has."""
        made = object.__new__(Array)
        masks = {**self._masks, **sets}  # before the texts: another thread may put one in the place of bits
        made.__dict__.update(self.__dict__, **others)
        for name in sets:
            made.__dict__.pop(name, None)
        made.__dict__["_masks"] = masks
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _NUMBERS) and all(
            self._is_same(name, other, name) for name in (*SETS, *WITHIN)
        )

    def _is_same(self, name: str, other: Array, its: str) -> bool:
        """Is one of the sets the same as one of the other?"""
        mine, theirs = self.__dict__.get(name), other.__dict__.get(its)
        if mine is not None and theirs is not None:
            return bool(mine == theirs)
        return self.has(name) == other.has(its)

    @property
    def ready(self) -> int:
        """Those that nobody holds: they may be placed when their dependencies are fulfilled."""
        return self.has("waiting") & ~self.has("held")

    @property
    def all_held(self) -> bool:
        return self.any_in("waiting") and self.any_in("held") and self._is_same("waiting", self, "held")

    @property
    def kept(self) -> int:
        """Those of the held elements that an administrator holds."""
        return self.has("held") & self.has("admin_held")

    @property
    def ended(self) -> int:
        return reduce(or_, map(self.has, ("completed", "failed", "cancelled", "dropped")))

    @property
    def unfinished(self) -> bool:
        return self.any_in("waiting", "requeued", "running")

    def moved(self, chosen: int, to: str) -> Array:
        """With these elements in the set `to`, and in no other one."""
        masks: dict[str, int] = {}
        kept = self.has("admin_held") & chosen if to in ("waiting", "dropped") else 0
        back = {"admin_held": kept, "held": kept if to == "waiting" else 0}
        for name in (*SETS, *WITHIN):
            before = self.has(name)
            after = before | chosen if name == to else before & ~chosen | back.get(name, 0)
            if after != before:
                masks[name] = after
        return self.changed(masks)

    def only(self, chosen: int) -> Array:
        """As if there were no other elements."""
        return self.changed({name: self.has(name) & chosen for name in (*SETS, *WITHIN)})

    def measured(self, took_us: int) -> Array:
        """With the time of one more element: longer ones count at once for half, shorter ones for an eighth,
        since what is handed out together must not take longer than it may."""
        share = 2 if took_us > self.turn_us else 8
        turn_us = self.turn_us + (took_us - self.turn_us) // share if self.turn_us else took_us
        return self.changed({}, turn_us=max(1, turn_us))

    def set_of(self, task: int) -> str:
        """The name of the set that has the element; "" if the array has no such element."""
        return next((name for name in SETS if self.has(name) >> task & 1), "")


SETS = ("waiting", "requeued", "running", "completed", "failed", "cancelled", "dropped")
WITHIN = ("held", "admin_held")
_NUMBERS = tuple(field.name for field in fields(Array) if field.name not in {*SETS, *WITHIN})


def _is_kept(found: int, text: str) -> bool:
    """Is the set kept beside its text? Not where reading that takes no time: the set may be far larger."""
    return found.bit_length() <= BITS_KEPT * len(text)


class _Text:
    """What reads the text of a set where an array has none of its own yet."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, array: Array | None, kind: type[Array]) -> str:
        return "" if array is None else array._text(self._name)


for _name in (*SETS, *WITHIN):
    setattr(Array, _name, _Text(_name))
