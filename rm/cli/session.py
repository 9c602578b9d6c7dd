"""What every command shares: the connection, `--json`, operands that are also options, output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rm.errors import UsageError

if TYPE_CHECKING:
    from rm.cli.address import Address
    from rm.cli.client import Client

VERSION = 1
F = TypeVar("F", bound=Callable[..., Any])


class Session:
    """The command line's global options; connects when the first request is made."""

    def __init__(self, socket: str | None, config: str | None) -> None:
        self.socket_flag = socket
        self.config_flag = config
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = self.new_client()
        return self._client

    def new_client(self) -> Client:
        """A connection of its own, for one thread."""
        from rm.cli.client import Client

        client = Client(self.address)
        client.on_wait = note
        return client

    @property
    def address(self) -> Address:
        """Where the daemon is."""
        from rm.cli.address import find_daemon

        return find_daemon(self.socket_flag, self.config_flag)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object with a version key.")(
        command
    )


def jobs_operand(command: F) -> F:
    """JOB... and --job=JOB, the same operand."""
    command = click.option("--job", "job_words", multiple=True, metavar="JOB[,JOB]", help="The same as JOB.")(
        command
    )
    return click.argument("jobs", nargs=-1, metavar="[JOB]...")(command)


def job_operand(command: F) -> F:
    """JOB and --job=JOB, the same operand."""
    command = click.option("--job", "job_word", metavar="JOB", help="The same as JOB.")(command)
    return click.argument("job", required=False, metavar="[JOB]")(command)


def host_operand(command: F) -> F:
    command = click.option("--host", "host_word", metavar="HOST", help="The same as HOST.")(command)
    return click.argument("host", required=False, metavar="[HOST]")(command)


def job_ids(words: Iterable[str]) -> list[int]:
    """`7 8,9` to [7, 8, 9]; at least one."""
    found = []
    for word in words:
        for part in filter(None, word.split(",")):
            if not part.isascii() or not part.isdigit():
                raise UsageError(
                    f"'{part}' is not a job id.", "A job id is the number that `rmx submit` printed."
                )
            found.append(int(part))
    if not found:
        raise UsageError(
            "No job is named.", "Name it as an operand or with --job=ID; `rmx queue` lists the jobs."
        )
    return found


def one_job(operand: str | None, option: str | None) -> int:
    ids = job_ids(filter(None, (operand, option)))
    if len(ids) > 1:
        raise UsageError("This command takes one job.")
    return ids[0]


def one_host(operand: str | None, option: str | None) -> str:
    words = [word for word in (operand, option) if word]
    if len(words) != 1:
        raise UsageError("Name one host, as an operand or with --host=NAME.", "`rmx hosts` lists them.")
    return words[0]


def printable(value: Any) -> str:
    """A cell for the terminal: a name with control characters must not steer it."""
    text = "" if value is None else str(value)
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def emit_json(fields: Mapping[str, Any]) -> None:
    click.echo(json.dumps({"version": VERSION, **fields}, ensure_ascii=False))


def note(text: str) -> None:
    """A message, which is not data: to standard error."""
    click.echo(f"rmx: {text}", err=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], right: Iterable[str] = ()) -> None:
    """Aligned columns; nothing is cut. Rich on a terminal, plain text elsewhere."""
    cells = [[printable(cell) for cell in row] for row in rows]
    to_the_right = set(right)
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for column in columns:
            drawn.add_column(column, justify="right" if column in to_the_right else "left", overflow="fold")
        for row in cells:
            drawn.add_row(*map(Text, row))
        Console().print(drawn)
        return
    widths = [max(len(line[i]) for line in [list(columns), *cells]) for i in range(len(columns))]
    for line in [list(columns), *cells]:
        padded = [
            cell.rjust(width) if column in to_the_right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())
