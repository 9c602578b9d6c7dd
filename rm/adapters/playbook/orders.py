"""The orders for one run of a playbook: the options of the command line, and where it may ask questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from rm.adapters.playbook.become import Passwords
from rm.adapters.playbook.control import Daemon, Prompt
from rm.adapters.playbook.files import LocalFiles
from rm.adapters.playbook.hosts import Agents
from rm.playbook.run.report import Progress
from rm.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Orders:
    """`variables` are `-e`'s; `forks` hosts are worked on at a time; `magic` are names to provide besides
    rm's own; `become`, `become_user` and `passwords` hold where the playbook and the variables do not say.
    `answers` are those to `vars_prompt` that are known beforehand: nobody is asked for them.
    """

    variables: Mapping[str, Any] = field(default_factory=dict)
    check: bool = False
    diff: bool = False
    limit: str = ""
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    forks: int = 16
    start_at: str = ""
    magic: Mapping[str, Any] = field(default_factory=dict)
    become: bool = False
    become_user: str = ""
    passwords: Passwords = field(default_factory=Passwords)
    files: LocalFiles = field(default_factory=LocalFiles)
    tell: Callable[[Progress], None] = lambda event: None
    agents: Agents | None = None
    daemon: Daemon | None = None
    prompt: Prompt | None = None
    answers: Mapping[str, Any] = field(default_factory=dict)
