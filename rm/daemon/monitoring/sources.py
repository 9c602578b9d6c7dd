"""Reads the archives of rm.toml: what others measured between our hosts joins the history, the map and,
as a grid of its own, the board.

What cannot be true is refused with a sentence; an archive that does not answer says so in its row, and
the others go on. The map takes what is newer than what it has, so that an archive never hides our own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.host import Host
from rm.core.model.network.links import LinkStats
from rm.core.monitoring.history import History, Sample, checks_of, complaint, learn
from rm.core.monitoring.mesh import MeshState
from rm.core.monitoring.metrics import BY_NAME
from rm.core.monitoring.source import Reading, Source, endpoints
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle
from rm.daemon.leading.leader import Leader
from rm.daemon.monitoring.board import Board, Tried
from rm.errors import Conflict, NotFound, RmError
from rm.units import MINUTE_US, format_duration

log = logging.getLogger(__name__)

LATE_US = 10 * MINUTE_US  # a result may reach its archive so much later than it was measured
ANSWER_S = 20.0
TOO_BUSY = "The daemon was too busy."
AT_ONCE = 1_000  # samples that the leader learns in one turn: jobs must not wait for an archive
LATENCY = ("loss_pct", "delay_us", "jitter_us")


class Found(Protocol):
    """What one reading of an archive gave."""

    @property
    def samples(self) -> Sequence[Sample]: ...
    @property
    def strangers(self) -> int: ...
    @property
    def odd(self) -> int: ...
    @property
    def message(self) -> str: ...


# (archive, since, until, endpoints to hosts of ours) -> what it has; raises RmError
Read = Callable[[Source, int, int, Mapping[str, str]], Found]


class Sources:
    """`scheduled` and `read` may be called from any thread; a source is never read twice at once."""

    def __init__(
        self,
        *,
        sources: Sequence[Source],
        malformed: Sequence[tuple[str, str]],
        leader: Leader,
        history: History,
        board: Board,
        clock: Clock,
        read: Read,
    ) -> None:
        self.sources = {s.name: s for s in sources}
        self._malformed = malformed
        self._leader = leader
        self._history = history
        self._board = board
        self._clock = clock
        self._read = read
        self._states = {s.mesh: s for s in history.mesh_states()}
        self._keeping = threading.Lock()
        self._locks = {s.name: threading.Lock() for s in sources}
        self._readings = {s.name: Reading(s.name) for s in sources}
        self._newest: dict[str, int] = {}
        self._told: dict[str, dict[tuple[str, str], int]] = {}  # up to when, by source and direction

    def rows(self) -> dict[str, Any]:
        """For the API: each source with its newest reading."""
        rows = []
        for source in self.sources.values():
            row = asdict(self._readings[source.name])
            row |= {"name": row.pop("source"), "kind": source.kind, "url": source.url}
            rows.append(row | {"every": format_duration(source.every_us)})
        return {"sources": rows, "malformed": [{"name": n, "message": m} for n, m in self._malformed]}

    def of_grid(self, mesh: str) -> Source | None:
        """The source whose grid has this name."""
        return next((s for s in self.sources.values() if s.mesh == mesh), None)

    def state(self, source: Source) -> MeshState:
        return self._states.get(source.mesh) or MeshState(source.mesh)

    def is_running(self, name: str) -> bool:
        return self._locks[name].locked()

    def set_paused(self, source: Source, by: str) -> MeshState:
        """Pause the source ("" = go on); it is remembered over restarts."""
        return self._keep(source, paused_by=by)

    def _keep(self, source: Source, **changes: Any) -> MeshState:
        """A reading and a pause may come at once: each changes its own part."""
        with self._keeping:
            state = self._states[source.mesh] = replace(self.state(source), **changes)
            self._history.put_mesh_state(state)
            return state

    def scheduled(self, name: str) -> None:
        """One reading by the clock: nobody waits for it."""
        try:
            self.read(name)
        except Conflict:
            log.info("source %s is being read already", name)
        except (RmError, TimeoutError) as error:
            log.warning("source %s: %s", name, error if isinstance(error, RmError) else TOO_BUSY)

    def read(self, name: str) -> Reading:
        """Read one source now.

        Raises:
            NotFound: there is no such source.
            Conflict: it is being read already.
            RmError, TimeoutError: it cannot be read, or the daemon is too busy; its row says so, too.
        """
        source = self.sources.get(name)
        if source is None:
            known = ", ".join(self.sources) or "none"
            raise NotFound(f"There is no source '{name}'.", f"There are: {known}.")
        if not self._locks[name].acquire(blocking=False):
            raise Conflict(f"Source {name} is being read already.", "Try again when it has ended.")
        now_us = self._clock.now_us()
        try:
            reading = self._one(source, now_us)
        except (RmError, TimeoutError) as error:
            old, why = self._readings[name], error.what if isinstance(error, RmError) else TOO_BUSY
            self._readings[name] = Reading(name, now_us, old.read_us, message=why)
            raise
        finally:
            self._locks[name].release()
        if reading.message:
            log.warning("source %s: %s", name, reading.message)
        return reading

    def _one(self, source: Source, now_us: int) -> Reading:
        hosts: list[Host] = self._leader.ask(lambda c, _: list(c.state.hosts.values())).result(ANSWER_S)
        since_us = max(self._since(source) - LATE_US, now_us - max(source.back_us, LATE_US), 0)
        found = self._read(source, since_us, now_us, endpoints(hosts, source))
        good, refused, said = self._believable(self._board.present(found.samples), now_us)
        recorded = self._history.record(good)
        self._tell(source, good)
        known = {h.name: h for h in hosts}
        tried = [
            Tried(known[s.source], known[s.destination], s)
            for s in good
            if s.source in known and s.destination in known
        ]
        self._board.tell(source.grid, tried, repeats=True)
        if good:
            self._newest[source.name] = max(s.at_us for s in good)
        count = refused + found.odd
        message = f"{count} measurements are left out. {said or found.message}" if count else found.message
        reading = Reading(source.name, now_us, now_us, recorded, count, found.strangers, message)
        self._readings[source.name] = reading
        self._keep(source, begun_us=now_us, ended_us=now_us, measured=recorded, failed=count)
        return reading

    def _since(self, source: Source) -> int:
        """The newest measurement of the source; an earlier life of the daemon may have kept it."""
        if source.name not in self._newest:
            latest = self._history.latest(source.mesh)
            self._newest[source.name] = max((s.at_us for s in latest), default=0)
        return self._newest[source.name]

    def _believable(self, samples: Iterable[Sample], now_us: int) -> tuple[list[Sample], int, str]:
        good: list[Sample] = []
        refused, first = 0, ""
        for sample in map(without_negative_delay, samples):
            absurd = complaint(sample, now_us)
            if absurd:
                refused += 1
                first = first or absurd
            else:
                good.append(sample)
        return good, refused, first

    def _tell(self, source: Source, samples: Sequence[Sample]) -> None:
        """What is newer than the map has."""
        told = self._told.setdefault(source.name, {})
        fresh = [s for s in samples if s.values or s.at_us > told.get((s.source, s.destination), 0)]
        digested = digest(fresh)
        for first in range(0, len(digested), AT_ONCE):
            self._teach(source, digested[first : first + AT_ONCE])
        for sample in fresh:
            key = (sample.source, sample.destination)
            told[key] = max(sample.at_us, told.get(key, 0))

    def _teach(self, source: Source, digested: Sequence[Sample]) -> None:
        """Let the leader learn these in one turn, if any of them is news."""

        def learnt(state: ClusterState) -> list[ev.Event]:
            known: dict[tuple[str, str], LinkStats] = {}
            for sample in digested:
                key = (sample.source, sample.destination)
                old = known.get(key) or state.network.get(key)
                newer = news(old, sample)
                if newer is not None:
                    known[key] = learn(old, newer, source.expect_us)
            return [ev.Measured(*key, stats) for key, stats in known.items()]

        def is_news(cycle: Cycle, _: int) -> bool:
            return bool(learnt(cycle.state))

        if self._leader.ask(is_news).result(ANSWER_S):
            self._leader.request(learnt).result(ANSWER_S)


def without_negative_delay(sample: Sample) -> Sample:
    """perfSONAR reports one-way delays by the hosts' clocks. One below zero shows only that the
    clocks disagree, and nothing against the loss that was found beside it."""
    delay_us = sample.values.get("delay_us")
    if not isinstance(delay_us, int | float) or not -BY_NAME["delay_us"].largest <= delay_us < 0:
        return sample
    rest = {name: value for name, value in sample.values.items() if name != "delay_us"}
    said = f"the delay is below zero ({delay_us / 1e3:.4g} ms): the clocks disagree"
    return replace(sample, values=rest, failed=said, checks=checks_of(sample))


def digest(samples: Iterable[Sample]) -> list[Sample]:
    """What is left for the map, in order of time: of each direction the newest of each metric, and the
    tries that failed since. An archive may have loss and delay from tests of different instants."""
    ordered = sorted(samples, key=lambda s: s.at_us)
    newest: dict[tuple[str, str, bool], Sample] = {}
    for sample in ordered:
        for is_latency in (True, False):
            values = {k: v for k, v in sample.values.items() if (k in LATENCY) is is_latency}
            if values and (is_latency or "bandwidth_bps" in values):
                key = (sample.source, sample.destination, is_latency)
                before = newest[key].values if key in newest else {}
                newest[key] = replace(sample, values={**before, **values}, failed="")
    latest: dict[tuple[str, str], int] = {}
    for one in newest.values():
        pair = (one.source, one.destination)
        latest[pair] = max(one.at_us, latest.get(pair, 0))
    failures = [
        s for s in ordered if s.failed and not s.values and s.at_us > latest.get((s.source, s.destination), 0)
    ]
    return sorted([*newest.values(), *failures], key=lambda s: s.at_us)


def news(old: LinkStats | None, sample: Sample) -> Sample | None:
    """What of the sample is newer than what is known, with the known rest beside it; None = nothing."""
    known = old or LinkStats()
    if sample.failed:
        return sample if sample.at_us > max(known.measured_at_us, known.bandwidth_at_us) else None
    if "bandwidth_bps" in sample.values:
        has = known.bandwidth_bps is not None
        newer = sample.at_us > (known.bandwidth_at_us or (known.measured_at_us if has else 0))
        return sample if newer else None
    if sample.at_us <= known.measured_at_us:
        return None
    before = {"loss_pct": known.loss_pct, "delay_us": known.delay_us, "jitter_us": known.jitter_us}
    values = {k: v for k, v in before.items() if v is not None} | dict(sample.values)
    return replace(sample, values=values) if "loss_pct" in values else None
