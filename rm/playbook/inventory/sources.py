"""Where hosts' variables come from while a playbook runs: it makes groups, and its plays have directories."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from typing import Any, Protocol

from rm.errors import UsageError
from rm.quick_dataclass import dataclass


@dataclass(slots=True)
class GroupTree:
    """The groups that hold a group directly (`parents`, without `all`), and the groups'
    `ansible_group_priority` where it is not 1."""

    parents: dict[str, set[str]] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)

    def add(self, group: str, parents: Iterable[str]) -> bool:
        """Put a group below others; whether that is new. Raises UsageError for a loop."""
        known = self.parents.setdefault(group, set())
        new = {*parents} - known - {"all"}
        for parent in sorted(new):
            if parent == group or group in self.above(parent):
                raise UsageError(f"The group '{group}' cannot be below '{parent}': they form a loop.")
        known |= new
        return bool(new)

    def above(self, group: str) -> set[str]:
        """All groups that hold a group, without `all`."""
        found: set[str] = set()
        left = [group]
        while left:
            new = self.parents.get(left.pop(), set()) - found
            found |= new
            left += new
        return found

    def ranked(self, groups: Iterable[str]) -> tuple[str, ...]:
        """Groups, the weakest first: by the longest way from `all`, by priority, by name."""
        return tuple(sorted(groups, key=lambda one: (self._depth(one), self.priorities.get(one, 1), one)))

    def _depth(self, group: str) -> int:
        return 1 + max(map(self._depth, self.parents.get(group, ())), default=0)


class Sources(Protocol):
    """The variables of hosts as files and the daemon give them. `directory` is the one of a play's playbook:
    group_vars/ and host_vars/ there count. Raises ConfigError for a file that is wrong."""

    tree: GroupTree

    def merged(self, host: str, joined: Collection[str], directory: str) -> dict[str, Any]:
        """A host's variables; `joined` are groups that it has joined while the playbook runs."""
        ...

    def own(self, host: str, directory: str) -> Collection[str]:
        """The names of the variables in host_vars/, which beat those of `add_host`."""
        ...
