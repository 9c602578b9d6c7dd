"""What a host of a play gets at its start, and what it may ask about the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol

from rm.playbook.model.flow import Position
from rm.playbook.run.sought import Control
from rm.playbook.template.variables import HostState
from rm.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """`extra` is `-e`, stronger than all else; `magic` the names the runner provides; both plain values.

    `start_at` is a task's name, or a pattern of it, before which nothing runs. `become` and `become_user`
    hold for tasks that neither a keyword nor a variable decides (`--become`).
    """

    directory: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    magic: Mapping[str, Any] = field(default_factory=dict)
    check: bool = False
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    start_at: str = ""
    control: Control | None = None
    prompted: Mapping[str, Any] = field(default_factory=dict)
    active: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # names that list hosts in the play
    late: Mapping[str, Callable[[], Any]] = field(default_factory=dict)  # names that take work to find
    become: bool = False
    become_user: str = ""


class Crew(Protocol):
    """The other hosts of the play."""

    def reached(self, host: str, where: Position) -> bool:
        """Has every other host come this far?"""
        ...

    def once(self, host: str, where: Position) -> OnceResult | bool | None:
        """Of a task for one host: True for who does it, the result when it is there, None to wait."""
        ...

    def behind(self, host: str, where: Position) -> bool:
        """May this host still learn something before it comes here?"""
        ...

    @property
    def states(self) -> Mapping[str, HostState]: ...
    @property
    def lockstep(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class OnceResult:
    """What a task that one host did for all came to."""

    failed: bool
    learnt: Mapping[str, Any]
    included: Mapping[str, Any]
    notified: frozenset[str]
    ends: str = ""  # meta: end_play, end_batch


class Alone:
    """A crew of one."""

    lockstep = False

    def __init__(self, state: HostState) -> None:
        self.states = {state.name: state}

    def reached(self, host: str, where: Position) -> bool:
        return True

    def once(self, host: str, where: Position) -> OnceResult | bool | None:
        return True

    def behind(self, host: str, where: Position) -> bool:
        return False


class Blocked(Exception):
    """The task has to wait for other hosts."""
