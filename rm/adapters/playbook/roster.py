"""The hosts of a run: the inventory's, and those that tasks add; which a play is for, how to reach them."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rm.core.model.host import Host
from rm.errors import UsageError
from rm.playbook.inventory.hosts import decode
from rm.playbook.inventory.pattern import select
from rm.playbook.inventory.sources import GroupTree, Sources
from rm.playbook.model.connection import NAMES, REACH, SSH_ARGS, refusal, settled
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.model.schema import Play
from rm.playbook.model.ssh_arguments import outside_program
from rm.playbook.model.steps import TaskResult
from rm.playbook.modules import changes_groups
from rm.playbook.run.reach import IMPLICIT
from rm.playbook.template.template import (
    PENDING,
    Layer,
    NeedResult,
    Scope,
    Seek,
    evaluate,
    has_template,
)  # fmt: skip
from rm.playbook.template.variables import HostState, HostVars
from rm.units import MBPS


class Roster:
    """`extra` are the variables of `-e`, `inventory` the hosts' where they are more than `Host.variables`
    holds; `sources` give them anew for groups that tasks make and for plays of another directory than
    `directory`. Raises UsageError where `limit` leaves nobody."""

    def __init__(
        self,
        hosts: Sequence[Host],
        extra: Mapping[str, Any],
        inventory: Mapping[str, Mapping[str, Any]],
        limit: str,
        sources: Sources | None = None,
        directory: str = "",
    ) -> None:
        self._sources, self._directory = sources, directory
        self._tree = sources.tree if sources else GroupTree()
        self._joined: dict[str, set[str]] = {}  # by host: the groups that tasks put it in
        # the newest task that did; whether it was for each host, which are then in the inventory's order and
        # not in the one in which they answered; and how many were in each group before
        self._place: tuple[str, int, str] = ("", 0, "")
        self._each_joins = False
        self._before: dict[str, int] = {}
        self._order: dict[str, int] = {}  # of the hosts
        self._given: dict[str, dict[str, Any]] = {}  # by host: what add_host says
        self.extra = extra
        self._unknown: dict[str, str] = {}
        self.names: Mapping[str, Any] = {}  # what templates in variables may use besides: inventory_dir, …
        self.seek: Seek | None = None  # carries out their lookups
        self.hosts = {host.name: host for host in hosts}
        self._begun = frozenset(self.hosts)  # the inventory's
        self.groups = groups_of(hosts)
        self.wanted = (
            select(limit, list(self.hosts), self.groups, "--limit: ") if limit else tuple(self.hosts)
        )
        if limit and not self.wanted:
            raise UsageError(f"--limit {limit} leaves no host.", "See the names with --list-hosts.")
        self.shown = {"ungrouped": [], **{group: list(names) for group, names in self.groups.items()},
                      "all": list(self.hosts)}  # fmt: skip
        self.states = {
            name: HostState(
                name, {**inventory_of(h), **inventory.get(name, {})},
                found=_of_machine(h, found=True), login=h.login,
                login_named=any(key in inventory.get(name, {}) for key in NAMES["ansible_user"]),
            )
            for name, h in self.hosts.items()
        }  # fmt: skip
        for state in self.states.values():
            with suppress(UsageError):  # reported when the host is to be reached
                state.login = str(self.connection_of(state.name).get("ansible_user", state.login))

    def chosen(self, play: Play, growing: bool = False, begins: bool = False) -> tuple[str, ...]:
        """The names of the hosts that a play is for, in the order of the pattern; raises UsageError.
        `growing`: earlier plays may add hosts, groups and variables, so that what nobody knows is not a
        mistake before the play `begins`, and a name is not one even then."""
        try:
            return self._meant(play, growing)
        except TemplateProblem as problem:
            if growing and not begins:
                return ()
            where = f"{play.file}:{play.line}: "
            raise UsageError(f"{where}'hosts': {problem}.", "Set it with -e.") from None

    def _meant(self, play: Play, growing: bool) -> tuple[str, ...]:
        """The same. Raises UsageError and TemplateProblem."""
        where = f"{play.file}:{play.line}: "
        pattern, by_hosts = self._pattern(play)
        if pattern in IMPLICIT and pattern not in self.hosts:
            if by_hosts:
                raise UsageError(
                    f"{where}'hosts' names the control machine, by what is known of a host.",
                    f"Write 'hosts: {pattern}', or put {pattern} into the inventory.",
                )
            self.states.setdefault(pattern, HostState(pattern, {"ansible_connection": "local"}))
            return (pattern,)
        every = list(self.hosts)
        names = select(pattern, every, self.groups, where, growing=True)
        if not growing:
            try:
                select(pattern, every, self.groups, where)
            except UsageError as unknown:  # as Ansible, which warns of it
                self._unknown[where] = f"{unknown} The play passes it over."
        return tuple(name for name in names if name in self.wanted)

    def _pattern(self, play: Play) -> tuple[str, bool]:
        """What `hosts` says, and whether that may be a host's answer: then `hostvars`, or `groups` to which
        tasks added, are looked at on the way, in a variable as well. Raises TemplateProblem."""

        def said(groups: Any, hostvars: Any) -> str:
            magic = {**self.names, "groups": groups, "hostvars": hostvars}
            layers = [Layer(self.extra, True), Layer(magic, False), Layer(play.variables, True)]
            value = evaluate(play.hosts, Scope(layers, seek=self.seek))
            return ",".join(map(str, value)) if isinstance(value, list) else str(value)

        try:
            return said(PENDING if self._joined else self.shown, PENDING), False
        except NeedResult:
            shared = {"groups": self.shown}
            everyone = HostVars(self.states, shared, lambda name: False, self.seek, self.extra)
            return said(self.shown, everyone), True

    def tell_unknown(self, tell: Callable[[str], None]) -> None:
        """Say which plays name hosts or groups that nobody knows, so far."""
        for text in self._unknown.values():
            tell(text)
        self._unknown.clear()

    def connection_of(self, name: str, keys: Sequence[str] = REACH) -> dict[str, Any]:
        """The variables that say how to reach a host, each by its first name (NAMES); templates in them see
        the host's own variables. Raises UsageError."""
        state = self.states.get(name)
        if state is None:
            return {}
        found = {}
        for key in keys:
            added = key in state.added and key not in self.extra
            value = state.added[key] if added else self.extra.get(key, state.inventory.get(key))
            if value is None or (not added and key in self.extra and has_template(value)):
                continue  # a template of -e may need what only a task knows, whose Way has its value
            if key in SSH_ARGS and added:  # they can run programs here, and this may be a host's text
                raise UsageError(f"{key} of host '{name}' comes from a task.", "Write it in the inventory.")
            if has_template(value) and not added:
                short = name.partition(".")[0]
                own = {"inventory_hostname": name, "inventory_hostname_short": short}
                plain = {**self.names, **state.added, **own}
                layers = [Layer(self.extra, True), Layer(plain, False), Layer(state.inventory, True),
                          Layer(state.found, False)]  # fmt: skip
                try:
                    value = evaluate(value, Scope(layers, seek=self.seek))
                except TemplateProblem as problem:
                    raise UsageError(f"{key} of host '{name}': {problem}.") from None
                if key in SSH_ARGS and (option := outside_program(str(value))):
                    what = f"{key} of host '{name}' is a template that gives '{option}'."
                    raise UsageError(what, "Write that option out.")
            wrong, hint = refusal(key, value)
            if wrong:
                raise UsageError(f"Host '{name}': {wrong}", hint)
            found[key] = value
        return settled(found) if keys == REACH else found

    def adopt(self, result: TaskResult) -> None:
        """Hosts and groups that a task adds to the inventory of this run. Only `add_host` and `group_by` do:
        another module's result is a host's own word, which must not say where other hosts are."""
        if not changes_groups(result.module):
            return
        if (place := (result.file, result.line, result.task)) != self._place:
            self._place, self._before = place, {}
            self._each_joins = result.module.endswith("group_by")
        for one in result.result.get("results", [result.result]):
            added = one.get("add_host") if isinstance(one, dict) else None
            if added:
                self._add(added)
            group = one.get("add_group") if isinstance(one, dict) else None
            if group and not one.get("skipped"):
                self._join(result.host, str(group), list(map(str, one.get("parent_groups") or ())))
                self._refresh(result.host)

    def enter(self, directory: str) -> None:
        """A play of a playbook in this directory begins. Raises ConfigError, UsageError."""
        if directory != self._directory:
            self._directory = directory
            for name in self.states:
                self._refresh(name)

    def check(self, directories: Sequence[str]) -> None:
        """Read what is beside the playbooks in these directories. Raises ConfigError, UsageError."""
        if self._sources is not None:
            for directory in dict.fromkeys(directories):
                self._sources.own("", directory)

    def _refresh(self, name: str) -> None:
        """The variables that a host has now, by its groups and the directory of the play."""
        if self._sources is None or (name in IMPLICIT and name not in self.hosts):
            return
        state = self.states[name]
        joined = self._joined.get(name, set())
        found = self._sources.merged(name, joined, self._directory)
        host = self.hosts[name]
        state.inventory = {**(inventory_of(host) if name in self._begun else {}), **found}
        own = self._sources.own(name, self._directory)
        given = self._given.get(name, {})
        state.added = {**{key: value for key, value in state.added.items() if key not in given},
                       **{key: value for key, value in given.items() if key not in own}}  # fmt: skip
        state.login_named = any(key in found for key in NAMES["ansible_user"])
        with suppress(UsageError):  # reported when the host is to be reached
            said = settled(self.connection_of(name, NAMES["ansible_user"]))
            state.login = str(said.get("ansible_user", host.login))

    def _add(self, added: Mapping[str, Any]) -> None:
        name = str(added["host_name"])
        given = dict(added.get("host_vars") or {})
        reach = settled(given)
        address, port = str(reach.get("ansible_host", name)), int(reach.get("ansible_port", 22))
        self.hosts.setdefault(
            name, Host(name, "default", address, port, str(reach.get("ansible_user", "root")))
        )
        state = self.states.setdefault(name, HostState(name, {}, login=self.hosts[name].login))
        state.added.update(given)
        self._given.setdefault(name, {}).update(given)
        if name not in self.shown["all"]:
            self.shown["all"].append(name)
        for group in added.get("groups") or ():
            self._join(name, str(group))
        if not any(name in members for group, members in self.shown.items() if group != "all"):
            self._join(name, "ungrouped")
        if name not in self.wanted:
            self.wanted = (*self.wanted, name)
        self._refresh(name)

    def _join(self, name: str, group: str, parents: Sequence[str] = ()) -> None:
        new = self._tree.add(group, parents)
        joining = (group, *(one for one in parents if one != "all"), *sorted(self._tree.above(group)))
        for member in (name, *self.groups.get(group, ())) if new else (name,):
            for one in dict.fromkeys(joining):
                self._enrol(member, one)
            if member != name:
                self._refresh(member)

    def _enrol(self, name: str, group: str) -> None:
        members = self.groups.get(group, ())
        if name not in members:
            before = self._before.setdefault(group, len(members)) if self._each_joins else len(members)
            if len(self._order) != len(self.hosts):
                self._order = {host: number for number, host in enumerate(self.hosts)}
            joined = list(members[before:])
            insort(joined, name, key=lambda host: self._order.get(host, len(self._order)))
            self.groups[group] = (*members[:before], *joined)
            self.shown.setdefault(group, [])[:] = self.groups[group]
            self._joined.setdefault(name, set()).add(group)
            state = self.states[name]
            known = {*state.added.get("group_names", state.inventory.get("group_names", ())), group}
            if known != {"ungrouped"} and name in self.shown["ungrouped"]:
                self.shown["ungrouped"].remove(name)
                self.groups["ungrouped"] = tuple(self.shown["ungrouped"])
            state.added["group_names"] = sorted(known - {"ungrouped"} or {"ungrouped"})


