"""Inventories that are programs, which this user runs, and those of plug-ins, which ansible-core runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rm.adapters.playbook.installed import NOT_FROM_HERE, installed, python_with_ansible
from rm.adapters.playbook.trust import closing, ways_to
from rm.errors import ConfigError
from rm.playbook.inventory.answered import groups_of, object_of
from rm.playbook.inventory.inventory import WRITE_OUT
from rm.playbook.model.located import Map

PROGRAM = (b"#!", b"\x7fE")
ANSIBLE = NOT_FROM_HERE + "import runpy;runpy.run_module('ansible',run_name='__main__',alter_sys=True)"
STRICT = {
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
    "ANSIBLE_DEPRECATION_WARNINGS": "false",
    "ANSIBLE_NOCOLOR": "true",
}
SAID_MAX = 500  # characters of what one says of its fault: Python's last ones tell it, Ansible's first ones


def is_program(path: Path) -> bool:
    """Whether it may be run, and begins as what is run does; False where it cannot be read."""
    try:
        with path.open("rb") as file:
            return os.access(path, os.X_OK) and file.read(2) in PROGRAM
    except OSError:
        return False


def of_program(path: Path, decrypt: Callable[[str], str] | None) -> Map:
    """The groups that the program answers to `--list`; without `_meta` it is asked for each host by `--host`.
    Raises ConfigError."""
    _must_be_ours(path)
    whose = f"The inventory program {path}"

    def ask(*words: str) -> dict[str, Any]:
        return object_of(_said([os.path.abspath(path), *words], whose), whose)

    return groups_of(ask("--list"), whose, lambda host: ask("--host", host), decrypt)


def of_plugin(
    sources: Sequence[str], path: Path, passwords: Sequence[bytes], decrypt: Callable[[str], str] | None
) -> Map:
    """All groups of the sources, of which the last one, `path`, is for a plug-in: it may build upon the
    others, and upon variables beside them, which `passwords` of the vault open. Raises ConfigError."""
    _must_be_ours(path)
    if not installed().core:
        raise ConfigError(
            f"The inventory {path} is for a plug-in that ansible-core runs, which is not installed here.",
            f"pip install ansible-core, or elsewhere: {WRITE_OUT.format(path)}",
        )
    whose = f"ansible-inventory for {path}"
    asked = [word for source in sources for word in ("-i", source)]
    argv = [python_with_ansible(), "-c", ANSIBLE, "inventory", *asked, "--list", "--export"]
    with ExitStack() as held:
        ends = [held.enter_context(_holding(password)) for password in passwords]
        argv += [word for end in ends for word in ("--vault-password-file", f"/dev/fd/{end}")]
        text = _said(argv, whose, STRICT, ends)

    def unheard(_host: str) -> Mapping[str, Any]:
        return {}

    return groups_of(object_of(text, whose), whose, unheard, decrypt)


@contextmanager
def _holding(password: bytes) -> Iterator[int]:
    """A file in memory of which the password is read: a pipe would hold no more than 64 KiB of it."""
    with open(os.memfd_create("vault-password"), "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # ansible-core would run one that may be run
        file.write(password)
        file.flush()
        yield file.fileno()


def _said(
    argv: Sequence[str], whose: str, more: Mapping[str, str] | None = None, ends: Sequence[int] = ()
) -> str:
    environment = {**os.environ, **(more or {})}
    try:
        done = subprocess.run(argv, capture_output=True, env=environment, pass_fds=ends, check=False)
    except OSError as problem:
        raise ConfigError(f"{whose} cannot be run: {problem.strerror}.") from None
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())
        said = said[:SAID_MAX] if more else said[-SAID_MAX:]
        raise ConfigError(f"{whose} ended with {done.returncode}: {said or 'it said nothing'}")
    return done.stdout.decode(errors="replace")


def _must_be_ours(path: Path) -> None:
    """Raises ConfigError where others could write it, or put something else there."""
    for number, way in enumerate(ways_to(path, set())):
        if commands := closing(way, far=number > 0):  # the first is the file itself
            raise ConfigError(
                f"Others than root and you may write {way}, and the inventory {path} would run it.",
                f"{commands}, or keep the inventory in a directory of your own.",
            )
