"""Which requests of a host go together, and the one that they make: launches of a slice, and discards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import UNSET

from rm.core.jobs.actions import Action, Discard, Launch
from rm.daemon.execution.outbox import Open
from rm.protocol import attempts as wire


def together(entries: Sequence[Open], is_to_end: Callable[[Action], bool]) -> list[list[Open]]:
    """The entries in their order, each by itself, but the launches of a slice where its first one is, and a
    host's discards where their first one is: what is discarded has no other request after that. A launch that
    begins nothing, since it is to end, is none of a slice."""
    found: list[list[Open]] = []
    groups: dict[tuple[str, int], list[Open]] = {}
    for entry in entries:
        action = entry.intent.action
        if isinstance(action, Discard):
            key = (action.host, 0)
        elif isinstance(action, Launch) and action.slice_of and not is_to_end(action):
            key = (action.host, action.slice_of)
        else:
            found.append([entry])
            continue
        if key not in groups:
            groups[key] = []
            found.append(groups[key])
        groups[key].append(entry)
    return found


def slice_request(launches: Sequence[wire.Launch], within_us: int) -> wire.Slice:
    """Elements of a job array that one host runs one after the other."""
    first, *others = launches

    def follower(launch: wire.Launch) -> wire.Follower:
        env: dict[str, str | None] = {k: v for k, v in launch.env.items() if first.env.get(k) != v}
        env.update((name, None) for name in first.env.keys() - launch.env.keys())
        task = launch.tasks[0]
        return wire.Follower(
            job=launch.job,
            attempt=launch.attempt,
            env=env,
            output="" if task.output is UNSET else task.output,
            error="" if task.error is UNSET else task.error,
            input="" if task.input is UNSET else task.input,
        )

    return wire.Slice(
        job=first.job,
        attempt=first.attempt,
        epoch=first.epoch,
        first=first,
        followers=[follower(launch) for launch in others],
        within_us=within_us,
    )
