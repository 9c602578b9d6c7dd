"""What every command shares: the connection, `--json`, operands that are also options, output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from rm.arrays import JobId, parse_id, split_ids
from rm.cli.output import aligned, note, printable, printable_json
from rm.errors import UsageError
from rm.units import parse_hosts

if TYPE_CHECKING:
    from rm.api.answer import Answer
    from rm.client import Client
    from rm.client.address import Address
    from rm.client.connection import Connection
    from rm.config import Config

VERSION = 1
ENDLESS = 100_000  # characters
F = TypeVar("F", bound=Callable[..., Any])


class Session:
    """The command line's global options; connects when the first request is made."""

    def __init__(self, socket: str | None, config: str | None) -> None:
        self.socket_flag = socket
        self.config_flag = config
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """Cheaper to load than the client, which uses it."""
        if self._connection is None:
            self._connection = self.new_connection()
        return self._connection

    @property
    def client(self) -> Client:
        from rm.client import Client

        return Client(self.connection)

    def close(self) -> None:
        """End the connection of `client`; who asks for another connection ends that one."""
        if self._connection is not None:
            self._connection.close()

    def new_client(self) -> Client:
        """With a connection of its own, for another thread."""
        from rm.client import Client

        return Client(self.new_connection())

    def new_connection(self) -> Connection:
        from rm.client.connection import Connection

        return Connection(self.address, on_wait=note)

    @property
    def address(self) -> Address:
        """Where the daemon is."""
        from rm.client.address import find_daemon

        return find_daemon(self.socket_flag, self.config_flag)

    @cached_property
    def config(self) -> Config:
        """Read once a command. Raises ConfigError."""
        from rm.config import load_config

        return load_config(self.config_flag)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object with a version key.")(
        command
    )


def completes(what: str) -> Any:
    """`shell_complete=`: words of `rm.cli.completion`, which only a completion loads."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> Any:
        from rm.cli import completion

        given = ctx.find_root().params
        session = Session(given.get("socket"), given.get("config"))
        return completion.words(what, lambda: session.address, incomplete)

    return complete


def _operand(command: F, name: str, word: str, metavar: str, several: bool, what: str) -> F:
    """An operand that is an option as well."""
    option = click.option(
        f"--{metavar.lower()}", word, multiple=several,
        metavar=f"{metavar}[,{metavar}]" if several else metavar,
        help=f"The same as {metavar}.", shell_complete=completes(what),
    )  # fmt: skip
    argument = click.argument(
        name, nargs=-1 if several else 1, required=False, metavar=f"[{metavar}]{'...' if several else ''}",
        shell_complete=completes(what),
    )  # fmt: skip
    return argument(option(command))


def jobs_operand(command: F) -> F:
    """JOB... and --job=JOB, the same operand."""
    return _operand(command, "jobs", "job_words", "JOB", several=True, what="jobs")


def job_operand(command: F) -> F:
    """JOB and --job=JOB, the same operand."""
    return _operand(command, "job", "job_word", "JOB", several=False, what="jobs")


def host_operand(command: F) -> F:
    return _operand(command, "host", "host_word", "HOST", several=False, what="hosts")


def hosts_operand(command: F) -> F:
    """HOST... and --host=HOST, the same operand; each may be a list such as gpu[01-04]."""
    return _operand(command, "hosts", "host_words", "HOST", several=True, what="hosts")


def job_ids(words: Iterable[str], of_hosts: str = "") -> list[JobId]:
    """`7 8,9_[3-4,6]` to the jobs and elements of arrays that are named; at least one. `of_hosts` is the
    command that does to hosts what this one does to jobs."""
    parts = [part for word in words for part in split_ids(word)]
    if of_hosts and (names := [part for part in parts if not part[0].isdigit()]):
        raise UsageError(f"'{names[0][:80]}' is not a job id.", f"Of a host: {of_hosts} {names[0][:80]}")
    found = [parse_id(part) for part in parts]
    if not found:
        raise UsageError(
            "No job is named.", "Name it as an operand or with --job=ID; `rmx queue` lists the jobs."
        )
    return found


def one_job(operand: str | None, option: str | None, of_hosts: str = "", *, several: bool = False) -> JobId:
    """A job, or one element of an array; or `several` of one array."""
    ids = job_ids(filter(None, (operand, option)), of_hosts)
    if len(ids) > 1:
        raise UsageError("This command takes one job.")
    if not several and ids[0].tasks and not ids[0].tasks.isdigit():
        raise UsageError(f"{ids[0]} are several elements, and this command takes one.")
    return ids[0]


def one_host(operand: str | None, option: str | None) -> str:
    words = [word for word in (operand, option) if word]
    if len(words) != 1:
        raise UsageError("Name one host, as an operand or with --host=NAME.", "`rmx hosts` lists them.")
    return words[0]


def host_names(words: Iterable[str]) -> tuple[str, ...]:
    """`gpu01 gpu[03-04],login1` to names; at least one."""
    names = parse_hosts(",".join(words))
    if not names:
        raise UsageError(
            "No host is named.", "Name it as an operand or with --host=NAME; `rmx hosts` lists them."
        )
    return names


def emit_json(fields: Mapping[str, Any]) -> None:
    """One object; values may be types of `rm.api`. What is not printable is escaped, as JSON may: a terminal
    would take U+009B for the beginning of a control sequence, and turn a name around by U+202E."""
    click.echo(printable_json(json.dumps({"version": VERSION, **fields}, ensure_ascii=False, default=_plain)))


def emit_answer(answer: Answer) -> None:
    """The whole answer of the HTTP API."""
    emit_json(_plain(answer))


def _plain(value: Any) -> Any:
    from msgspec import to_builtins

    return to_builtins(value)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], right: Iterable[str] = (), header: bool = True
) -> None:
    """Aligned columns; nothing is cut. Rich on a terminal, plain text elsewhere."""
    cells = [[printable(cell) for cell in row] for row in rows]
    to_the_right = set(right)
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_header=header)
        for i, column in enumerate(columns, start=1):
            justify: Literal["left", "right"] = "right" if column in to_the_right else "left"
            drawn.add_column(column, justify=justify, no_wrap=i < len(columns), overflow="fold")
        for row in cells:
            drawn.add_row(*map(Text, row))
        # only the last column wraps, at words: where even that needs more, the terminal breaks whole lines
        least = Console(width=ENDLESS).measure(drawn).minimum
        Console(width=max(Console().width, least)).print(drawn)
        return
    for line in aligned(columns, cells, right, header):
        click.echo(line)
