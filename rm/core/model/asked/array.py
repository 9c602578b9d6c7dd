"""What has become of the elements of a job array: sets of indices, as `rm.arrays` writes them.

The array's own record holds all of its elements, however many wait. An element gets a job of its own when it
is placed, and keeps it from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import Any

from rm.arrays import mask, text_of
from rm.core.model.replacing import replace

BITS_KEPT = 512  # of a set for each character of its text


@dataclass(frozen=True)  # without slots: what was read of the texts is kept with them
class Array:
    """Each element is in exactly one of these sets, but for `held`, which are among `waiting`, and
    `admin_held`, which are among those, or among `dropped`: they are held if they wait again.

    `waiting` and `dropped` (cancelled before they started) have no job of their own. Those that have one are
    `requeued` (it pends again), `running` (it holds hosts), `completed`, `failed` (it ended otherwise) or
    `cancelled`. At most `limit` run at once; 0: any number. `exit_code` and `exit_signal` are those of the
    element that ended worst. `turn_us` is about how long the last ones that ended kept their
    place; 0: none has.
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
        """The sets that were asked for: reading a long list takes milliseconds."""
        return {}

    def has(self, name: str) -> int:
        """One of the sets."""
        found = self._masks.get(name)
        if found is None:
            found = mask(getattr(self, name))
            self._keep(name, found)
        return found

    def _keep(self, name: str, found: int) -> None:
        """Unless reading the text again takes no time: the set may be far larger."""
        if found.bit_length() <= BITS_KEPT * len(getattr(self, name)):
            self._masks[name] = found

    @property
    def ready(self) -> int:
        """Those that nobody holds: they may be placed when their dependencies are fulfilled."""
        return self.has("waiting") & ~self.has("held")

    @property
    def all_held(self) -> bool:
        return bool(self.waiting) and self.waiting == self.held

    @property
    def kept(self) -> int:
        """Those of the held elements that an administrator holds."""
        return self.has("held") & self.has("admin_held")

    @property
    def ended(self) -> int:
        return reduce(or_, map(self.has, ("completed", "failed", "cancelled", "dropped")))

    @property
    def unfinished(self) -> bool:
        return bool(self.waiting or self.requeued or self.running)

    def moved(self, chosen: int, to: str) -> Array:
        """With these elements in the set `to`, and in no other one."""
        masks: dict[str, int] = {}
        kept = self.has("admin_held") & chosen if to in ("waiting", "dropped") else 0
        back = {to: chosen, "admin_held": kept, "held": kept if to == "waiting" else 0}
        for name in (*SETS, *WITHIN):
            if not getattr(self, name) and not back.get(name):
                continue  # none leaves an empty set
            before = self.has(name)
            after = before & ~chosen | back.get(name, 0)
            if after != before:
                masks[name] = after
        changed: dict[str, Any] = {name: text_of(found) for name, found in masks.items()}
        moved = replace(self, **changed)
        moved._masks.update((name, found) for name, found in self._masks.items() if name not in masks)
        for name, found in masks.items():
            moved._keep(name, found)
        return moved

    def only(self, chosen: int) -> Array:
        """As if there were no other elements."""
        left: dict[str, Any] = {name: text_of(self.has(name) & chosen) for name in (*SETS, *WITHIN)}
        return replace(self, **left)

    def measured(self, took_us: int) -> Array:
        """With the time of one more element: longer ones count at once for half, shorter ones for an eighth,
        since what is handed out together must not take longer than it may."""
        share = 2 if took_us > self.turn_us else 8
        turn_us = self.turn_us + (took_us - self.turn_us) // share if self.turn_us else took_us
        return replace(self, turn_us=max(1, turn_us))

    def set_of(self, task: int) -> str:
        """The name of the set that has the element; "" if the array has no such element."""
        return next((name for name in SETS if self.has(name) >> task & 1), "")


SETS = ("waiting", "requeued", "running", "completed", "failed", "cancelled", "dropped")
WITHIN = ("held", "admin_held")
