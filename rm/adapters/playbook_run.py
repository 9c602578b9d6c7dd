"""Runs playbooks on hosts: one kept-open connection per host, steps in batches, hosts side by side.

A host's steps travel to its agent when `ask` knows one; else the text of `agents/rm_steps.py` is fed to
`python3` on the host once and then spoken to over that one channel. Hosts fail each for itself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import rm
from rm.adapters.playbook_channel import Ask, StepsChannel
from rm.adapters.playbook_control import Daemon, Hands, carry_out
from rm.adapters.playbook_files import LocalFiles, read_playbook
from rm.adapters.shipped import shipped_directory
from rm.adapters.ssh import SshSettings
from rm.core.host import Host
from rm.errors import RmError, UsageError
from rm.playbook.evaluate import HostPlay, HostState, Options, selected
from rm.playbook.inventory import decode
from rm.playbook.module import BadArgument, CompileContext
from rm.playbook.pattern import select
from rm.playbook.report import Progress, Recap, Report
from rm.playbook.schema import Play, Playbook, Task
from rm.playbook.steps import TaskResult
from rm.playbook.template import Layer, Scope, TemplateProblem, evaluate, has_template
from rm.playbook.template import check as check_template

__all__ = ["Ask", "Progress", "Recap", "Report", "plan_of", "run_playbook"]


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
    ask: Ask | None = None,
    daemon: Daemon | None = None,
) -> Report:
    """Run every play of a playbook and say what became of it.

    Raises UsageError before any host is touched when the playbook, a pattern, a template or a local file
    that is named outright is wrong;
    whatever goes wrong on a host is in the report. Ctrl-C ends the run with `interrupted` set.
    """
    return _Runner(
        read_playbook(playbook), hosts, settings, dict(variables or {}), check, diff, limit,
        tuple(tags), tuple(skip_tags), forks, progress, ask, daemon,
    ).run()  # fmt: skip


def plan_of(
    playbook: str | Path,
    hosts: Sequence[Host],
    *,
    variables: Mapping[str, Any] | None = None,
    limit: str | None = None,
    tags: Sequence[str] = (),
    skip_tags: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """For `--list-hosts` and `--list-tasks`: each play's name, hosts and chosen tasks; touches no host."""
    settings = SshSettings(known_hosts=Path(os.devnull))
    runner = _Runner(
        read_playbook(playbook), hosts, settings, dict(variables or {}), True, False, limit,
        tuple(tags), tuple(skip_tags), 1, None, None,
    )  # fmt: skip
    return [
        {
            "play": play.name,
            "hosts": list(runner.chosen(play)),
            "tasks": [
                {"name": task.name, "module": task.module, "line": task.line, "tags": list(task.tags)}
                for task in play.tasks
                if selected(task, tags, skip_tags) and task.name != "flush handlers"
            ],
        }
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
        ask: Ask | None,
        daemon: Daemon | None = None,
    ) -> None:
        self.playbook, self.settings, self.variables = playbook, settings, variables
        self.check, self.diff, self.tags, self.skip_tags = check, diff, tags, skip_tags
        self.forks, self.ask, self.daemon = max(1, forks), ask, daemon
        self.tell = progress or (lambda event: None)
        self.hosts = {host.name: host for host in hosts}
        self.groups = groups_of(hosts)
        self.wanted = (
            select(limit, list(self.hosts), self.groups, "--limit: ") if limit else tuple(self.hosts)
        )
        if limit and not self.wanted:
            raise UsageError(f"--limit {limit} leaves no host.", "See the names with --list-hosts.")
        self.states = {name: HostState(name, _inventory(h), h.login) for name, h in self.hosts.items()}
        self.files = LocalFiles()
        self.lock = threading.Lock()
        self.channels: dict[tuple[str, bool], StepsChannel] = {}
        self.stopping = threading.Event()
        self.unfinished: set[str] = set()
        self.report = Report(playbook.filename, check)
        self.directory = os.path.dirname(os.path.abspath(playbook.filename))

    def run(self) -> Report:
        chosen = [(play, self.chosen(play)) for play in self.playbook.plays]  # complains before any host
        for play, _ in chosen:
            for task in (*play.tasks, *play.handlers):
                self.check_source(task)
        with ThreadPoolExecutor(self.forks, thread_name_prefix="playbook") as pool:
            try:
                for play, names in chosen:
                    self.run_play(play, names, pool)
                    if self.stopping.is_set():
                        break
            except KeyboardInterrupt:
                self.report.interrupted = True
                self.stopping.set()
                pool.shutdown(wait=False, cancel_futures=True)
            finally:
                for channel in list(self.channels.values()):
                    channel.close()
        reached = {host for host, results in self.report.results.items() if results}
        if self.report.interrupted:
            self.unfinished |= {name for _, names in chosen for name in names} - reached
        self.report.not_reached = tuple(name for name in self.hosts if name in self.unfinished)
        return self.report

    def check_source(self, task: Task) -> None:
        """A local file that a task names outright must be there, and a template must be one."""
        name = task.args.get("src")
        if task.module not in ("copy", "template") or not isinstance(name, str) or has_template(name):
            return
        if task.args.get("remote_src"):
            return
        where = f"{self.playbook.filename}:{task.line}: "
        context = CompileContext(Scope([]), self.files, self.directory)
        path = context.source(name.rstrip("/"), "templates" if task.module == "template" else "files")
        if not self.files.exists(path):
            raise UsageError(
                f"{where}the local file {path} does not exist.", f"Looked beside it for '{name}'."
            )
        if task.module == "template":
            try:
                check_template(self.files.read(path).decode())
            except (TemplateProblem, BadArgument, UnicodeDecodeError) as problem:
                raise UsageError(f"{where}{path}: {problem}.", "Mend the template.") from None

    def chosen(self, play: Play) -> tuple[str, ...]:
        where = f"{self.playbook.filename}:{play.line}: "
        scope = Scope([Layer(self.variables, False), Layer(play.variables, True)])
        try:
            pattern = str(evaluate(play.hosts, scope))
        except TemplateProblem as problem:
            raise UsageError(f"{where}'hosts': {problem}.", "Set it with -e.") from None
        names = select(pattern, list(self.hosts), self.groups, where)
        return tuple(name for name in names if name in self.wanted)

    def run_play(self, play: Play, names: tuple[str, ...], pool: ThreadPoolExecutor) -> None:
        self.tell(Progress("play", play.name))
        alive = [name for name in names if not self.states[name].failed]
        for part in _serial(play.serial, alive):
            options = self.options(names, part)
            futures = [pool.submit(self.run_host, play, name, options) for name in part]
            _wait(futures)
            if part and all(self.states[name].failed for name in part):
                self.unfinished |= {n for n in alive if not self.report.results.get(n)}
                self.stopping.set() if len(part) < len(alive) else None
            if self.stopping.is_set():
                return

    def options(self, names: Sequence[str], part: Sequence[str]) -> Options:
        magic = {
            "groups": {**self.groups, "all": list(self.hosts)},
            "hostvars": {name: dict(state.inventory) for name, state in self.states.items()},
            "ansible_play_hosts": list(names),
            "ansible_play_hosts_all": list(names),
            "ansible_play_batch": list(part),
            "rm_agents_dir": str(shipped_directory("agents")),
            "rm_version": rm.__version__,
        }
        return Options(self.directory, self.variables, magic, self.check, self.tags, self.skip_tags)

    def run_host(self, play: Play, name: str, options: Options) -> None:
        """One play on one host, start to end; runs in a thread of the pool."""
        state = self.states[name]
        run = HostPlay(play, state, self.files, options)
        planned: dict[str, Any] = {}
        while not self.stopping.is_set():
            batch = run.next_batch()
            if batch is None:
                return
            answers: list[dict[str, Any]] = []
            if batch.steps:
                steps = [step.wire() for step in batch.steps]
                request = {"steps": steps, "check": self.check, "diff": self.diff, "planned": planned}
                try:
                    if batch.control:
                        result = carry_out(self.hands(name, batch.become, request))
                    else:
                        result = self.send(name, batch.become, request)
                except RmError as problem:
                    if self.stopping.is_set():
                        break
                    self.settle([run.abandon(str(problem))])
                    return
                answers, planned = result["results"], result["planned"]
            self.settle(run.record(answers))
            if state.failed and play.any_errors_fatal:
                self.stopping.set()
        if not state.failed:
            self.unfinished.add(name)

    def hands(self, name: str, become: bool, request: dict[str, Any]) -> Hands:
        """What a step that the control machine carries out may use."""
        return Hands(
            host=self.hosts[name],
            request=request,
            send=lambda host, asked: self.send(host, become, asked),
            reconnect=lambda: self.reconnect(name),
            hosts=tuple(self.hosts.values()),
            stopping=self.stopping,
            daemon=self.daemon,
        )

    def reconnect(self, name: str) -> None:
        """Forget the host's kept-open connections: the next request makes new ones."""
        for key in [key for key in self.channels if key[0] == name]:
            self.channels.pop(key).close()

    def send(self, name: str, become: bool, request: dict[str, Any]) -> dict[str, Any]:
        if self.ask is not None and not become:
            answer = self.ask(name, request)
            if answer is not None:
                return answer
        key = (name, become)
        channel = self.channels.get(key)
        if channel is None:
            program = shipped_directory("agents") / "rm_steps.py"
            source = self.files.read(str(program))
            channel = StepsChannel(self.hosts[name], self.settings, source, become)
            self.channels[key] = channel
        return channel.steps(request)

    def settle(self, results: Sequence[TaskResult]) -> None:
        with self.lock:
            for result in results:
                self.report.results.setdefault(result.host, []).append(result)
                self.tell(Progress("task", result=result))


def _inventory(host: Host) -> dict[str, Any]:
    return {
        **{name: decode(value) for name, value in host.variables},
        "ansible_host": host.address,
        "ansible_port": host.port,
        "ansible_user": host.login,
        "rm_zone": host.zone,
        "rm_interface": host.interface,
        "rm_nic_mbps": host.nic_bps // 1_000_000,
        "rm_cpus": host.cpus,
        "rm_partitions": list(host.partitions),
    }


def _serial(serial: tuple[int | str, ...], names: list[str]) -> list[list[str]]:
    """Rolling batches: numbers or percentages; the last size repeats."""
    if not serial or not names:
        return [names]
    parts, rest, sizes = [], names, list(serial)
    while rest:
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        text = str(size)
        count = len(names) * int(text[:-1]) // 100 if text.endswith("%") else int(text)
        count = max(1, count) if text != "0" else len(names)
        parts.append(rest[:count])
        rest = rest[count:]
    return parts


def _wait(futures: Sequence[Future[None]]) -> None:
    wait(futures)
    for future in futures:
        future.result()  # a defect of rm is raised, not swallowed
