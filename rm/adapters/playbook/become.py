"""sudo, with a password where it asks for one: over its standard input, never on a command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from rm.errors import RmError
from rm.quick_dataclass import dataclass

PROMPT = "rm: password for sudo: "
_READY = "rm: sudo let us in"
_SHELL = f'echo "{_READY}"; exec "$@"'
ANSWER_S = 30.0  # sudo waits a few seconds after a wrong password, and may ask a directory service
HINT = "Give it with --ask-become-pass, --become-password-file or the variable ansible_become_password."


class Refused(RmError):
    """sudo does not let the login become root; nothing was run."""


@dataclass(frozen=True, slots=True)
class Passwords:
    """What to say where a host's variables name no password: "" = there is none."""

    become: str = field(default="", repr=False)
    login: str = field(default="", repr=False)


def argv(command: Sequence[str], password: str) -> list[str]:
    """The command as root. With a password sudo asks for it (see `converse`); without it never asks."""
    if not password:
        return ["sudo", "-n", *command]
    return ["sudo", "-S", "-p", PROMPT, "sh", "-c", _SHELL, "sh", *command]


def converse(
    host: str, password: str, read: Callable[[], bytes | None], write: Callable[[bytes], None]
) -> None:
    """Give the password when sudo asks for it, and come back when the command runs.

    `read` gives the next bytes of standard output and standard error together, b"" at their end, None when
    nothing came for ANSWER_S. Raises Refused with what sudo said.
    """
    seen, asked = "", 0
    while f"{_READY}\n" not in seen:
        part = read()
        if part is None:
            raise Refused(f"sudo on host {host} does not answer within {ANSWER_S:g} s.")
        seen += part.decode(errors="replace")
        if not part:
            raise Refused(sentence(host, seen))
        if seen.count(PROMPT) > asked:
            if asked:
                raise Refused(f"sudo on host {host} refuses the password.", HINT)
            asked = 1
            write(password.encode() + b"\n")


def sentence(host: str, said: str) -> str:
    """Why sudo refused, from what it wrote."""
    lines = [line.strip() for line in said.replace(PROMPT, "\n").splitlines() if line.strip()]
    last = lines[-1].removeprefix("sudo: ").rstrip(".") if lines else "it said nothing"
    if "password is required" in last:
        return f"sudo on host {host} wants a password. {HINT}"
    return f"sudo on host {host} refuses: {last}."