def groups_of(hosts: Sequence[Host]) -> dict[str, tuple[str, ...]]:
    """The inventory's groups, from the hosts' own `group_names`."""
    groups: dict[str, list[str]] = {}
    for host in hosts:
        for group in decode(dict(host.variables).get("group_names", "[]")):
            groups.setdefault(group, []).append(host.name)
    return {name: tuple(members) for name, members in groups.items()}


def inventory_of(host: Host) -> dict[str, Any]:
    """The variables of a host that somebody wrote."""
    return {
        **{name: decode(value) for name, value in host.variables},
        "ansible_host": host.address,
        "ansible_port": host.port,
        "ansible_user": host.login,
        "rm_zone": host.zone,
        **_of_machine(host, found=False),
        "rm_partitions": list(host.partitions),
        "rm_features": list(host.features),
    }


def _of_machine(host: Host, found: bool) -> dict[str, Any]:
    """What its agent found, and nobody wrote; or what of it was written."""
    values: dict[str, Any] = {"interface": ("rm_interface", host.interface)}
    if host.nic_bps:
        values["nic_bps"] = "rm_nic_mbps", host.nic_bps // MBPS
    if host.cpus:
        values["cpus"] = "rm_cpus", host.cpus
    return dict(named for field, named in values.items() if (field in host.found) is found)
