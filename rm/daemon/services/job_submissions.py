"""The use cases of jobs that are not there yet: a submission in parts, and what would become of a job."""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rm.core.jobs import events as ev
from rm.core.jobs.handlers.accounting import with_time_limit
from rm.core.jobs.handlers.dependency import depending_now
from rm.core.jobs.state import ClusterState
from rm.core.model.asked.demand import Demand
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.host import Host
from rm.core.model.job import Job, JobSpec
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import Snapshot
from rm.core.model.unknown import Against, unknown_names
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.scheduling.explaining import explain, never_fits
from rm.core.scheduling.gates import accounts_of
from rm.core.scheduling.limits.admission import admitted, refuse_changed
from rm.core.sharing.accounts import account_for
from rm.core.sharing.partitions import taking
from rm.core.sharing.qos import qos_for
from rm.core.sharing.tally import Key
from rm.daemon.leading.leader import Leader
from rm.daemon.services.asking import Asking
from rm.daemon.services.backlog import Admission, Backlog, Load, growth_of, load_of_again, loads_of
from rm.daemon.services.job_reading import SLICE, JobReading
from rm.daemon.services.named_jobs import NamedJobs, named_jobs
from rm.daemon.services.parts import first_part, weight_of
from rm.errors import Conflict, ImpossibleRequest, Refusal

BUSY_SLICE = 100  # changes in one turn of the leader when others wait
POSSIBLE_MAX = 10_000  # demands that are known to fit some time


