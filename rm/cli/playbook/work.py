"""`rmx playbook work`: one run of a playbook for the daemon, which starts it and reads what it says.

The orders, which hold secrets, come as one line of JSON on standard input; where that ends, because the
daemon ended or ends the run, the run is broken off as by Ctrl-C. What happens goes to standard output, a JSON
object a line, of which every secret has been taken out.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rm.cli.session import Session
from rm.core.playbook_runs import RunState, TaskOutcome
from rm.errors import RmError
from rm.playbook.run.report import Progress, Report

MESSAGE_MOST, OUTPUT_MOST, DIFF_MOST, ITEMS_MOST = 8_192, 8_192, 65_536, 200  # of one task on one host
NAME_MOST = 500  # characters of a task's, a play's, a host's name, which may be templates of hosts' texts
FORKS = 16
OF_OUTCOME = tuple(field.name for field in fields(TaskOutcome))  # none holds a dataclass
FREE = ("text", "task", "play", "message", "output", "diffs")


def worked(session: Session) -> int:
    """The whole of the command; its exit code."""
    orders = json.loads(sys.stdin.buffer.readline())
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anything else prints is none of the daemon's lines
    said = Said(out)
    over = threading.Event()
    threading.Thread(target=_watch, args=(over,), name="orders", daemon=True).start()
    try:
        report = _run(session, orders, said)
    except RmError as error:
        said.end(RunState.FAILED, f"{error.what} {error.hint}".strip())
    except KeyboardInterrupt:
        said.end(RunState.INTERRUPTED)
    except Exception as error:  # which the daemon could not tell from a killed process
        said.end(RunState.FAILED, f"rm met a defect of its own: {type(error).__name__}: {error}")
    else:
        said.report(report)
    finally:
        over.set()
    return 0


def _watch(over: threading.Event) -> None:
    """The daemon holds the other end of standard input for as long as the run is wanted."""
    with suppress(OSError, ValueError):
        sys.stdin.buffer.read()
    if not over.is_set():
        os.kill(os.getpid(), signal.SIGINT)


def _run(session: Session, orders: Mapping[str, Any], said: Said) -> Report:
    """Raises RmError."""
    from rm.adapters.playbook.agents import DaemonAgents
    from rm.adapters.playbook.files import LocalFiles
    from rm.adapters.playbook.run import run_playbook
    from rm.adapters.playbook.shipped import shipped_directory
    from rm.cli.playbook.ansible_config import ansible_settings
    from rm.cli.playbook.given import fleet_of, is_asked_for, vault_of
    from rm.cli.playbook.login import Login
    from rm.cli.playbook.queue_daemon import QueueDaemon
    from rm.playbook.model.connection import passwords_of
    from rm.playbook.model.located import untemplated

    said.secrets = set(orders["secrets"])
    path = Path(orders["path"])
    os.chdir(path.parent)  # where an ansible.cfg lies that holds for it
    ansible = ansible_settings(os.environ, path.parent == shipped_directory("playbooks"), ours=True)
    named = (orders["vault_password_file"],) if orders["vault_password_file"] else ansible.vault_files
    vault = vault_of([one for one in named if not is_asked_for(one)], False)  # nobody is there
    vault.secrets.update(said.secrets)
    said.secrets = vault.secrets  # which grows as the vault is opened
    login = Login().with_settings(ansible)
    fleet = fleet_of(session, (), None, None, vault, path, login, ansible)
    vault.secrets.update(passwords_of(fleet.variables.values()))
    passwords = login.passwords()
    vault.secrets.update(text for text in (passwords.become, passwords.login) if text)
    return run_playbook(
        path,
        fleet.hosts,
        fleet.settings,
        variables=variables_of(orders),
        check=orders["check"],
        diff=orders["diff"],
        limit=orders["limit"] or None,
        tags=orders["tags"] or ansible.tags,
        skip_tags=orders["skip_tags"] or ansible.skip_tags,
        forks=ansible.forks or FORKS,
        progress=said.tell,
        files=LocalFiles(vault, ansible),
        agents=DaemonAgents(session.new_connection, lambda why: None),
        daemon=QueueDaemon(session),
        inventory=fleet.variables,
        sources=fleet.sources,
        magic={**fleet.magic, "ansible_verbosity": 0},
        become=login.become,
        become_user=login.become_user,
        passwords=passwords,
        answers=untemplated(orders["prompted"]),
    )


def variables_of(orders: Mapping[str, Any]) -> dict[str, Any]:
    """The extra variables: what somebody answered is no template, whatever it looks like; defaults may be."""
    from rm.playbook.model.located import untemplated

    defaults = orders["defaults"]
    return {
        name: value if name in defaults else untemplated(value) for name, value in orders["extra"].items()
    }


class Said:
    """The lines that the daemon reads. `secrets` are taken out of each; the set grows while the run goes."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self._guard = threading.Lock()
        self._since: dict[str, float] = {}  # by host: since when it is at work
        self._number = 0
        self.secrets: set[str] = set()

    def tell(self, event: Progress) -> None:
        with self._guard:
            now_s = time.monotonic()
            if event.kind == "start":
                self._since[event.hosts[0]] = now_s
                self._say({"kind": "start", "host": event.hosts[0], "task": self._short(event.text)})
            elif event.kind == "play":
                self._say({"kind": "play", "text": self._short(event.text)})
            elif event.kind == "note":
                self._say({"kind": "note", "text": self._short(event.text)})
            elif event.result is not None:
                self._number += 1
                since_s = self._since.get(event.result.host, now_s)
                self._since[event.result.host] = now_s
                waited_us = int((now_s - since_s) * 1e6)
                outcome = outcome_of(event.result, self._number, waited_us)
                told = {name: getattr(outcome, name) for name in OF_OUTCOME}
                self._say({"kind": "task", "outcome": told})

    def report(self, report: Report) -> None:
        recap = {host: asdict(counts) for host, counts in sorted(report.recap().items())}
        if report.interrupted:
            state = RunState.INTERRUPTED
        elif any(one["unreachable"] for one in recap.values()):
            state = RunState.UNREACHABLE
        else:
            state = RunState.OK if report.ok else RunState.FAILED
        self.end(state, recap=recap, not_reached=list(report.not_reached))

    def end(self, state: RunState, message: str = "", **more: Any) -> None:
        with self._guard:
            self._say({"kind": "end", "state": state, "message": self._short(message, MESSAGE_MOST), **more})

    def _short(self, text: str, most: int = NAME_MOST) -> str:
        """Secrets first: a part of one would not be known."""
        from rm.adapters.playbook.secrets import masked_text

        return _cut(masked_text(text, self.secrets), most)

    def _say(self, line: dict[str, Any]) -> None:
        self._write(clean(line, self.secrets))

    def _write(self, line: dict[str, Any]) -> None:
        with suppress(OSError):  # the daemon has gone, and standard input says so, too
            self._out.write(json.dumps(line) + "\n")
            self._out.flush()


