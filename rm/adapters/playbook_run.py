"""Runs playbooks on hosts: one kept-open connection per host, steps in batches, hosts side by side.

A host's steps travel to its agent when `agents` knows one; else the text of `agents/rm_steps.py` is fed to
`python3` on the host once and then spoken to over that one channel. Hosts fail each for itself.
"""

from __future__ import annotations

import heapq
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from jinja2.utils import missing

import rm
from rm.adapters.playbook_become import BECOME_PASSWORDS, LOGIN_PASSWORDS, Passwords
from rm.adapters.playbook_control import Daemon, Hands, Prompt, carry_out
from rm.adapters.playbook_files import LocalFiles, read_playbook
from rm.adapters.playbook_hosts import LOCALHOST, Agents, Ways
from rm.adapters.playbook_secrets import masked, masked_text
from rm.adapters.playbook_sources import ThisMachine, check_sources
from rm.adapters.shipped import shipped_directory
from rm.adapters.ssh_settings import SshSettings
from rm.adapters.vault import SECRET_MIN
from rm.core.host import Host
from rm.errors import RmError, UsageError
from rm.playbook.conduct import Part
from rm.playbook.evaluate import Options
from rm.playbook.flow import END
from rm.playbook.inventory_hosts import decode
from rm.playbook.listing import names_of, plan_of_play
from rm.playbook.located import nearest
from rm.playbook.pattern import select
from rm.playbook.report import Progress, Recap, Report
from rm.playbook.schema import Play, Playbook
from rm.playbook.steps import Batch, TaskResult
from rm.playbook.template import Layer, NeedResult, Scope, TemplateProblem, evaluate, has_template
from rm.playbook.variables import ANSIBLE_VERSION, HostState

CONNECTION = ("ansible_host", "ansible_user", "ansible_connection", "ansible_python_interpreter")
__all__ = ["Passwords", "Progress", "Recap", "Report", "plan_of", "run_playbook"]


def groups_of(hosts: Sequence[Host]) -> dict[str, tuple[str, ...]]:
    """The inventory's groups, from the hosts' own `group_names`."""
    groups: dict[str, list[str]] = {}
    for host in hosts:
        for group in decode(dict(host.variables).get("group_names", "[]")):
            groups.setdefault(group, []).append(host.name)
    return {name: tuple(members) for name, members in groups.items()}


def run_playbook(
    playbook: str | Path,
    hosts: Sequence[Host],
    settings: SshSettings,
    *,
    variables: Mapping[str, Any] | None = None,
    check: bool = False,
    diff: bool = False,
    limit: str | None = None,
    tags: Sequence[str] = (),
    skip_tags: Sequence[str] = (),
    forks: int = 16,
    progress: Callable[[Progress], None] | None = None,
    agents: Agents | None = None,
    daemon: Daemon | None = None,
    start_at: str = "",
    files: LocalFiles | None = None,
    prompt: Prompt | None = None,
    inventory: Mapping[str, Mapping[str, Any]] | None = None,
    magic: Mapping[str, Any] | None = None,
    become: bool = False,
    become_user: str = "",
    passwords: Passwords | None = None,
) -> Report:
    """Run every play of a playbook and say what became of it.

    Raises UsageError before any host is touched when the playbook, a pattern, a template or a local file
    that is named outright is wrong;
    whatever goes wrong on a host is in the report. Ctrl-C ends the run with `interrupted` set.
    `inventory` are the hosts' variables where they are more than `Host.variables` holds; `prompt`
    answers `vars_prompt` and `pause`; `magic` are names to provide besides rm's own. `become` and
    `become_user` hold where the playbook and the variables do not say; so do `passwords`.
    """
    local = files or LocalFiles()
    return _Runner(
        read_playbook(playbook, local), hosts, settings, dict(variables or {}), check, diff, limit,
        tuple(tags), tuple(skip_tags), forks, progress, agents, daemon, start_at, local, prompt,
        inventory or {}, magic or {}, become, become_user, passwords or Passwords(),
    ).run()  # fmt: skip


