"""What a playbook names outright on this machine is looked at before any host is touched."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rm.adapters.playbook.vault import Vault, seal
from rm.errors import UsageError
from rm.playbook.model.problems import BadArgument, TemplateProblem
from rm.playbook.model.schema import Play, Task, tasks_of
from rm.playbook.module import Files
from rm.playbook.own.plugins import own_of
from rm.playbook.run.sought import find
from rm.playbook.template.template import has_template
from rm.playbook.template.template_file import check_file

NO_UNICODE = "a text holds what is no character of Unicode"


class ThisMachine:
    """`lookups.Control` for this machine; what the filter `unvault` opens is a secret of `vault`."""

    def __init__(self, environment: Mapping[str, str] | None = None, vault: Vault | None = None) -> None:
        self._vault = vault or Vault(())
        self._environment = os.environ if environment is None else environment

    def environment(self, name: str) -> str | None:
        return self._environment.get(name)

    def looks(self, kind: str, path: str, other: str) -> Any:
        from rm.adapters.playbook.here import looks

        return looks(kind, path, other)

    def pipe(self, command: str) -> str:
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BadArgument(f"'{command}' failed ({done.returncode}): {done.stderr.strip()[-500:]}")
        return done.stdout

    def now(self) -> datetime:
        return datetime.now().astimezone()

    def chance(self, seed: Any) -> random.Random:
        return random.SystemRandom() if seed is None else random.Random(seed)

    def crypt(self, secret: str, setting: str) -> str:
        from rm.adapters.playbook.here import crypt  # asked for rarely, and long to import

        return crypt(secret, setting)

    def seal(self, plain: str, password: str, salt: str | None, label: str) -> str:
        try:
            return seal(plain.encode(), password.encode(), salt.encode() if salt else None, label)
        except UnicodeEncodeError:  # a host's text may hold a lone surrogate
            raise BadArgument(NO_UNICODE) from None

    def unseal(self, sealed: str, password: str) -> str:
        try:
            return self._vault.open_by(sealed, password.encode())
        except UnicodeDecodeError:
            raise BadArgument("what the vault holds is no UTF-8 text") from None
        except UnicodeEncodeError:
            raise BadArgument(NO_UNICODE) from None
        except UsageError as problem:
            raise BadArgument(f"it cannot be opened: {problem.what}".rstrip(".")) from None

    def fetch(self, url: str, options: Mapping[str, Any]) -> bytes:
        from rm.adapters.playbook.here import fetch

        return fetch(url, options)

    def keep(self, path: str, content: Callable[[str | None], str]) -> None:
        from rm.adapters.playbook.here import keep

        keep(path, content)


def check_sources(play: Play, files: Files, directory: str) -> None:
    """Local files that tasks name outright must be there, and templates must be some. Raises UsageError."""
    for problem in source_problems(play, files, directory):
        raise problem


def source_problems(play: Play, files: Files, directory: str) -> Iterator[UsageError]:
    """The same, all of them."""
    for task in (*tasks_of(play.tasks), *play.handlers):
        try:
            _check(task, files, directory)
        except UsageError as problem:
            yield problem


def _check(task: Task, files: Files, directory: str) -> None:
    name = task.args.get("src")
    if task.module not in ("copy", "template", "script", "unarchive") or not isinstance(name, str):
        return
    if has_template(name) or task.args.get("remote_src") or "://" in name:
        return
    path = find(files, _places(task, directory), name.rstrip("/"), _kind(task.module))
    where = f"{task.file}:{task.line}: "
    if not files.exists(path):
        if task.when:  # it may be meant for a case that never comes
            return
        raise UsageError(f"{where}the local file {path} does not exist.", f"Looked beside it for '{name}'.")
    if task.module == "template":
        try:
            check_file(files.read(path).decode(), task.args, own_of(files))
        except (TemplateProblem, BadArgument, UnicodeDecodeError) as problem:
            raise UsageError(f"{where}{path}: {problem}.", "Mend the template.") from None


def _kind(module: str) -> str:
    return "templates" if module == "template" else "files"


def _places(task: Task, directory: str) -> Sequence[str]:
    beside = os.path.dirname(task.file)
    return tuple(dict.fromkeys([*([task.role.path] if task.role else []), beside, directory]))
