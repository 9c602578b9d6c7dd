"""Who `rmx playbook run` logs in as and becomes, and the passwords for it: asked, or read from files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rm.cli.output import note
from rm.errors import UsageError
from rm.quick_dataclass import dataclass

if TYPE_CHECKING:
    from rm.adapters.playbook.become import Passwords
    from rm.core.model.host import Host
    from rm.playbook.read.ansible_settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
NAMED_MAX = 5  # hosts in a message


@dataclass(frozen=True, slots=True)
class Login:
    """The options as they were given; what a playbook or an inventory says is stronger."""

    user: str | None = None
    become: bool = False
    become_user: str = ""
    become_method: str = "sudo"
    ask_become_pass: bool = False
    become_password_file: str | None = None
    ask_pass: bool = False
    connection_password_file: str | None = None

    def with_settings(self, ansible: Settings) -> Login:
        """What ansible.cfg and the environment say where no option does."""
        ask_become, ask = ansible.become_ask_pass, ansible.ask_pass
        return replace(
            self,
            user=self.user if self.user is not None else ansible.remote_user,
            become=self.become or ansible.become,
            become_user=self.become_user or ansible.become_user or "",
            ask_become_pass=self.ask_become_pass or (ask_become and not self.become_password_file),
            become_password_file=self.become_password_file or ansible.become_password_file,
            ask_pass=self.ask_pass or (ask and not self.connection_password_file),
            connection_password_file=self.connection_password_file or ansible.connection_password_file,
        )

    def passwords(self) -> Passwords:
        """Asks on the terminal where it has to; raises UsageError."""
        from rm.adapters.playbook.become import Passwords

        login = _password("SSH password", "--ask-pass", self.ask_pass, self.connection_password_file)
        prompt = "Password for sudo" + (" [the SSH password]" if login else "")
        become = _password(
            prompt, "--ask-become-pass", self.ask_become_pass, self.become_password_file, login
        )
        return Passwords(become, login)

    def as_user(self, hosts: Sequence[Host], named: Sequence[str]) -> list[Host]:
        """The hosts with --user's login, but for those whose inventory names one (`named`)."""
        if self.user is None:
            return list(hosts)
        kept = [host.name for host in hosts if host.name in set(named) and host.login != self.user]
        if kept:
            who = ", ".join(kept[:NAMED_MAX]) + (
                f" and {len(kept) - NAMED_MAX} more" if kept[NAMED_MAX:] else ""
            )
            note(f"--user is not used for {who}: the inventory names their login (-e ansible_user=… wins).")
        return [host if host.name in set(named) else replace(host, login=self.user) for host in hosts]


def login_options(command: F) -> F:
    """The options; the command gets them as `login`, a Login."""

    def wrapped(*args: Any, **given: Any) -> Any:
        own = {name: given.pop(name) for name in Login.__dataclass_fields__}
        own["become_user"] = own["become_user"] or ""
        return command(*args, **given, login=Login(**own))

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    if hasattr(command, "__click_params__"):
        wrapped.__click_params__ = command.__click_params__  # type: ignore[attr-defined]
    for option in reversed(
        (
            click.option(
                "-u", "--user", metavar="USER", help="Log in as USER where the inventory names none."
            ),
            click.option(
                "-b", "--become", is_flag=True, help="Become root (sudo), unless the playbook says otherwise."
            ),
            click.option("--become-user", metavar="USER", help="The user to become instead of root."),
            click.option(
                "--become-method", type=click.Choice(["sudo"]), default="sudo", help="Only sudo is supported."
            ),
            click.option("-K", "--ask-become-pass", is_flag=True, help="Ask for sudo's password."),
            click.option(
                "--become-password-file", "--become-pass-file", metavar="FILE", help="Read sudo's password."
            ),
            click.option("-k", "--ask-pass", is_flag=True, help="Ask for the SSH password."),
            click.option(
                "--connection-password-file",
                "--conn-pass-file",
                metavar="FILE",
                help="Read the SSH password.",
            ),
        )
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


def _password(prompt: str, option: str, ask: bool, file: str | None, default: str = "") -> str:
    if file:
        from rm.adapters.playbook.vault import read_password

        return read_password(file, "password").decode()
    if not ask:
        return ""
    if not sys.stdin.isatty():
        raise UsageError(f"{option} asks on a terminal, and there is none.", "Give the password in a file.")
    return str(click.prompt(prompt, default=default, show_default=False, hide_input=True, err=True))
