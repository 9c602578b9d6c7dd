"""Archives that results are sent to, and when: what rm.toml says of each, and the queue before it.

An archive is a table `[[monitor.archive]]`, with the words of pScheduler's archiver `http`; `parse_archive`
turns it into a value, or says in one sentence what is wrong with it, so that one malformed archive does not
stop the others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Any

from rm.core.monitoring.listed import heading, names_of
from rm.core.monitoring.outcome import Outcome
from rm.core.monitoring.source import read_duration, read_text, read_url
from rm.errors import ConfigError, UsageError
from rm.units import DAY_US, MINUTE_US, SECOND_US

KINDS = ("http", "opensearch")
OPS = ("put", "post")
RUNS = ("succeeded", "failed", "all")
OUTCOME_BYTES = 512  # of a result without what it found
OF_TEXT = 8  # bytes in memory for each character that Python writes of it, measured with histograms
HEAP_FEW = 64  # entries of what has gone that are not worth to be removed
USUAL_POLICY = ((5, MINUTE_US), (11, 5 * MINUTE_US))


@dataclass(frozen=True, slots=True)
class Archive:
    """`kind` "http": pScheduler's document of a run, by the method `op`. "opensearch": the document as
    perfSONAR's archive keeps it, to the index of its test.

    `runs`: which results go there; `meshes`: of which meshes (empty = all). `retry_policy` are (attempts,
    wait) as pScheduler's; a result that is older than `ttl_us` is given up (0 = none is). `headers_file` has
    the headers of requests, as JSON, since they may be secret. Of all results the newest `queue` wait, of
    `queue_mib` MiB in all, about; older ones are given up.
    """

    name: str
    url: str
    kind: str = "http"
    op: str = "post"
    runs: str = "succeeded"
    meshes: tuple[str, ...] = ()
    headers_file: str = ""
    verify_ssl: bool = True
    ca_file: str = ""
    timeout_us: int = 30 * SECOND_US
    ttl_us: int = 0
    retry_policy: tuple[tuple[int, int], ...] = USUAL_POLICY
    queue: int = 10_000
    queue_mib: int = 64

    def takes(self, outcome: Outcome) -> bool:
        if self.meshes and outcome.mesh.name not in self.meshes:
            return False
        return self.runs == "all" or (self.runs == "failed") is bool(outcome.failed)

    def wait_us(self, attempts: int) -> int | None:
        """How long after the failure of the next attempt, when there have been `attempts`, it is tried again;
        None: never. As pScheduler counts: by the first of the policy's entries that is not used up."""
        for segment, wait_us in self.retry_policy:
            attempts -= segment
            if attempts < 0:
                return wait_us
        return None


class NotKept(Exception):
    """The archive did not take a result; `again`: it may take the same later."""

    def __init__(self, what: str, again: bool = True) -> None:
        super().__init__(what)
        self.again = again


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of the results for an archive: how many wait, were sent and were given up since the daemon
    leads; `message`: why the newest try failed, "" when it did not."""

    archive: str
    waiting: int = 0
    sent: int = 0
    dropped: int = 0
    tried_us: int = 0
    sent_us: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """`number` is the stored result's, 0: it is not stored; `size_bytes`: about what it takes in memory."""

    outcome: Outcome
    due_us: int
    attempts: int = 0
    size_bytes: int = 0
    number: int = 0


