"""The live view of `rmx playbook run` on a terminal: its tasks with counts, its hosts at work.

What is worth keeping (changes, failures, diffs) is printed above the view, where it stays.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rm.cli.output import printable
from rm.cli.playbook.text import COLOURS, lines_of

if TYPE_CHECKING:
    from rm.adapters.playbook.run import Progress

TASKS_MAX = 6  # this many of the latest tasks are shown
COUNTED = ("ok", "changed", "failed", "skipped")
REFRESHES_PER_S = 4


def wanted(environ: Mapping[str, str], as_json: bool) -> bool:
    """Is there a terminal to draw on, and nobody who would rather read lines?"""
    return not as_json and sys.stderr.isatty() and environ.get("TERM") != "dumb" and not environ.get("CI")


@dataclass(slots=True)
class _Row:
    """A host in the running play; `since_s` is when it began what it does, None while it does nothing."""

    counts: Counter[str] = field(default_factory=Counter)
    doing: str = ""
    more: int = 0
    since_s: float | None = None
    lost: bool = False


class LiveView:
    """Told of each event; draws itself until it is left. `clock` gives seconds."""

    def __init__(
        self, verbose: bool, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.console = console or Console(stderr=True, highlight=False, emoji=False, markup=False)
        self.verbose, self.clock = verbose, clock
        self._guard = threading.Lock()  # the view is drawn by a thread of its own
        self._play, self._began_s = "", clock()
        self._hosts: dict[str, _Row] = {}
        self._tasks: dict[tuple[str, str, int], Counter[str]] = {}
        self._live = Live(
            get_renderable=self._drawn,
            console=self.console,
            refresh_per_second=REFRESHES_PER_S,
            transient=True,
            vertical_overflow="crop",
        )

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        self._live.stop()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While something is asked on the terminal nothing is drawn."""
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def tell(self, event: Progress) -> None:
        with self._guard:
            self._note(event)
        for line, colour in lines_of(event, self.verbose):
            self.console.print(Text(line, style=colour or ""), soft_wrap=True)

    def _note(self, event: Progress) -> None:
        if event.kind == "play":
            self._play, self._began_s = printable(event.text), self.clock()
            self._hosts = {name: _Row() for name in event.hosts}
            self._tasks = {}
        elif event.kind == "start":
            row = self._hosts.setdefault(event.hosts[0], _Row())
            row.doing, row.more, row.since_s = printable(event.text), event.more, self.clock()
        elif event.result is not None:
            result = event.result
            row = self._hosts.setdefault(result.host, _Row())
            row.doing, row.since_s = "", None
            row.lost = row.lost or result.status == "unreachable"
            status = "failed" if result.status == "unreachable" else result.status
            if result.ignored or result.rescued:
                status = "ok"
            row.counts[status] += 1
            key = (printable(result.task), result.file, result.line)
            counts = self._tasks.pop(key, None) or Counter()
            counts[status] += 1
            self._tasks[key] = counts  # the latest last

    # -- drawing ---------------------------------------------------------------------------------

    def _drawn(self) -> Group:
        with self._guard:
            return self._group(self.console.height - 1, self.clock())

    def _group(self, lines: int, now_s: float) -> Group:
        """At most `lines` lines."""
        hosts = list(self._hosts.items())
        room = max(0, lines - 3)  # the headline, and a line above each table
        for_tasks = min(TASKS_MAX, len(self._tasks), max(room - len(hosts), room // 3))
        tasks = list(self._tasks.items())[len(self._tasks) - for_tasks :]
        left, shown = room - for_tasks, hosts
        if len(hosts) > left:  # who is at work for the longest comes first
            hosts.sort(key=lambda one: (one[1].since_s is None, one[1].since_s or 0.0))
            shown = hosts[: max(0, left - 1)]
        parts: list[RenderableType] = [
            self._headline(now_s),
            self._task_table(tasks),
            self._host_table(shown, now_s),
        ]
        if len(hosts) > len(shown) and left:
            parts.append(Text(f"… and {len(hosts) - len(shown)} more hosts", style="dim"))
        return Group(*parts)

    def _headline(self, now_s: float) -> Text:
        rows = self._hosts.values()
        running = sum(row.since_s is not None for row in rows)
        failed = sum(bool(row.counts["failed"]) for row in rows)
        text = Text(f"{self._play or 'starting'}", style="bold", overflow="ellipsis", no_wrap=True)
        took = _time(now_s - self._began_s)
        text.append(f"  {took}  {len(rows)} hosts, {running} at work", style="not bold")
        if failed:
            text.append(f", {failed} failed", style="not bold red")
        return text

    def _task_table(self, tasks: list[tuple[tuple[str, str, int], Counter[str]]]) -> Table:
        table = _table("TASK", *COUNTED)
        for (name, _, _), counts in tasks:
            table.add_row(name, *(_count(counts[status], status) for status in COUNTED))
        return table

    def _host_table(self, hosts: list[tuple[str, _Row]], now_s: float) -> Table:
        table = _table("HOST", "now", "for", "ok", "changed", "failed")
        for name, row in hosts:
            doing = Text(row.doing + (f" (+{row.more})" if row.more else ""))
            if row.since_s is None:
                doing = Text("lost" if row.lost else "failed" if row.counts["failed"] else "", style="red")
            table.add_row(
                printable(name), doing, "" if row.since_s is None else _time(now_s - row.since_s),
                *(_count(row.counts[status], status) for status in ("ok", "changed", "failed")),
            )  # fmt: skip
        return table


def _table(first: str, *rest: str) -> Table:
    """Aligned columns without lines; the first, and what a host does, take what room there is."""
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True, padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True, overflow="ellipsis", ratio=None if "now" in rest else 1)
    for name in rest:
        wide = name == "now"
        table.add_column(
            name.upper(),
            no_wrap=True,
            overflow="ellipsis",
            justify="left" if wide else "right",
            ratio=1 if wide else None,
        )
    return table


def _count(number: int, status: str) -> Text:
    return Text(str(number) if number else "·", style=COLOURS[status] if number else "dim")


def _time(seconds: float) -> str:
    whole = max(0, int(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}" if minutes else f"{rest} s"
