"""Which variable wins: Ansible's order of precedence as layers, and `hostvars` over all hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from jinja2.utils import missing

from rm.playbook.model.connection import REACH, is_reserved
from rm.playbook.model.flow import Bound
from rm.playbook.model.schema import Play, Role, Task
from rm.playbook.template.template import PENDING, Layer, NeedResult, Scope, Seek
from rm.quick_dataclass import dataclass

ANSIBLE_VERSION = {"full": "2.19.0", "major": 2, "minor": 19, "revision": 0, "string": "2.19.0"}


@dataclass(slots=True)
class HostState:
    """What is known about one host through all plays. `inventory` are its admin-written variables; `added`
    those that tasks gave it (`add_host`, `group_by`): stronger, and never templates, since they may come from
    a host's output. `found` is what its agent found: weaker, and never templates either.

    `facts` are named without `ansible_`; those in `bare` are variables under that very name (`services`), all
    others under `ansible_…`. `gathered`: the host was asked for all it says of itself.
    """

    name: str
    inventory: Mapping[str, Any]
    added: dict[str, Any] = field(default_factory=dict)
    found: Mapping[str, Any] = field(default_factory=dict)
    login: str = "root"
    login_named: bool = False  # the inventory says it
    facts: dict[str, Any] | None = None
    bare: set[str] = field(default_factory=set)
    gathered: bool = False
    learnt: dict[str, Any] = field(default_factory=dict)  # registered results and set_fact
    included: dict[str, Any] = field(default_factory=dict)  # include_vars
    failed: bool = False
    unreachable: bool = False
    failed_along: bool = False  # another's failure was its own: though rescued, it is left out of later plays
    ended: bool = False  # the play goes on without it: meta: end_host, or it failed and that was forgiven
    started: bool = False  # past --start-at-task

    @property
    def out(self) -> bool:
        """Whether plays that begin now are without it."""
        return self.failed or self.failed_along

    def add_facts(self, found: Mapping[str, Any], bare: Iterable[str] = ()) -> None:
        """More facts, by their names without `ansible_`; the newest of a name counts."""
        self.facts = {**(self.facts or {}), **found}
        self.bare = (self.bare - found.keys()) | set(bare)

    def forget_facts(self) -> None:
        self.facts, self.bare, self.gathered = None, set(), False

    def injected(self) -> dict[str, Any]:
        """The facts as the variables that they are besides `ansible_facts`: never one that says how to reach
        a host, or that the runner sets."""
        named = {n if n in self.bare else f"ansible_{n}": value for n, value in (self.facts or {}).items()}
        return {name: value for name, value in named.items() if not is_reserved(name)}


@dataclass(frozen=True, slots=True)
class Given:
    """What a play brings to every scope, besides the host: extra, magic, vars_files already read, and `roles`
    that were included as public ones."""

    extra: Mapping[str, Any]
    magic: Mapping[str, Any]
    files: Mapping[str, Any]
    active: Mapping[str, Any] = field(default_factory=dict)
    prompted: Mapping[str, Any] = field(default_factory=dict)
    roles: Sequence[Role] = ()


def layers_of(
    play: Play,
    task: Task | None,
    host: HostState,
    given: Given,
    bound: Bound,
    foreseen: Mapping[str, Any],
) -> list[Layer]:
    """The layers of a scope, the strongest first."""
    facts = host.facts or {}
    role = task.role if task else None
    found = [Layer(given.extra, True), Layer(given.magic, False), Layer(given.active, False)]
    if role is not None:
        role_names: dict[str, Any] = {
            "role_name": role.name, "role_path": role.whole_path, "ansible_role_name": role.full_name,
        }  # fmt: skip
        if role.included_by:
            role_names["ansible_parent_role_names"] = list(role.included_by)
        found.append(Layer(role_names, False))
    found += [Layer(values, trusted) for values, trusted in bound]
    if role is not None and role.params:
        found.append(Layer(role.params, True))
    found += [Layer(foreseen, False), Layer(host.learnt, False), Layer(host.included, True)]
    if task is not None and task.variables:
        found.append(Layer(task.variables, True))
    if role is not None:
        found.append(Layer(role.variables, True))
    roles = [*reversed(given.roles), *reversed(play.roles)]
    found += [Layer(one.variables, True) for one in roles]
    found += [
        Layer(given.files, True),
        Layer(given.prompted, False),
        Layer(play.variables, True),
        Layer({"ansible_facts": facts} if host.facts is not None else {}, False),
        Layer(host.injected(), False),
        Layer(host.added, False),
        Layer(host.inventory, True),
        Layer(host.found, False),
    ]
    if role is not None:
        found.append(Layer(role.defaults, True))
    found += [Layer(one.defaults, True) for one in roles]
    if host.facts is None:
        found.append(Layer({"ansible_facts": {}}, False))
    return found


class Active(Mapping[str, Any]):
    """The names that are found when they are asked for: those that list the hosts still in the play, known
    when no other host is behind, and the `late` ones, which take work."""

    def __init__(
        self,
        names: Mapping[str, tuple[str, ...]],
        alive: Callable[[], frozenset[str]],
        late: Mapping[str, Callable[[], Any]],
    ) -> None:
        self.names, self.alive, self.late = names, alive, late

    def __getitem__(self, name: str) -> Any:
        if name in self.late:
            return self.late[name]()
        alive = self.alive()
        return [host for host in self.names[name] if host in alive]

    def __contains__(self, name: object) -> bool:  # without asking
        return name in self.names or name in self.late

    def __iter__(self) -> Iterator[str]:
        return iter([*self.names, *self.late])

    def __len__(self) -> int:
        return len(self.names) + len(self.late)


class HostVars(Mapping[str, Any]):
    """`hostvars`: every host's variables. `behind(host)` says that a host may still learn something."""

    def __init__(
        self,
        states: Mapping[str, HostState],
        magic: Mapping[str, Any],
        behind: Callable[[str], bool],
        seek: Seek | None,
        extra: Mapping[str, Any],
    ) -> None:
        self.states, self.magic, self.behind, self.seek, self.extra = states, magic, behind, seek, extra

    def __getitem__(self, name: str) -> Any:
        return OneHost(self.states[name], self)

    def __iter__(self) -> Iterator[str]:
        return iter(self.states)

    def __len__(self) -> int:
        return len(self.states)

    def __repr__(self) -> str:
        return f"hostvars of {len(self)} hosts"