def clean(line: Mapping[str, Any], secrets: Iterable[str]) -> dict[str, Any]:
    """The line with its free texts without secrets, and without what is no text; a secret that is a word of
    the lines themselves breaks none."""
    from rm.adapters.playbook.secrets import masked_text

    def text(of: str) -> str:
        return masked_text(of, secrets).encode("utf-8", "replace").decode()

    def field(name: str, value: Any) -> Any:
        if name == "outcome":
            return clean(value, secrets)
        if name == "items":
            return [(text(label), status, text(message)) for label, status, message in value]
        if name in FREE and isinstance(value, str):
            return text(value)
        return [text(one) for one in value] if name in FREE else value

    return {name: field(name, value) for name, value in line.items()}


def outcome_of(result: Any, number: int, waited_us: int) -> TaskOutcome:
    """What is kept of a task's result, which is masked: never all that `register` keeps."""
    status = "rescued" if result.rescued else "ignored" if result.ignored else result.status
    stdout = result.result.get("stdout")
    return TaskOutcome(
        number=number,
        host=result.host,
        play=_cut(result.play, NAME_MOST),
        task=_cut(result.task, NAME_MOST),
        module=result.module,
        status=status,
        at_us=time.time_ns() // 1_000,
        took_us=result.took_us or waited_us,
        message=_cut(result.message, MESSAGE_MOST),
        output=_cut(stdout, OUTPUT_MOST) if isinstance(stdout, str) else "",
        diffs=_bounded(result.diffs),
        items=tuple((_cut(a, 300), b, _cut(c, 1_000)) for a, b, c in result.items[:ITEMS_MOST]),
        file=result.file,
        line=result.line,
        delegated=_cut(result.delegated, NAME_MOST),
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + f"\n… and {len(text) - most} more characters"


def _bounded(diffs: Iterable[str]) -> tuple[str, ...]:
    found, room = [], DIFF_MOST
    for diff in diffs:
        if room > 0:
            found.append(_cut(diff, room))
        room -= len(diff)
    return tuple(found)