class JobSubmissions:
    """Its methods run in the web server's event loop.

    Args:
        asking: the way to the leader.
        leader: what it has promised and whether others wait for it.
        reading: finds the jobs that new ones depend on.
        policies: for the thread that thinks.
        backlog: how many jobs wait.
        refuse_never: refuse what limits of accounts or QOS would keep waiting for ever.
    """

    def __init__(
        self,
        *,
        asking: Asking,
        leader: Leader,
        reading: JobReading,
        policies: Policies,
        backlog: Backlog,
        refuse_never: bool = True,
    ) -> None:
        self._asking = asking
        self._leader = leader
        self._reading = reading
        self._policies = policies
        self._backlog = backlog
        self._refuse_never = refuse_never
        self._under_limits: Counter[Key] = Counter()  # of submissions that are under way
        self._bulks: dict[str, asyncio.Lock] = {}
        self._possible: set[Demand] = set()
        self._possible_for: tuple[Host, ...] = ()

    async def submit(
        self, specs: Sequence[JobSpec], key: str = "", may_know: Callable[[str], bool] = lambda user: True
    ) -> Sequence[int]:
        """The new jobs' ids, each durable; with an idempotency `key` that came before, those of that time.
        They may depend on jobs of users whose jobs the caller `may_know`.

        Many are submitted in parts, between which others have their turn. Where the daemon ends in between,
        the same submission with the same key goes on after the parts that are there.
        """
        await self.refuse_impossible(specs)
        named = await named_jobs(specs, self._reading.job, self._reading.elements_of, may_know)
        if len(specs) > SLICE:
            # beside the event loop, which ten thousand specifications would hold up
            weights, asked = await asyncio.to_thread(lambda: ([*map(weight_of, specs)], loads_of(specs)))
        else:
            weights, asked = [*map(weight_of, specs)], loads_of(specs)
        if sum(weights) <= SLICE:
            return await self._submit(specs, key, named, weights, asked)
        turn = self._bulks.setdefault(specs[0].user, asyncio.Lock())  # one user has one of these at a time
        async with turn:
            return await self._submit(specs, key, named, weights, asked)

    async def _submit(
        self,
        specs: Sequence[JobSpec],
        key: str,
        named: NamedJobs,
        weights: Sequence[int],
        asked: dict[str, Load],
    ) -> Sequence[int]:
        ids: list[int] = []
        room: Admission | None = None
        counted: Counter[Key] = Counter()
        name = (specs[0].user, key)

        def make(state: ClusterState, count: int, made: list[int]) -> list[ev.Event]:
            """May be called again, on the state of before, when another item makes the turn fail."""
            nonlocal room, counted
            promised = self._leader.promised
            known = promised.submitted(name) if key else []
            if len(known) > len(ids):
                told = zip(known, specs, strict=False)
                if len(known) > len(specs) or any(
                    i in state.jobs and not state.jobs[i].updates and not _is_for(state.jobs[i], spec, state)
                    for i, spec in told
                ):
                    raise Conflict("Another submission had this idempotency key.", "Make a new one.")
                made[:] = known[len(ids) :]
                return []
            if room is None:
                counted = admitted(state, specs[len(ids) :], self._under_limits, self._refuse_never)
                self._under_limits.update(counted)
                room = self._backlog_now.admit(specs[len(ids) :], None if ids else asked)
            part = specs[len(ids) : len(ids) + count]
            past = [named.of(spec, state) for spec in part]
            made[:] = promised.new_jobs(len(part), name if key else None)
            return [ev.JobSubmitted(i, s, key, p) for i, s, p in zip(made, part, past, strict=True)]

        try:
            while len(ids) < len(specs):
                most = BUSY_SLICE if self._leader.is_busy() else SLICE
                count, weight = first_part(weights[len(ids) : len(ids) + most], most)
                made: list[int] = []
                await self._asking.request(partial(make, count=count, made=made), weight=weight)
                ids += made
        finally:
            self._under_limits.subtract(counted)  # what was committed counts by itself
            if room is not None:
                self._backlog.release(room)
        return ids

    def refuse_growth(self, state: ClusterState, job: Job, update: JobUpdate, part: str) -> None:
        """Raise for a change after which more would wait of its user than may."""
        self._backlog_now.grow({job.spec.user: growth_of(state, job, update, part)})

    def refuse_again(
        self, state: ClusterState, request: ev.RequeueRequested, back: Sequence[Job] = ()
    ) -> None:
        """Raise for a requeue after which more would wait of a user than may. `back`: see `load_of_again`."""
        self._backlog_now.grow(load_of_again(state, request, back))

    @property
    def _backlog_now(self) -> Backlog:
        """With what the other requests of this turn were granted."""
        return self._backlog.during(self._leader.promised)

    def refuse_beyond_limits(
        self, state: ClusterState, job: Job, update: JobUpdate, changed: Sequence[JobSpec]
    ) -> None:
        """Raise for a change after which limits would keep the job waiting for ever, if a submission like it
        is refused."""
        if self._refuse_never and state.tally.rules:
            refuse_changed(state, job, update, changed)

    async def refuse_impossible(self, specs: Sequence[JobSpec]) -> None:
        """Raise for a job that no state of this cluster could take; each demand is asked once."""
        kinds: dict[Demand, JobSpec] = {}
        reserved: dict[tuple[str, str, str], JobSpec] = {}
        for spec in specs:
            kinds.setdefault(spec.demand, spec)
            if spec.reservation:
                reserved.setdefault((spec.reservation, spec.user, spec.account), spec)
        if reserved:
            await self._refuse_unreserved(list(reserved.values()))

        # one look, without a turn of the leader's: hosts may as well change after the answer
        if kinds.keys() <= self._possible_on(self._leader.hosts):
            return

        def look(cycle: Cycle, now_us: int) -> tuple[tuple[Host, ...], Snapshot]:
            state = cycle.state
            return tuple(state.hosts.values()), state.detached(state.snapshot(now_us))

        hosts, snapshot = await self._asking.ask(look)
        possible = self._possible_on(hosts)

        def think() -> None:
            for kind, spec in kinds.items():
                if kind in possible:
                    continue
                against = unknown_names(spec, snapshot.hosts, accounts_of(snapshot).partition_by_name)
                if not against:
                    never = never_fits(Job(0, spec, 0, traffic=spec.traffic), snapshot, self._policies)
                    against = [Against(_refusal_for(reason), reason.message) for reason in never]
                if against:
                    said = "; ".join(dict.fromkeys(one.said for one in against))
                    raise ImpossibleRequest(
                        f"Job '{spec.name}' could never run on this cluster: {said}.",
                        "See `rmx hosts` for what there is.",
                        against[0].refusal,
                    )
                possible.add(kind)

        await self._asking.think(specs[0].user, think)

    async def _refuse_unreserved(self, specs: Sequence[JobSpec]) -> None:
        """Raise for a job that names a reservation that is none, not for its user, or too small."""

        def look(cycle: Cycle, now_us: int) -> Snapshot:
            return cycle.state.detached(cycle.state.snapshot(now_us))

        snapshot: Snapshot = await self._asking.ask(look)
        accounts = accounts_of(snapshot)
        known = {one.name: one for one in snapshot.reservations}
        for spec in specs:
            found = known.get(spec.reservation)
            if found is None:
                raise ImpossibleRequest(
                    f"There is no reservation '{spec.reservation:.80}'.",
                    "`rmx reservation show` lists them.",
                    Refusal.UNKNOWN_RESERVATION,
                )
            account = account_for(accounts, spec.user, spec.account)
            if not found.admits(spec.user, accounts.path(account)):
                whom = f"{spec.user}, or not for account {account}" if found.accounts else spec.user
                raise ImpossibleRequest(
                    f"Reservation {found.name} is not for {whom}.",
                    "Ask who made it, or submit without --reservation.",
                    Refusal.NOT_IN_RESERVATION,
                )

        def think() -> None:
            for spec in specs:
                never = never_fits(Job(0, spec, 0, traffic=spec.traffic), snapshot, self._policies)
                if never:
                    raise ImpossibleRequest(
                        f"Job '{spec.name}' could never run in reservation {spec.reservation}: "
                        f"{never[0].message}.",
                        "`rmx reservation show` lists its hosts.",
                        Refusal.NEVER_FITS,
                    )

        await self._asking.think(specs[0].user, think)

    def _possible_on(self, hosts: tuple[Host, ...]) -> set[Demand]:
        """Demands that are known to fit some time on these hosts; in the event loop's thread."""
        known = self._possible_for
        same = len(hosts) == len(known) and all(map(operator.is_, hosts, known))
        if not same or len(self._possible) > POSSIBLE_MAX:
            self._possible = set()
            self._possible_for = hosts
        return self._possible

    async def plan(
        self, spec: JobSpec, may_know: Callable[[str], bool] = lambda user: True
    ) -> Mapping[str, Any]:
        await self.refuse_impossible([spec])
        named = await named_jobs([spec], self._reading.job, self._reading.elements_of, may_know)

        def look(cycle: Cycle, now_us: int) -> tuple[Snapshot, Tuning, Job]:
            state = cycle.state
            waits_for = depending_now(spec, state, named.of(spec, state), now_us)
            account = account_for(state.accounts, spec.user, spec.account)
            qos = qos_for(state.accounts, account, spec.qos)
            whole = with_time_limit(state, taking(state.accounts, spec, account, qos), account, qos)
            job = Job(
                0, whole, now_us, traffic=spec.traffic, dependencies=waits_for, account=account, qos=qos,
                held=spec.hold,
            )  # fmt: skip
            return state.detached(state.snapshot(now_us)), cycle.tuning, job

        def think(copy: tuple[Snapshot, Tuning, Job]) -> Any:
            snapshot, tuning, job = copy
            return explain(job, snapshot, self._policies, tuning)

        decision, reasons, verdicts = await self._asking.think_of(spec.user, look, think)
        return {
            "placement": decision.placement if decision else None,
            "alignment": replace(decision.alignment, plans=()) if decision else None,  # for simulators
            "reasons": reasons,
            "verdicts": verdicts,
        }


def _is_for(job: Job, spec: JobSpec, state: ClusterState) -> bool:
    """Is the job what this specification was submitted for?"""
    if {*job.spec.partitions} < {*spec.partitions}:  # the others took no new jobs then
        spec = replace(spec, partition=job.spec.partition)
    return job.spec in (spec, with_time_limit(state, spec, job.account, job.qos))


def _refusal_for(reason: Reason) -> Refusal:
    """Of a job that no state of the cluster could take."""
    return Refusal.BAD_LICENSES if reason.code is ReasonCode.LICENSES else Refusal.NEVER_FITS