def plan_of(
    playbook: str | Path,
    hosts: Sequence[Host],
    *,
    variables: Mapping[str, Any] | None = None,
    limit: str | None = None,
    tags: Sequence[str] = (),
    skip_tags: Sequence[str] = (),
    files: LocalFiles | None = None,
) -> list[dict[str, Any]]:
    """For `--list-hosts`, `--list-tasks` and `--list-tags`: each play's name, hosts, chosen tasks and
    tags; touches no host."""
    settings = SshSettings(known_hosts=Path(os.devnull))
    local = files or LocalFiles()
    runner = _Runner(
        read_playbook(playbook, local), hosts, settings, dict(variables or {}), True, False, limit,
        tuple(tags), tuple(skip_tags), 1, None, None, None, "", local, None, {}, {}, False, "", Passwords(),
    )  # fmt: skip
    return [
        {"play": play.name, "hosts": list(runner.chosen(play)), **plan_of_play(play, tags, skip_tags)}
        for play in runner.playbook.plays
    ]


class _Runner:
    def __init__(
        self,
        playbook: Playbook,
        hosts: Sequence[Host],
        settings: SshSettings,
        variables: dict[str, Any],
        check: bool,
        diff: bool,
        limit: str | None,
        tags: tuple[str, ...],
        skip_tags: tuple[str, ...],
        forks: int,
        progress: Callable[[Progress], None] | None,
        agents: Agents | None,
        daemon: Daemon | None,
        start_at: str,
        files: LocalFiles,
        prompt: Prompt | None,
        inventory: Mapping[str, Mapping[str, Any]],
        magic: Mapping[str, Any],
        become: bool,
        become_user: str,
        passwords: Passwords,
    ) -> None:
        self.playbook, self.variables, self.start_at = playbook, variables, start_at
        self.check, self.diff, self.tags, self.skip_tags = check, diff, tags, skip_tags
        self.forks, self.daemon, self.files, self.prompt = max(1, forks), daemon, files, prompt
        self.tell = progress or (lambda event: None)
        self.hosts = {host.name: host for host in hosts}
        self.groups = groups_of(hosts)
        self.wanted = (
            select(limit, list(self.hosts), self.groups, "--limit: ") if limit else tuple(self.hosts)
        )
        if limit and not self.wanted:
            raise UsageError(f"--limit {limit} leaves no host.", "See the names with --list-hosts.")
        self.states = {
            name: HostState(name, {**_inventory(h), **inventory.get(name, {})}, h.login)
            for name, h in self.hosts.items()
        }
        self.become, self.become_user, self.passwords = become, become_user, passwords
        self.learning = threading.Lock()
        self.play_passwords: dict[str, dict[str, Any]] = {}  # what the play's variables say, by host
        self.secret(passwords.become, passwords.login)
        for state in self.states.values():
            with suppress(UsageError):  # told when the host is to be reached
                state.login = str(self.connection_of(state.name).get("ansible_user", state.login))
        self.ways = Ways(self.hosts, settings, agents, self.connection_of, self.passwords_for)
        self.stopping = threading.Event()
        self.unfinished: set[str] = set()
        self.through: set[str] = set()  # who has done all of the running play
        self.part: Part | None = None  # the running one
        self.planned: dict[str, dict[str, Any]] = {}  # in check mode: what would be there by now
        self.report = Report(playbook.filename, check)
        self.directory = os.path.dirname(os.path.abspath(playbook.filename))
        self.given_magic = {
            "rm_agents_dir": str(shipped_directory("agents")),
            "rm_version": rm.__version__,
            "ansible_version": ANSIBLE_VERSION,
            "ansible_run_tags": list(tags) or ["all"],
            "ansible_skip_tags": list(skip_tags),
            "ansible_diff_mode": diff,
            "ansible_forks": self.forks,
            "ansible_verbosity": 0,
            **({"ansible_limit": limit} if limit else {}),
            **magic,
        }

    # -- before any host is touched --------------------------------------------------------------

    def run(self) -> Report:
        chosen = [(play, self.chosen(play)) for play in self.playbook.plays]
        for play, _ in chosen:
            check_sources(play, self.files, self.directory)
        if self.start_at:
            known = [name for play, _ in chosen for name in names_of(play)]
            if not select_names(self.start_at, known):
                raise UsageError(f"no task is called '{self.start_at}'.", nearest(self.start_at, known))
        with ThreadPoolExecutor(self.forks, thread_name_prefix="playbook") as pool:
            try:
                for index, (play, names) in enumerate(chosen):
                    self.run_play(play, names, pool)
                    if self.stopping.is_set():
                        later = {name for _, others in chosen[index + 1 :] for name in others}
                        self.unfinished |= {n for n in later if not self.states[n].failed}
                        break
            except KeyboardInterrupt:
                self.report.interrupted = True
                self.stopping.set()
                left = {name for _, names in chosen[index:] for name in names} - self.through
                if self.part is not None:
                    left -= {name for name, one in self.part.runs.items() if one.position == END}
                self.unfinished |= {name for name in left if not self.states[name].failed}
                pool.shutdown(wait=False, cancel_futures=True)
            finally:
                self.ways.close()
        self.report.not_reached = tuple(name for name in self.states if name in self.unfinished)
        return self.report

    def chosen(self, play: Play) -> tuple[str, ...]:
        where = f"{play.file}:{play.line}: "
        scope = Scope([Layer(self.variables, True), Layer(play.variables, True)])
        try:
            pattern = str(evaluate(play.hosts, scope))
        except TemplateProblem as problem:
            raise UsageError(f"{where}'hosts': {problem}.", "Set it with -e.") from None
        if pattern in LOCALHOST and pattern not in self.hosts:
            self.states.setdefault(pattern, HostState(pattern, {"ansible_connection": "local"}, "root"))
            return (pattern,)
        names = select(pattern, list(self.hosts), self.groups, where)
        found = [name for name in names if name in self.wanted]
        if play.order.endswith("sorted"):
            found.sort()
        return tuple(reversed(found) if play.order.startswith("reverse") else found)

    # -- plays ------------------------------------------------------------------------------------

    def run_play(self, play: Play, names: tuple[str, ...], pool: ThreadPoolExecutor) -> None:
        self.tell(Progress("play", play.name, hosts=names))
        self.play_passwords.clear()
        self.through.clear()
        prompted = self.prompted(play)
        alive = [name for name in names if not self.states[name].failed]
        for state in self.states.values():
            state.ended = False
        scope = Scope([Layer(self.variables, True), Layer(prompted, False), Layer(play.variables, True)])
        max_fail = _percentage(play, scope)
        sizes = _sizes(play, scope)
        for names_now in _serial(sizes, alive):
            options = self.options(play, names, names_now, prompted)
            part = Part(play, names_now, self.states, self.files, options, max_fail)
            self.part = part
            self.run_part(part, pool)
            self.part, self.through = None, self.through | set(names_now)
            if part.stopped or (names_now and all(self.states[name].failed for name in names_now)):
                # as Ansible: where nobody is left the whole run ends
                self.unfinished |= {n for n in alive if not self.report.results.get(n)} | set(part.cut_short)
                self.stopping.set()
            if self.stopping.is_set() or part.ended:
                return

    def prompted(self, play: Play) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for one in play.prompts:
            if one.name in self.variables:
                continue
            found[one.name] = one.default
            if self.prompt is not None:
                found[one.name] = self.prompt(f"{one.text}: ", one.private, self.stopping) or one.default
        return found

    def options(
        self, play: Play, names: Sequence[str], part: Sequence[str], prompted: Mapping[str, Any]
    ) -> Options:
        magic = {
            "groups": {
                **{group: list(names) for group, names in self.groups.items()},
                "all": list(self.hosts),
            },
            "ansible_play_hosts_all": list(names),
            "ansible_play_role_names": [role.name for role in play.roles],
            "role_names": [role.name for role in play.roles],
            **self.given_magic,
        }
        return Options(
            self.directory, self.variables, magic, self.check, self.tags, self.skip_tags, self.start_at,
            ThisMachine(), prompted,
            {"ansible_play_hosts": tuple(names), "ansible_play_batch": tuple(part),
             "play_hosts": tuple(part)}, self.become, self.become_user,
        )  # fmt: skip

    def run_part(self, part: Part, pool: ThreadPoolExecutor) -> None:
        """The hosts of one part of a play, to the end; all but the steps themselves in this thread."""
        over: queue.SimpleQueue[tuple[str, Batch, Future[dict[str, Any]]]] = queue.SimpleQueue()
        later: list[tuple[float, int, str, Batch]] = []  # steps that wait for their time
        running = count = 0

        def start(name: str, batch: Batch) -> None:
            try:
                if batch.become and name not in self.play_passwords:
                    self.play_passwords[name] = self.passwords_of(part, name)
            except UsageError as problem:
                refused: Future[dict[str, Any]] = Future()
                refused.set_exception(problem)
                over.put((name, batch, refused))
                return
            task, more = part.doing(name)
            said = masked_text(task, self.files.vault.secrets)
            self.tell(Progress("start", said, hosts=(name,), more=more))
            future = pool.submit(self.carry_out, name, batch)
            future.add_done_callback(lambda done: over.put((name, batch, done)))

        while not part.done:
            for name, batch in part.ready():
                running, count = running + 1, count + 1
                if batch.delay_s > 0:
                    heapq.heappush(later, (time.monotonic() + batch.delay_s, count, name, batch))
                else:
                    start(name, batch)
            self.settle(part)
            if not running:
                if not part.done:
                    raise RuntimeError(f"the hosts of the play '{part.play.name}' wait for each other")
                break
            try:
                wait_s = max(0.0, later[0][0] - time.monotonic()) if later else None
                name, batch, future = over.get(timeout=wait_s)
            except queue.Empty:
                while later and later[0][0] <= time.monotonic():
                    start(*heapq.heappop(later)[2:])
                continue
            running -= 1
            try:
                result = future.result()
            except RmError as problem:
                part.lost(name, str(problem))
            else:
                self.planned[batch.target or name] = result["planned"]
                part.record(name, result["results"])
            self.settle(part)

    def settle(self, part: Part) -> None:
        for settled in part.settled():
            self.adopt(settled)
            result = masked(settled, self.files.vault.secrets)
            self.report.results.setdefault(result.host, []).append(result)
            self.tell(Progress("task", result=result))

    def adopt(self, result: TaskResult) -> None:
        """Hosts and groups that a task adds to the inventory of this run (`add_host`, `group_by`)."""
        for one in result.result.get("results", [result.result]):
            added = one.get("add_host") if isinstance(one, dict) else None
            if added:
                name = str(added["host_name"])
                given = dict(added.get("host_vars") or {})
                address = str(given.get("ansible_host", name))
                self.hosts.setdefault(name, Host(name, "default", address, int(given.get("ansible_port", 22)),
                                                 str(given.get("ansible_user", "root"))))  # fmt: skip
                state = self.states.setdefault(name, HostState(name, {}, self.hosts[name].login))
                state.inventory = {**state.inventory, **given}
                for group in added.get("groups") or ():
                    self.join(name, str(group))
                if name not in self.wanted:
                    self.wanted = (*self.wanted, name)
            group = one.get("add_group") if isinstance(one, dict) else None
            if group and not one.get("skipped"):
                self.join(result.host, str(group))
                for parent in one.get("parent_groups") or ():
                    if parent != "all":
                        self.join(result.host, str(parent))

    def join(self, name: str, group: str) -> None:
        members = self.groups.get(group, ())
        if name not in members:
            self.groups[group] = (*members, name)
            state = self.states[name]
            names = sorted({*state.inventory.get("group_names", ()), group})
            state.inventory = {**state.inventory, "group_names": names}

    # -- one host ---------------------------------------------------------------------------------

    def carry_out(self, name: str, batch: Batch) -> dict[str, Any]:
        """A batch's steps to their answers; runs in a thread of the pool. Raises RmError."""
        target = batch.target or name
        steps = [step.wire() for step in batch.steps]
        request = {
            "steps": steps, "check": self.check, "diff": self.diff, "planned": self.planned.get(target, {}),
        }  # fmt: skip
        if not batch.control:
            return self.ways.send(target, batch, request)
        hands = Hands(
            host=self.ways.host(target),
            request=request,
            send=lambda host, asked: self.ways.send(host, batch, asked),
            reconnect=lambda: self.ways.reconnect(target),
            hosts=tuple(self.hosts.values()),
            stopping=self.stopping,
            daemon=self.daemon,
            groups=self.groups,
            prompt=self.prompt,
        )
        return carry_out(hands)

    def connection_of(self, name: str, keys: Sequence[str] = CONNECTION) -> dict[str, Any]:
        """The variables that say how to reach a host; templates in them see the host's own variables."""
        state = self.states.get(name)
        if state is None:
            return {}
        found = {}
        for key in keys:
            value = self.variables.get(key, state.inventory.get(key))
            if value is None:
                continue
            if has_template(value):
                facts = {"inventory_hostname": name}
                layers = [Layer(self.variables, True), Layer(facts, False), Layer(state.inventory, True)]
                try:
                    value = evaluate(value, Scope(layers))
                except TemplateProblem as problem:
                    raise UsageError(f"{key} of host '{name}': {problem}.") from None
            found[key] = value
        return found

    def passwords_of(self, part: Part, name: str) -> dict[str, Any]:
        """Passwords for sudo that the play's variables (`vars_files` included) hold."""
        scope = part.runs[name].scoping.scope(part.play.common, None)
        try:
            found = {key: scope.lookup(key) for key in BECOME_PASSWORDS}
        except (TemplateProblem, NeedResult) as problem:
            raise UsageError(f"the password for sudo on host '{name}': {problem}.") from None
        return {key: value for key, value in found.items() if value is not missing}

    def passwords_for(self, name: str) -> Passwords:
        """What to say on a host; raises UsageError."""
        become = self.play_passwords.get(name) or self.connection_of(name, BECOME_PASSWORDS)
        login = self.connection_of(name, LOGIN_PASSWORDS)
        found = Passwords(
            str(next(filter(None, become.values()), self.passwords.become)),
            str(next(filter(None, login.values()), self.passwords.login)),
        )
        self.secret(found.become, found.login)
        return found

    def secret(self, *texts: Any) -> None:
        """These are never shown."""
        new = {str(text) for text in texts if len(str(text or "")) >= SECRET_MIN}
        with self.learning:  # another thread may be reading the set: it is replaced, not changed
            self.files.vault.secrets = self.files.vault.secrets | new