class Queue:
    """The results before an archive that were read from the store, in memory. Not thread-safe.

    Each has a place: the smaller it is, the longer it has waited; one that is tried again has waited longest.
    What has gone stays in the heaps until its time comes, so that to take one is quick, however many wait.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._waiting: OrderedDict[int, Waiting] = OrderedDict()  # by place
        self._due: list[tuple[int, int]] = []  # a heap: (when, place)
        self._ended: list[tuple[int, int]] = []  # a heap, where results get too old: (when, place)
        self._last = self._first = 0  # places
        self._bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def numbers(self) -> tuple[int, ...]:
        """Of those that are stored, in order."""
        return tuple(sorted(waiting.number for waiting in self._waiting.values() if waiting.number))

    def put(self, outcome: Outcome, now_us: int, number: int = 0) -> None:
        if self._archive.takes(outcome):
            self._last += 1
            self._add(self._last, Waiting(outcome, now_us, size_bytes=_size_bytes(outcome), number=number))

    def _add(self, place: int, waiting: Waiting) -> None:
        self._waiting[place] = waiting
        if place < 0:
            self._waiting.move_to_end(place, last=False)
        self._bytes += waiting.size_bytes
        heappush(self._due, (waiting.due_us, place))
        if self._archive.ttl_us:
            heappush(self._ended, (waiting.outcome.ended_us, place))
        self._shorten()

    def _shorten(self) -> None:
        archive = self._archive
        while len(self._waiting) > archive.queue or self._bytes > archive.queue_mib << 20:
            self._drop(next(iter(self._waiting)))
        for heap in (self._due, self._ended):
            if len(heap) > 2 * len(self._waiting) + HEAP_FEW:
                heap[:] = [entry for entry in heap if entry[1] in self._waiting]
                heapify(heap)

    def _drop(self, place: int) -> None:
        self._take(place)
        self.dropped += 1

    def _take(self, place: int) -> Waiting:
        waiting = self._waiting.pop(place)
        self._bytes -= waiting.size_bytes
        return waiting

    def next(self, now_us: int) -> Waiting | int | None:
        """Take the result that has been due longest; else in how many microseconds one is; None: there is
        none."""
        ttl_us = self._archive.ttl_us
        while ttl_us and self._ended and self._ended[0][0] + ttl_us <= now_us:
            _, place = heappop(self._ended)
            if place in self._waiting:
                self._drop(place)
        while self._due and self._due[0][1] not in self._waiting:
            heappop(self._due)
        if not self._due:
            return None
        due_us, place = self._due[0]
        if due_us > now_us:
            return due_us - now_us
        heappop(self._due)
        return self._take(place)

    def failed(self, waiting: Waiting, now_us: int, again: bool) -> None:
        """The archive did not take it; `again`: it may do so later."""
        wait_us = self._archive.wait_us(waiting.attempts) if again else None
        if wait_us is None:
            self.dropped += 1
        else:
            self._first -= 1
            self._add(self._first, replace(waiting, due_us=now_us + wait_us, attempts=waiting.attempts + 1))


def _size_bytes(outcome: Outcome) -> int:
    """A text is shorter than what it tells of; the mesh and the hosts are shared."""
    return OUTCOME_BYTES + OF_TEXT * (len(repr(outcome.found)) + len(outcome.failed))


def parse_archive(table: Mapping[str, Any]) -> Archive:
    """An archive from its table.

    Raises:
        ConfigError: what is wrong, naming the archive and the key.
    """
    name, where = heading("archive", table, KEYS)
    if "url" not in table:
        raise ConfigError(f"{where} has no 'url'.")
    values: dict[str, Any] = {"name": name}
    for key, value in table.items():
        if key != "name":
            try:
                values[FIELD.get(key, key)] = READ[key](value)
            except (ConfigError, UsageError) as error:
                raise ConfigError(f"{where}, {key}: {error.what}", error.hint) from None
    return Archive(**values)


def _one_of(words: tuple[str, ...]) -> Any:
    def read(value: object) -> str:
        if value not in words:
            raise ConfigError(f"{value!r:.40} is not one of {', '.join(words)}.")
        return str(value)

    return read


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{value!r:.40} is neither true nor false.")
    return value


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise ConfigError(f"{value!r:.40} is not a whole number from 1 to 1000000.")
    return value


def _policy(value: object) -> tuple[tuple[int, int], ...]:
    hint = 'Write [{ attempts = 5, wait = "1m" }, { attempts = 11, wait = "5m" }].'
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{value!r:.60} is not a list.", hint)
    found = []
    for entry in value:
        if not isinstance(entry, Mapping) or set(entry) != {"attempts", "wait"}:
            raise ConfigError(f"{entry!r:.60} has not just 'attempts' and 'wait'.", hint)
        found.append((_count(entry["attempts"]), read_duration(SECOND_US, 31 * DAY_US)(entry["wait"])))
    return tuple(found)


READ: Mapping[str, Any] = {
    "kind": _one_of(KINDS),
    "url": read_url,
    "op": _one_of(OPS),
    "runs": _one_of(RUNS),
    "meshes": names_of,
    "headers_file": read_text,
    "verify_ssl": _flag,
    "ca_file": read_text,
    "timeout": read_duration(SECOND_US, 10 * MINUTE_US),
    "ttl": read_duration(SECOND_US, 366 * DAY_US),
    "retry_policy": _policy,
    "queue": _count,
    "queue_mib": _count,
}
FIELD = {"timeout": "timeout_us", "ttl": "ttl_us"}
KEYS = ("name", *READ)
