"""Actions as they lie in the store, for the daemon's next life."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rm.core.jobs.actions import ACTIONS, Action, Intent
from rm.core.store import Damaged, StoredAction
from rm.typed import convert


def stored(intent: Intent) -> StoredAction:
    action = intent.action
    body = msgspec.to_builtins(action)
    return StoredAction(intent.id, action.kind, action.job, action.attempt, action.host, body)


def revivable(actions: Iterable[StoredAction]) -> tuple[tuple[StoredAction, ...], list[Damaged]]:
    """The actions that this rm can carry out, and those of which nobody knows what they ask."""
    good, damaged = [], []
    for action in actions:
        try:
            revive(action)
            good.append(action)
        except (KeyError, msgspec.ValidationError) as error:
            why = f"Action {action.id} is damaged in the database: {error}."
            damaged.append(Damaged("action", (str(action.id),), why))
    return tuple(good), damaged


def revive(stored_action: StoredAction) -> Intent:
    """An intent of an earlier life of the daemon."""
    kind = ACTIONS[stored_action.kind]
    action: Action = convert(stored_action.body, kind)
    return Intent(stored_action.id, action)