def select_names(pattern: str, names: Sequence[str]) -> list[str]:
    import fnmatch

    return [name for name in names if fnmatch.fnmatchcase(name, pattern)]


def _inventory(host: Host) -> dict[str, Any]:
    return {
        **{name: decode(value) for name, value in host.variables},
        "ansible_host": host.address,
        "ansible_port": host.port,
        "ansible_user": host.login,
        "rm_zone": host.zone,
        "rm_interface": host.interface,
        **({"rm_nic_mbps": host.nic_bps // 1_000_000} if host.nic_bps else {}),
        **({"rm_cpus": host.cpus} if host.cpus else {}),
        "rm_partitions": list(host.partitions),
    }


def _evaluated(play: Play, what: str, value: Any, scope: Scope) -> str:
    try:
        return str(evaluate(value, scope)).strip()
    except TemplateProblem as problem:
        raise UsageError(f"{play.file}:{play.line}: '{what}': {problem}.", "Set it with -e.") from None


def _percentage(play: Play, scope: Scope) -> float | None:
    if play.max_fail_percentage is None:
        return None
    text = _evaluated(play, "max_fail_percentage", play.max_fail_percentage, scope)
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        raise UsageError(f"{play.file}:{play.line}: max_fail_percentage is '{text}', not a number.") from None


def _sizes(play: Play, scope: Scope) -> list[str]:
    sizes: list[str] = []
    for one in play.serial:
        text = _evaluated(play, "serial", one, scope)
        if not text.removesuffix("%").lstrip("-").isdigit():
            raise UsageError(f"{play.file}:{play.line}: 'serial' is '{text}', not a number or a percentage.")
        sizes.append(text)
    return sizes


def _serial(sizes: Sequence[str], names: list[str]) -> list[list[str]]:
    """Rolling batches: numbers or percentages; the last size repeats."""
    if not sizes or not names:
        return [names]
    parts, rest, left = [], names, list(sizes)
    while rest:
        text = left.pop(0) if len(left) > 1 else left[0]
        count = len(names) * int(text[:-1]) // 100 if text.endswith("%") else int(text)
        count = max(1, count) if text not in ("0", "-1") else len(names)
        parts.append(rest[:count])
        rest = rest[count:]
    return parts
