"""What a playbook is once read: plays of tasks and blocks, roles; templates are still templates.

`rm/playbook/read/parse.py` makes these from text.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rm.quick_dataclass import dataclass

Truth = bool | str  # a string is a template that must give true or false
Conditions = tuple[str | bool, ...]


@dataclass(frozen=True, slots=True)
class Role:
    """A role as a task sees it. `variables` and `defaults` hold those of the roles that depend on it too,
    the nearer the stronger; `params` what was written beside its name. `parents` are the roles around it,
    `included_by` those of them that include it or what needs it, and do not depend on it."""

    name: str
    path: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    parents: tuple[str, ...] = ()
    included_by: tuple[str, ...] = ()
    collection: str = ""  # NAMESPACE.NAME of the one that it lies in

    @property
    def full_name(self) -> str:
        return f"{self.collection}.{self.name}" if self.collection else self.name

    @property
    def whole_path(self) -> str:
        """`role_path`: as in Ansible absolute, wherever the playbook was called from."""
        return posixpath.abspath(self.path)


@dataclass(frozen=True, slots=True)
class Loop:
    """`kind` is the keyword; `label` and `pause` (seconds) are templates."""

    kind: str
    values: Any
    var: str = "item"
    label: Any = None
    index_var: str = ""
    pause: Any = 0
    extended: bool = False
    allitems: bool = True  # they are in `ansible_loop`
    break_when: Conditions = ()


@dataclass(frozen=True, slots=True)
class Task:
    """One task or handler; also, without a module, what a block or an include hands to its tasks.

    `variables` are those of the blocks around with the task's own on top.
    `file` of an include is the path of the file it stands in.
    """

    name: str
    module: str
    args: Mapping[str, Any]
    line: int
    file: str = ""
    when: Conditions = ()
    register: str = ""
    loop: Loop | None = None
    notify: tuple[str, ...] = ()
    listen: tuple[str, ...] = ()
    changed_when: Conditions | None = None
    failed_when: Conditions | None = None
    until: Conditions | None = None
    retries: Any = None
    delay: Any = 5
    become: Truth | None = None
    become_user: str | None = None
    become_method: str | None = "sudo"
    environment: tuple[Any, ...] = ()
    tags: tuple[str, ...] = ()
    ignore_errors: Truth = False
    ignore_unreachable: Truth = False
    no_log: Truth = False
    check_mode: Truth | None = None
    diff: Truth | None = None
    delegate_to: str | None = None
    delegate_facts: Truth = False
    run_once: Truth = False
    any_errors_fatal: Truth | None = None
    throttle: Any = 0
    remote_user: str | None = None
    connection: str | None = None
    timeout: Any = 0  # seconds, a number or a template; 0 = none
    background: Any = 0  # `async` with `poll: 0`: seconds after which it is broken off
    patience: Any = 0  # the same with `poll` above 0: somebody waits
    variables: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # module_defaults
    role: Role | None = None
    collections: tuple[str, ...] = ()  # where short names of modules and roles are looked for, first
    handler: bool = False
    listed: int = -1  # of a role's handler: the number of the list that it stands in
    outer: Task | None = None  # of an include: what the blocks around it hand to what it includes
    apply: Any = None  # of an include: its keyword `apply`
    unknown: str = ""  # why the module is none that rm knows: an error where the task is reached


@dataclass(frozen=True, slots=True)
class Block:
    """Tasks; `rescue` runs when one of them fails, `always` in any case. `once`: a role that an included one
    depends on, which a host does once in a play."""

    name: str
    line: int
    block: tuple[Task | Block, ...]
    rescue: tuple[Task | Block, ...] = ()
    always: tuple[Task | Block, ...] = ()
    once: tuple[str, str] | None = None


Node = Task | Block


@dataclass(frozen=True, slots=True)
class Prompt:
    """One of `vars_prompt`. Its text, its default and its salt may hold variables of the play."""

    name: str
    text: str
    default: Any = None
    private: bool = True
    confirm: bool = False  # asked twice
    encrypt: str = ""  # the kind of hash that the answer becomes, by passlib's name
    salt: Any = None
    salt_size: Any = None
    unsafe: bool = False  # an answer may hold what looks like a template


@dataclass(frozen=True, slots=True)
class Unheard:
    """A notification that no handler hears, and the task that sends it."""

    file: str
    line: int
    name: str
    hint: str


@dataclass(frozen=True, slots=True)
class Play:
    """One play; `tasks` are pre_tasks, roles, tasks and post_tasks, with handler flushes between.

    `roles` are those whose variables and defaults the whole play sees.
    """

    name: str
    hosts: str
    line: int
    tasks: tuple[Node, ...]
    file: str = ""
    handlers: tuple[Task, ...] = ()
    gather_facts: Truth = True
    gathering: Mapping[str, Any] = field(default_factory=dict)  # the arguments of `setup`
    gather_once: bool = False  # not of a host whose facts an earlier play gathered
    variables: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[tuple[str, ...], ...] = ()  # vars_files: of each entry the first that exists
    prompts: tuple[Prompt, ...] = ()
    roles: tuple[Role, ...] = ()
    serial: tuple[Any, ...] = ()
    max_fail_percentage: Any = None
    any_errors_fatal: Truth = False
    force_handlers: Truth = False
    strategy: str = "linear"
    order: str = "inventory"
    common: Task = field(default_factory=lambda: Task("", "", {}, 0))
    unheard: tuple[Unheard, ...] = ()  # what its tasks notify and no handler hears
    error_on_missing_handler: bool = True  # the run ends where a changed task notifies such a one
    shelf: Any = field(default=None, compare=False)  # `parse.Shelf`: brings what includes name


@dataclass(frozen=True, slots=True)
class PlayDefaults:
    """What holds in plays that do not say it."""

    gather_facts: bool = True
    gather_once: bool = False
    any_errors_fatal: bool = False
    force_handlers: bool = False
    error_on_missing_handler: bool = True


@dataclass(frozen=True, slots=True)
class Playbook:
    filename: str
    plays: tuple[Play, ...]


def tasks_of(nodes: tuple[Node, ...]) -> list[Task]:
    """All tasks, of blocks too, in the order they are written."""
    found: list[Task] = []
    for node in nodes:
        if isinstance(node, Block):
            found += tasks_of((*node.block, *node.rescue, *node.always))
        else:
            found.append(node)
    return found