class OneHost(Mapping[str, Any]):
    """The variables of one host that do not depend on a play: facts, learnt ones, the inventory's."""

    HIDDEN = frozenset({"hostvars"})  # from `rm.playbook.template.plain`

    def __init__(self, state: HostState, world: HostVars) -> None:
        self.state, self.world = state, world
        facts = state.facts or {}
        self.scope = Scope(
            [
                Layer(world.extra, True),
                Layer({"inventory_hostname": state.name,
                       "inventory_hostname_short": state.name.partition(".")[0],
                       "hostvars": world, **self.world.magic}, False),
                Layer(state.learnt, False),
                Layer(state.included, True),
                Layer({"ansible_facts": facts, **state.injected()}, False),
                Layer(state.added, False),
                Layer(state.inventory, True),
                Layer(state.found, False),
            ],
            seek=world.seek,
        )  # fmt: skip

    def __getitem__(self, name: str) -> Any:
        if name not in REACH and self.world.behind(self.state.name):
            raise NeedResult(name)
        value = self.scope.lookup(name)
        if value is missing:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        if self.world.behind(self.state.name):
            raise NeedResult("hostvars")
        seen: dict[str, None] = {}
        for layer in self.scope.layers:
            seen.update(dict.fromkeys(layer.values))
        return iter(seen)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"the variables of {self.state.name}"


__all__ = ["PENDING", "Given", "HostState", "HostVars", "layers_of"]
