"""Where a journal is read from: a daemon's database, or a file of JSON lines exported from one.

The file: a line that says what it is, one line for each entry, and a last line with their number,
so that a file that was cut off is known as such. With the ending .gz it is compressed.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal, Protocol

import msgspec

from rm.adapters.store.opening import read_store
from rm.adapters.store.sql import SqlStore
from rm.core.store import START, Entry
from rm.errors import StoreError, UsageError
from rm.typed import decoder_of

MAGIC = "rm journal"
FORMAT = 1
PAGE = 500
SQLITE = b"SQLite format 3\x00"


class Journal(Protocol):
    """Entries of a journal with their sequence numbers, oldest first, as often as asked."""

    name: str

    def starts(self) -> list[tuple[int, int]]:
        """(sequence number, at_us) of every start."""
        ...

    def entries(self, first: int = 0) -> Iterator[tuple[int, Entry]]:
        """Those from the sequence number `first` on."""
        ...


def open_journal(where: str) -> Journal:
    """The journal of a database (path of a SQLite file, or URL) or of an exported file.

    Raises:
        UsageError: there is no such file.
        ConfigError, StoreError: the database cannot be read.
    """
    where = where.removeprefix("sqlite:///")  # a file: said by its path if it is not there
    if "://" in where:
        return OfDatabase(where, read_store(where))
    try:
        with open(where, "rb") as file:
            beginning = file.read(len(SQLITE))
    except OSError as error:
        raise UsageError(
            f"The journal {where} cannot be read: {error.strerror}.",
            "Name a database (a path or a URL) or a file made with --export.",
        ) from None
    if beginning == SQLITE:
        return OfDatabase(where, read_store(f"sqlite:///{Path(where).absolute()}"))
    return OfFile(Path(where))


class OfDatabase:
    def __init__(self, name: str, store: SqlStore) -> None:
        self.name = store.name if "://" in name else name
        self._store = store

    def starts(self) -> list[tuple[int, int]]:
        return self._store.journal_starts()

    def entries(self, first: int = 0) -> Iterator[tuple[int, Entry]]:
        after = first - 1
        while page := self._store.journal(after, PAGE):
            yield from page
            after = page[-1][0]


class _Line(msgspec.Struct):
    """One line of the file; of the first and the last one `what` and `entries` are set."""

    seq: int = 0
    at_us: int = 0
    kind: str = ""
    body: dict[str, Any] = {}
    what: str = ""
    format: int = 0
    entries: int | None = None


class _Header(msgspec.Struct):
    """The same without the body, which may be large."""

    seq: int = 0
    at_us: int = 0
    kind: str = ""


class OfFile:
    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path

    def starts(self) -> list[tuple[int, int]]:
        decode = decoder_of(_Header).decode
        found = [self._decoded(decode, n, line) for n, line in self._lines()]
        return [(e.seq, e.at_us) for e in found if e.kind == START]

    def entries(self, first: int = 0) -> Iterator[tuple[int, Entry]]:
        decode = decoder_of(_Line).decode
        count, said = 0, None
        for number, text in self._lines():
            line = self._decoded(decode, number, text)
            if number == 1:
                self._check(line)
            elif line.entries is not None:
                said = line.entries
            else:
                count += 1
                if line.seq >= first:
                    yield line.seq, Entry(line.at_us, line.kind, line.body)
        if count != said:
            raise StoreError(
                f"The journal {self.name} was cut off after {count} entries"
                + ("." if said is None else f" of {said}."),
                "Export it again.",
            )

    def _check(self, line: _Line) -> None:
        if line.what != MAGIC:
            raise StoreError(
                f"{self.name} is neither a database nor an exported journal.",
                "Export one with: rmx sim replay DATABASE --export FILE",
            )
        if line.format != FORMAT:
            raise StoreError(
                f"The journal {self.name} has format {line.format}, and this rm reads {FORMAT}.",
                "Replay it with the rm that exported it.",
            )

    def _decoded(self, decode: Any, number: int, text: bytes) -> Any:
        try:
            return decode(text)
        except (msgspec.MsgspecError, UnicodeError) as error:
            if number == 1:
                self._check(_Line())
            raise StoreError(
                f"Line {number} of the journal {self.name} is damaged: {error}.", "Export it again."
            ) from None

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        try:
            with _opened(self._path, "rb") as file:
                yield from enumerate(file, start=1)
        except (OSError, EOFError, zlib.error) as error:
            raise StoreError(
                f"The journal {self.name} cannot be read: {error}.", "Export it again."
            ) from None


def export(journal: Journal, path: Path, first: int, rm: str) -> int:
    """Write the entries from `first` on into a file; how many they are.

    Raises:
        UsageError: the file cannot be written.
    """
    encode = msgspec.json.Encoder().encode
    count = 0
    try:
        with _opened(path, "wb") as file:
            file.write(encode({"what": MAGIC, "format": FORMAT, "rm": rm}) + b"\n")
            for seq, entry in journal.entries(first):
                line = {"seq": seq, "at_us": entry.at_us, "kind": entry.kind, "body": entry.body}
                file.write(encode(line) + b"\n")
                count += 1
            file.write(encode({"entries": count}) + b"\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
    return count


def _opened(path: Path, mode: Literal["rb", "wb"]) -> gzip.GzipFile | IO[bytes]:
    return gzip.GzipFile(path, mode, compresslevel=6) if path.suffix == ".gz" else open(path, mode)
