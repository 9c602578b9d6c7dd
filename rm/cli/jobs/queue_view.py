"""What `rmx queue` asks the daemon for, which of the jobs it shows, and their lines; without click."""

from __future__ import annotations

from itertools import chain, groupby

from rm.api.job_rows import JobRow
from rm.cli.jobs.queue_columns import COLUMNS, LONG, USUAL, Column, chosen, kinds_of, ordered, slurm_format
from rm.cli.output import GAP, all_printable, filled, printable
from rm.units import parse_hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, TypedDict

    class Selection(TypedDict, total=False):
        """What the daemon selects by: keywords of `Client.rows`."""

        state: str
        user: str
        name: str
        mine: bool
        ended: bool
        most: int | None


def _words(text: str) -> frozenset[str]:
    return frozenset(word.strip() for word in text.split(",") if word.strip())


class View:
    """The options of one `rmx queue`: lists with commas, `form` names columns or is Slurm's."""

    def __init__(
        self,
        state: str = "",
        user: str = "",
        me: bool = False,
        name: str = "",
        partition: str = "",
        nodelist: str = "",
        wide: bool = False,
        form: str = "",
        sort: str = "",
        noheader: bool = False,
    ) -> None:
        """Raises UsageError for a column or a host list that there is not."""
        self._users, self._names, self._partitions = _words(user), _words(name), _words(partition)
        self._hosts = frozenset(parse_hosts(nodelist)) if nodelist else frozenset()
        self._states = frozenset(word.upper() for word in _words(state))
        self._state, self._me, self._sort, self._noheader = state, me, sort, noheader
        # is there more to select by than the daemon does?
        several = len(self._users) > 1 or len(self._names) > 1
        self.selects_more = several or bool(self._partitions or self._hosts)
        self.slurm_form = form if "%" in form else ""
        usual = [COLUMNS[one] for one in (LONG if wide else USUAL)]
        self.columns: Sequence[Column] = chosen(form) if form and not self.slurm_form else usual

    @property
    def selection(self) -> Selection:
        """What the daemon selects; several users or names are for us."""
        found: Selection = {"state": self._state, "mine": self._me}
        if len(self._users) == 1:
            found["user"] = next(iter(self._users))
        if len(self._names) == 1:
            found["name"] = next(iter(self._names))
        return found

    def shown(self, rows: Sequence[JobRow], most: int | None = None) -> list[JobRow]:
        """Those that fit, in order; `most` of them, the newest."""
        found = [line for row in rows for line in ((row,) if row.array_rest is None else row.lines())]
        if self.selects_more or self._states:
            found = list(filter(self._fits, found))
        return ordered(found[-(most or 0) :], self._sort)

    def cells(self, rows: Sequence[JobRow]) -> list[list[Any]]:
        return [[column.text(row) for column in self.columns] for row in rows]

    def lines(self, rows: Sequence[JobRow]) -> Iterator[str]:
        """As they go into a file or a pipe."""
        if self.slurm_form:
            form = slurm_format(self.slurm_form)
            if not self._noheader:
                yield printable(form.header())
            yield from form.lines(rows)
            return
        yield from self._table(rows)

    def _table(self, rows: Sequence[JobRow]) -> Iterator[str]:
        """Neighbouring columns of what many jobs have in common are written once for each kind of them."""
        kinds, numbers = kinds_of(rows, self.columns)
        header = not self._noheader
        parts: list[Iterable[str]] = []
        for shared, neighbours in groupby(self.columns, lambda column: bool(column.of)):
            columns = list(neighbours)
            part = filled(
                [column.header for column in columns],
                [all_printable(column.texts(kinds if shared else rows)) for column in columns],
                [column.header for column in columns if column.right],
                header,
            )
            if shared:
                heads = [next(part)] if header else []
                part = chain(heads, map(list(part).__getitem__, numbers))
            parts.append(part)
        return map(str.rstrip, map(GAP.join, zip(*parts, strict=True)))

    def _fits(self, row: JobRow) -> bool:
        return (
            (not self._states or row.state in self._states or row.short_state in self._states)
            and (not self._users or row.user in self._users)
            and (not self._names or row.name in self._names)
            and (not self._partitions or row.partition_in(self._partitions))
            and (not self._hosts or not self._hosts.isdisjoint(row.hosts))
        )
