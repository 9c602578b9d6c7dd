"""Runs playbooks on hosts: one kept-open connection per host, steps in batches, hosts side by side.

A host's steps travel to its agent when `agents` knows one; else the text of `agents/rm_steps.py` is fed to
`python3` on the host once and then spoken to over that one channel. Hosts fail each for itself.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import rm
from rm.adapters.hosts.settings import SshSettings
from rm.adapters.playbook.become import Passwords
from rm.adapters.playbook.control import Daemon
from rm.adapters.playbook.control import Prompt as Ask
from rm.adapters.playbook.files import LocalFiles, read_playbook
from rm.adapters.playbook.hosts import Agents, Ways
from rm.adapters.playbook.orders import Orders
from rm.adapters.playbook.part import Conductor
from rm.adapters.playbook.passwords import PasswordBook
from rm.adapters.playbook.roster import Roster
from rm.adapters.playbook.shipped import agents_version, shipped_directory
from rm.adapters.playbook.sources import ThisMachine, check_sources
from rm.core.model.host import Host
from rm.errors import UsageError
from rm.hints import did_you_mean
from rm.playbook.inventory.sources import Sources
from rm.playbook.model.flow import END
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.model.schema import Play, Playbook, Prompt, Task, tasks_of
from rm.playbook.read.listing import growing_of, names_of, plan_of_play
from rm.playbook.read.reader import Reader
from rm.playbook.run.conduct import Part
from rm.playbook.run.evaluate import Options
from rm.playbook.run.lookups import seeker
from rm.playbook.run.reach import check_settings
from rm.playbook.run.report import Progress, Recap, Report
from rm.playbook.run.rolling import batches, in_order, max_fail
from rm.playbook.template.template import Layer, Scope, evaluate, has_template
from rm.playbook.template.variables import ANSIBLE_VERSION

__all__ = ["Passwords", "Progress", "Recap", "Report", "plan_of", "run_playbook"]


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
    prompt: Ask | None = None,
    inventory: Mapping[str, Mapping[str, Any]] | None = None,
    sources: Sources | None = None,
    magic: Mapping[str, Any] | None = None,
    become: bool = False,
    become_user: str = "",
    passwords: Passwords | None = None,
    answers: Mapping[str, Any] | None = None,
) -> Report:
    """Run every play of a playbook and say what became of it.

    Raises UsageError before any host is touched when the playbook, a pattern, a template or a local file
    that is named outright is wrong;
    every failure on a host is in the report. Ctrl-C ends the run with `interrupted` set.
    `inventory` are the hosts' variables where they are more than `Host.variables` holds, `sources` give them
    anew for groups that tasks make and for imported playbooks of other directories; `prompt`
    answers `vars_prompt` and `pause`, where `answers` does not; `magic` are names to provide besides rm's
    own. `become` and `become_user` hold where the playbook and the variables do not say; so do `passwords`.
    """
    local = files or LocalFiles()
    read = read_playbook(playbook, local, variables)
    orders = Orders(
        dict(variables or {}), check, diff, limit or "", tuple(tags), tuple(skip_tags), max(1, forks),
        start_at, magic or {}, become, become_user, passwords or Passwords(), local,
        progress or (lambda event: None), agents, daemon, prompt, answers or {},
    )  # fmt: skip
    begins = _beside(str(playbook))
    roster = Roster(hosts, orders.variables, inventory or {}, orders.limit, sources, begins)
    return _Run(read, roster, settings, orders).run()


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
    read = read_playbook(playbook, files or LocalFiles(), variables)
    roster = Roster(hosts, variables or {}, {}, limit or "")
    return [
        {
            "play": play.name,
            "hosts": in_order(play, roster.chosen(play, grows)),
            **plan_of_play(play, tags, skip_tags),
        }
        for play, grows in growing_of(read.plays)
    ]


class _Run:
    """One run of a playbook, play by play."""

    def __init__(self, playbook: Playbook, roster: Roster, settings: SshSettings, orders: Orders) -> None:
        self.playbook, self.roster, self.orders = playbook, roster, orders
        passwords = PasswordBook(roster, orders.passwords, orders.files.vault)
        self.ways = Ways(roster.hosts, settings, orders.agents, roster.connection_of, passwords.of)
        self.stopping = threading.Event()
        self.unfinished: set[str] = set()
        self.through: set[str] = set()  # who has done all of the running play
        self.part: Part | None = None  # the running one
        self.report = Report(playbook.filename, orders.check)
        directory = os.path.dirname(os.path.abspath(playbook.filename))
        self.seek = seeker(orders.files, (directory,), ThisMachine(vault=orders.files.vault))
        roster.names = {**orders.magic, "playbook_dir": directory}
        roster.seek = self.seek

    def run(self) -> Report:
        states = self.roster.states
        growing = growing_of(self.playbook.plays)
        chosen = [(play, self.roster.chosen(play, grows)) for play, grows in growing]
        self.roster.check([_beside(play.file) for play, _ in chosen])
        self.roster.tell_unknown(lambda text: self.orders.tell(Progress("note", text)))
        for play, names in chosen:
            self.tell_unknown(play)
            check_sources(play, self.orders.files, _directory(play))
            check_settings(play)
            self.prompts(play)
            if not play.prompts:  # else the answers may say it
                self.rolling(play, names, {})
        if start_at := self.orders.start_at:
            known = [name for play, _ in chosen for name in names_of(play)]
            if not any(fnmatchcase(name, start_at) for name in known):
                raise UsageError(f"no task is called '{start_at}'.", did_you_mean(start_at, known))
        cache, note = self.orders.files.fact_cache, lambda text: self.orders.tell(Progress("note", text))
        if cache is not None:
            cache.load(states, note)
        with ThreadPoolExecutor(self.orders.forks, thread_name_prefix="playbook") as pool:
            conductor = Conductor(self.orders, self.roster, self.ways, self.report, self.stopping, pool)
            try:
                for index, (play, grows) in enumerate(growing):
                    if grows:
                        chosen[index] = (play, self.roster.chosen(play, growing=True, begins=True))
                    self.run_play(*chosen[index], conductor)
                    if self.stopping.is_set():
                        later = {name for _, others in chosen[index + 1 :] for name in others}
                        self.unfinished |= {n for n in later if not states[n].failed}
                        break
            except KeyboardInterrupt:
                self.report.interrupted = True
                self.stopping.set()
                self.orders.files.stop()
                left = {name for _, names in chosen[index:] for name in names} - self.through
                if self.part is not None:
                    left -= {name for name, one in self.part.runs.items() if one.position == END}
                self.unfinished |= {name for name in left if not states[name].failed}
                pool.shutdown(wait=False, cancel_futures=True)
            finally:
                self.ways.close()
                if cache is not None:
                    cache.save(states, note)
        self.unfinished |= {name for name, state in states.items() if state.out and not state.failed}
        self.report.not_reached = tuple(name for name in states if name in self.unfinished)
        return self.report

    def tell_unknown(self, play: Play) -> None:
        """What is an error only where a host meets it."""
        for task in (*tasks_of(play.tasks), *play.handlers):
            if task.unknown:
                said = f"{task.file}:{task.line}: {task.unknown} The task fails where a host comes to it."
                self.orders.tell(Progress("note", said))
        for one in play.unheard:
            said = f"{one.file}:{one.line}: no handler is called '{one.name}'."
            ends = "The run ends where that task changes something."
            self.orders.tell(
                Progress("note", f"{said} {ends if play.error_on_missing_handler else one.hint}")
            )

    def run_play(self, play: Play, names: tuple[str, ...], conductor: Conductor) -> None:
        """For the hosts that were chosen as it begins: `hosts` may give others when it is asked again."""
        states = self.roster.states
        self.roster.names = {**self.orders.magic, "playbook_dir": _directory(play)}
        self.roster.enter(_beside(play.file))
        ordered = in_order(play, names)
        self.orders.tell(Progress("play", play.name, hosts=tuple(ordered)))
        self.through.clear()
        prompted = self.prompted(play)
        alive = [name for name in ordered if not states[name].out]
        for state in states.values():
            state.ended = False
        limit, parts = self.rolling(play, alive, prompted)
        for names_now in parts:
            options = self.options(play, names, names_now, prompted)
            part = Part(play, names_now, states, self.orders.files, options, limit)
            self.part = part
            conductor.run(part)
            self.part, self.through = None, self.through | set(names_now)
            nobody = names_now and all(states[name].out for name in names_now)
            if part.stopped or (nobody and not part.goes_on):
                # as Ansible: where nobody is left the whole run ends
                self.unfinished |= {n for n in alive if not self.report.results.get(n)} | set(part.cut_short)
                self.stopping.set()
            if self.stopping.is_set() or part.ended:
                return

    def rolling(
        self, play: Play, names: Sequence[str], prompted: Mapping[str, Any]
    ) -> tuple[float | None, list[list[str]]]:
        """The failures that end the play, in percent, and its hosts part by part; raises UsageError."""
        extra = self.orders.variables
        scope = Scope([Layer(extra, True), Layer(prompted, False), Layer(play.variables, True)])
        return max_fail(play, scope), batches(play, scope, names)

    def prompts(self, play: Play) -> list[Prompt]:
        """The `vars_prompt` of a play without templates. Raises UsageError."""
        reader, task = Reader(play.file), Task("", "", {}, play.line)

        def known(value: Any) -> Any:
            return play.shelf.known_now(reader, value, play.line, "vars_prompt", task)

        return [
            replace(one, text=str(known(one.text)), default=known(one.default), salt=known(one.salt))
            for one in play.prompts
        ]

    def prompted(self, play: Play) -> dict[str, Any]:
        """What `vars_prompt` sets: texts, as in Ansible, also where a default is a number or missing."""
        found: dict[str, Any] = {}
        for one in self.prompts(play):
            if one.name in self.orders.variables:
                continue
            if one.name in self.orders.answers:
                found[one.name] = self.orders.answers[one.name]
            else:
                said = self._answer(one)
                found[one.name] = said if said else str(said if one.default is None else one.default)
            if one.encrypt:
                secret = {"secret": str(found[one.name]), "kind": one.encrypt, "salt": one.salt}
                scope = Scope([Layer({**secret, "size": one.salt_size}, False)], seek=self.seek)
                try:
                    found[one.name] = evaluate("{{ secret | password_hash(kind, salt, size) }}", scope)
                except TemplateProblem as problem:
                    raise UsageError(f"The answer for '{one.name}' cannot be hashed: {problem}.") from None
                if one.private and one.name in self.orders.answers:
                    self.orders.files.vault.secrets.add(str(found[one.name]))
        return found

    def _answer(self, prompt: Prompt) -> str | None:
        """What is answered, the same twice where that is asked for; None where nobody can be asked."""
        ask = self.orders.prompt
        if ask is None:
            default = "its default" if prompt.default is not None else "the text 'None', as in Ansible"
            self.orders.tell(Progress("note", f"No terminal to ask for '{prompt.name}': it is {default}."))
            return None
        text = prompt.text if prompt.default is None else f"{prompt.text} [{prompt.default}]"
        while True:
            said = ask(f"{text}: ", prompt.private, self.stopping)
            if prompt.confirm and said != ask(f"confirm {text}: ", prompt.private, self.stopping):
                self.orders.tell(Progress("note", "The two answers differ; once more."))
            elif has_template(said) and not prompt.unsafe:
                why = f"No template is evaluated in the answer for '{prompt.name}'; once more."
                self.orders.tell(Progress("note", f"{why} 'unsafe: true' in vars_prompt takes it as it is."))
            else:
                return said

    def options(
        self, play: Play, names: Sequence[str], part: Sequence[str], prompted: Mapping[str, Any]
    ) -> Options:
        """`names` are all of the play's hosts, in the order of the pattern, whatever `order` says."""
        orders = self.orders
        magic = {
            "groups": self.roster.shown,  # which tasks may add to
            "ansible_play_hosts_all": list(names),
            "ansible_playbook_python": sys.executable,
            "rm_agents_dir": str(shipped_directory("agents")),
            "ansible_version": ANSIBLE_VERSION,
            "ansible_run_tags": list(orders.tags) or ["all"],
            "ansible_skip_tags": list(orders.skip_tags),
            "ansible_diff_mode": orders.diff,
            "ansible_forks": orders.forks,
            "ansible_verbosity": 0,
            **({"ansible_limit": orders.limit} if orders.limit else {}),
            **orders.magic,
        }
        return Options(
            _directory(play), orders.variables, magic, orders.check, orders.tags, orders.skip_tags,
            orders.start_at, ThisMachine(vault=orders.files.vault), prompted,
            {"ansible_play_hosts": tuple(names), "ansible_play_batch": tuple(part),
             "play_hosts": tuple(part)}, _late(play),
            orders.become, orders.become_user,
        )  # fmt: skip


def _directory(play: Play) -> str:
    """`playbook_dir`: as in Ansible, where the playbook lies which holds the play."""
    return os.path.dirname(os.path.abspath(play.file))


def _beside(playbook: str) -> str:
    """Where group_vars/ and host_vars/ of a playbook are: beside the file that a link leads to."""
    return str(Path(playbook).resolve().parent)


def _late(play: Play) -> dict[str, Callable[[], Any]]:
    """Names whose values take work, or change while the play runs."""
    shelf = play.shelf
    return {
        "rm_version": lambda: f"{rm.__version__}, agents {agents_version()}",
        "role_names": lambda: list(shelf.named),
        "ansible_play_role_names": lambda: list(shelf.named),
        "ansible_dependent_role_names": lambda: list(shelf.dependent),
        "ansible_role_names": lambda: list(dict.fromkeys([*shelf.named, *shelf.dependent])),
        "template_host": lambda: os.uname().nodename,
    }
