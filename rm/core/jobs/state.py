"""The leader's state: what the store holds, in memory. `rm.core.jobs.lifecycle` alone changes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType

from rm.core.jobs.dependents import Dependents, is_singleton
from rm.core.jobs.ended import EndedJobs, from_heaviest
from rm.core.jobs.free import all_of, left_on, one_of_each_slice, take
from rm.core.jobs.instants import Instants
from rm.core.jobs.mailing import next_mark
from rm.core.jobs.strays import Held, without_strays
from rm.core.model.asked.dependency import Standing
from rm.core.model.element import sharing
from rm.core.model.host import Host, HostState, Zone
from rm.core.model.host_reservation import HostReservation
from rm.core.model.job import Job, JobState, Placement
from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment, Released
from rm.core.model.network.fabric import Fabric
from rm.core.model.network.links import Link, LinkStats, NetworkView
from rm.core.model.planned import Planned
from rm.core.model.progress import Progress
from rm.core.model.reasons import Reason
from rm.core.model.replacing import replace
from rm.core.model.snapshot import Free, PlacedJob, Snapshot, Touched, Touches, TrackedDict
from rm.core.model.waited import Waits
from rm.core.sharing.accounts import NO_ACCOUNTS, Accounts
from rm.core.sharing.ledger import Ledger
from rm.core.sharing.shares import Shares
from rm.core.sharing.tally import Key, Tally, tally_of


def links_of(hosts: Mapping[str, Host], known: Mapping[str, Link]) -> dict[str, Link]:
    """The hosts' links; those that are as they were are the same objects."""
    links = {}
    for name, host in hosts.items():
        link = known.get(name)
        links[name] = link if link and link.capacity_bps == host.nic_bps else Link(name, host.nic_bps)
    return links


@dataclass(slots=True)
class ClusterState:
    """Jobs that matter (unfinished and recently finished), hosts, zones, measurements.

    `free`, `placed` and `running_on` are derived from the jobs and kept in step with them.
    `freed` are the hosts that jobs have left since the last pass, and `capacity_version` grows
    whenever something may fit that did not fit before for any other cause; `fresh` are the jobs
    that joined the queue, or were held or released, since the last pass; `changed` those that ask for
    something else since then.
    """

    jobs: dict[int, Job] = field(default_factory=dict)
    pending: dict[int, None] = field(default_factory=dict)  # insertion-ordered set
    hosts: dict[str, Host] = field(default_factory=dict)
    zones: dict[str, Zone] = field(default_factory=dict)
    network: dict[tuple[str, str], LinkStats] = field(default_factory=dict)
    free: dict[str, Free] = field(default_factory=dict)
    placed: dict[int, PlacedJob] = field(default_factory=dict)
    jobs_on: dict[str, set[int]] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)
    fabric: Fabric | None = None
    licenses: dict[str, int] = field(default_factory=dict)  # by rm.toml
    reservations: dict[str, HostReservation] = field(default_factory=dict)  # of hosts, by name
    accounts: Accounts = NO_ACCOUNTS
    ledger: Ledger = field(default_factory=Ledger)
    tally: Tally = field(default_factory=Tally)  # derived
    alignment: Alignment = NOTHING_TO_ALIGN
    released: dict[tuple[int, ...], Released] = field(default_factory=dict)  # by the jobs that share links
    reasons: dict[int, Reason] = field(default_factory=dict)  # why jobs wait that are not yet tried
    silent_since: dict[str, int] = field(default_factory=dict)
    strays: dict[str, dict[tuple[int, int], Held]] = field(default_factory=dict)  # by host
    next_job: int = 1
    next_action: int = 1
    next_sequence: int = 1
    capacity_version: int = 0
    freed: dict[str, None] = field(default_factory=dict)  # insertion-ordered set
    fresh: dict[int, None] = field(default_factory=dict)  # insertion-ordered set
    fresh_arrays: set[int] = field(default_factory=set)  # all of whose elements that wait are among these
    changed: dict[int, None] = field(default_factory=dict)
    placed_version: int = 0
    rescheduled_us: int | None = None  # when a running job was last moved
    submissions: dict[tuple[str, str], list[int]] = field(default_factory=dict)  # by user and key
    dependents: Dependents = field(default_factory=Dependents)  # derived as well
    deadlines: Instants = field(default_factory=Instants)  # of pending jobs: their latest start
    marks: dict[int, tuple[int, int]] = field(default_factory=dict)  # of running jobs: at_us, percent
    elements: dict[int, dict[int, int]] = field(default_factory=dict)  # by array and index: the job, if known
    slices: Counter[int] = field(default_factory=Counter)  # derived: how many of each slice are placed
    behind: Counter[int] = field(default_factory=Counter)  # derived, by array: of these all but one of each
    # derived: jobs that wait for what others are giving up to them, and which
    claims: dict[int, dict[int, None]] = field(default_factory=dict)
    # derived: the hosts' links, and the hosts of which they are; both are replaced and never changed
    links: tuple[dict[str, Host], dict[str, Link]] = field(default_factory=lambda: ({}, {}), compare=False)
    touches: Touches = field(default_factory=Touches, compare=False)  # derived
    by_user: set[int] = field(default_factory=set)  # derived: placed, on hosts that are their users' alone
    planned: dict[int, Planned] = field(default_factory=dict)  # by pending job, first those that stand first
    # derived, by pending job: the keys of limits of which something is set aside for it
    aside: dict[int, tuple[Key, ...]] = field(default_factory=dict, compare=False)
    waits: Waits = field(default_factory=Waits, compare=False)
    ended: EndedJobs = field(default_factory=EndedJobs, compare=False)  # derived
    yielding: set[int] = field(default_factory=set)  # derived: jobs that stand still for others

    def snapshot(self, now_us: int) -> Snapshot:
        """A view for one pass. `free` and `placed` are copies: the pass reserves in them."""
        if self.links[0] != self.hosts:
            self.links = (dict(self.hosts), links_of(self.hosts, self.links[1]))
        placed = TrackedDict(self.placed)
        return Snapshot(
            now_us=now_us,
            hosts=MappingProxyType(self.hosts),
            zones=MappingProxyType(self.zones),
            links=self.links[1],
            network=NetworkView(MappingProxyType(self.network), now_us),
            free=TrackedDict(self.free),
            placed=placed,
            jobs=MappingProxyType(self.jobs),
            progress=MappingProxyType(self.progress),
            fabric=self.fabric,
            licenses=MappingProxyType(self.licenses),
            reservations=tuple(self.reservations.values()),
            shares=Shares(self.accounts, self.ledger, now_us, self.tally, self.jobs, self.progress),
            next_job=self.next_job,
            behind=MappingProxyType(self.behind),
            by_user=frozenset(self.by_user),
            claims={job: tuple(gone) for job, gone in self.claims.items() if job in self.pending},
            touched=Touched(self.touches, self.touches.count, placed),
            newest_sequence=self.next_sequence - 1,
            planned=MappingProxyType(self.planned),
            aside=self.aside.keys(),
        )

    def snapshot_without(self, job: Job, now_us: int) -> Snapshot:
        """The cluster as if the job were not placed: to ask again why it went where it is."""
        snapshot = self.snapshot(now_us)
        placed = dict(snapshot.placed)
        gone = placed.pop(job.id, None)
        free = dict(snapshot.free)
        for host in gone.placement.hosts if gone else ():
            if host in self.hosts:
                others = self.jobs_on.get(host, set()) - {job.id}
                free[host] = self._free_with(host, others)
        return replace(snapshot, free=free, placed=placed)

    def detached(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with copies of what the next event changes: to work on in another thread."""
        jobs, progress = dict(self.jobs), dict(self.progress)
        ledger, tally = self.ledger.copy(), self.tally.copy()
        return replace(
            snapshot,
            hosts=dict(self.hosts),
            zones=dict(self.zones),
            network=NetworkView(dict(self.network), snapshot.now_us),
            jobs=jobs,
            progress=progress,
            planned=dict(self.planned),
            aside=frozenset(self.aside),
            shares=Shares(self.accounts, ledger, snapshot.now_us, tally, jobs, progress),
        )

    def enqueue(self, job_id: int) -> None:
        self.pending[job_id] = None
        self.fresh[job_id] = None

    def take_news(self) -> tuple[dict[int, None], dict[str, None], dict[int, None]]:
        """What is `fresh`, `freed` and `changed` since this was called last."""
        news = self.fresh, self.freed, self.changed
        self.fresh, self.freed, self.changed = {}, {}, {}
        self.fresh_arrays.clear()
        return news

    def forget_finished(self, over: int = 4_000, over_bytes: int = 256 << 20) -> None:
        """When more finished jobs than that are in memory, or larger ones, half of them leaves, of the users
        who have most; the store keeps it."""
        many = len(self.jobs) - len(self.pending) - len(self.placed) >= over
        if not many and self.ended.size_bytes <= over_bytes:
            return
        finished = [job for job in self.jobs.values() if job.state.final]
        for job in islice(from_heaviest(finished, lambda _: 1), len(finished) // 2 if many else 0):
            self.forget(job)
        for job in from_heaviest((j for j in finished if j.id in self.jobs), self.ended.size_of):
            if self.ended.size_bytes <= over_bytes // 2:
                break
            self.forget(job)

    def forget(self, job: Job) -> None:
        """An ended job leaves; not an array before its elements, which must find it, nor one by which others
        are still to be judged."""
        if self.elements.get(job.id) or job.id in self.dependents.to_judge:
            return
        del self.jobs[job.id]
        self.ended.forget(job.id)
        self.submissions.pop((job.spec.user, job.key), None)
        if job.array_task is not None and job.array_job in self.elements:
            of_array = self.elements[job.array_job]
            of_array.pop(job.array_task)
            if not of_array:
                del self.elements[job.array_job]

    def recall(self, job: Job) -> None:
        """A job is in memory: its array's specification is its own, too."""
        if (task := job.array_task) is not None:
            if (array := self.jobs.get(job.array_job)) is not None:
                job = sharing(job, array.spec)
            self.elements.setdefault(job.array_job, {})[task] = job.id
        self.jobs[job.id] = job
        self.ended.note(job)
        self.touches.add(job.id)

    # -- derived state -----------------------------------------------------------------------

    def occupy(self, job: Job, placement: Placement | None = None) -> None:
        """Take the resources of the job's tasks and let the policies see it as placed; `placement` is where
        they are, if the caller has it."""
        placement = placement or job.placement
        assert placement is not None
        held = self.join_slice(job)  # by others of its slice, one of which runs at a time
        if not held:
            self.tally.hold(job, self.hosts)
        for host in placement.hosts:
            if host in self.hosts and not held:
                self.free[host] = take(self.free[host], job.spec, placement.on(host))
            self.jobs_on.setdefault(host, set()).add(job.id)
        self.placed[job.id] = placed_view(job, placement, self.next_sequence)
        if job.spec.exclusive_user:
            self.by_user.add(job.id)
        self.next_sequence += 1
        if job.yields_to:
            self.yielding.add(job.id)
        if self.yielding:
            for host in placement.hosts:
                self.recount(host)
        self.placed_version += 1
        self.touches.add(job.id)

    def join_slice(self, job: Job) -> bool:
        """It counts among its slice from now on; is what it needs held for another one of that already?"""
        if not job.slice_of:
            return False
        self.slices[job.slice_of] += 1
        if self.slices[job.slice_of] == 1:
            return False
        self.behind[job.array_job] += 1
        return True

    def _leave_slice(self, job: Job) -> bool:
        """Is what it had held on for another one of its slice?"""
        if not job.slice_of:
            return False
        self.slices[job.slice_of] -= 1
        if self.slices[job.slice_of] > 0:
            self.behind[job.array_job] -= 1
            if not self.behind[job.array_job]:
                del self.behind[job.array_job]
            return True
        del self.slices[job.slice_of]
        return False

    def vacate(self, job: Job) -> None:
        """Give the resources back."""
        gone = self.placed.pop(job.id, None)
        if gone is None:
            return
        self.touches.add(job.id)
        self.progress.pop(job.id, None)
        self.by_user.discard(job.id)
        self.yielding.discard(job.id)
        for going in self.claims.values():  # should it come back, that is another attempt
            going.pop(job.id, None)
        held = self._leave_slice(job)
        if not held:
            self.tally.release(job)
        for host in gone.placement.hosts:
            self.jobs_on.get(host, set()).discard(job.id)
            if not held:
                self.recount(host)
                self.freed[host] = None
        self.placed_version += 1

    def recount(self, host: str) -> None:
        """Work out the free resources of a host from the jobs on it."""
        if host not in self.hosts:
            self.free.pop(host, None)
            return
        self.free[host] = self._free_with(host, self.jobs_on.get(host, set()))

    def _free_with(self, host: str, jobs: set[int]) -> Free:
        there = ((self.jobs[number], self.placed[number].placement) for number in sorted(jobs))
        free = left_on(self.hosts[host], there)
        strays = self.strays.get(host)
        return without_strays(free, self.hosts[host].gpus, strays) if strays else free

    def recount_limits(self) -> None:
        """What is in use and submitted under each limit, from all jobs."""
        holding = one_of_each_slice(self.jobs[number] for number in sorted(self.placed))
        self.tally = tally_of(self.accounts, self.jobs.values(), holding, self.hosts)

    def qos_factor(self, qos: str) -> float:
        """How often what its jobs use counts."""
        found = self.accounts.qos_by_name.get(qos)
        return found.usage_factor if found is not None else 1.0

    def note_instants(self, job: Job) -> None:
        """What the clock alone will change of a job: its deadline, and mails of its time limit."""
        if job.spec.deadline_us is not None:
            self.note_deadline(job)
        if job.spec.mail_events:
            self.note_mark(job.id, next_mark(job))

    def note_deadline(self, job: Job) -> None:
        """A new version of a job that has a deadline, or had one."""
        latest_us = job.spec.latest_start_us
        waits = job.state is JobState.PENDING if job.array is None else bool(job.array.waiting)
        if waits and latest_us is not None:
            self.deadlines[job.id] = latest_us
        else:
            self.deadlines.pop(job.id, None)

    def note_mark(self, job_id: int, mark: tuple[int, int] | None) -> None:
        """The next share of its time limit of which somebody is to be mailed."""
        if mark is not None:
            self.marks[job_id] = mark
        else:
            self.marks.pop(job_id, None)

    def judge_dependencies(self) -> None:
        """Of all pending jobs, with the next steps: nothing is known but the jobs."""
        self.dependents = dependents = Dependents()
        for job in (self.jobs[job_id] for job_id in self.pending):
            if job.dependencies:
                dependents.watch(job)
                if is_singleton(job) or job.depends is Standing.FAILED or job.never:
                    dependents.stirred[job.id] = None
        for awaited in dependents.awaited:
            named = self.jobs.get(awaited)
            if named is None or named.array or named.state.final or named.started_us is not None:
                dependents.judge_all(awaited)

    def see_again(self, job: Job) -> None:
        """The job's profile or state changed: renew what the policies see of it."""
        if (old := self.placed.get(job.id)) is not None:
            self.placed[job.id] = placed_view(job, old.placement, old.sequence)
            self.placed_version += 1
            self.touches.add(job.id)


def placed_view(job: Job, placement: Placement, sequence: int) -> PlacedJob:
    return PlacedJob(
        job=job.id,
        name=job.spec.name,
        high=job.spec.is_high,
        priority=job.spec.priority,
        sequence=sequence,
        placement=placement,
        traffic=job.traffic,
        low_comm=job.spec.low_comm,
        licenses=job.spec.demand.licenses,
        user=job.spec.user,
        exclusive_user=job.spec.exclusive_user,
    )


def rebuild(
    jobs: Iterable[Job],
    hosts: Iterable[Host],
    zones: Iterable[Zone],
    network: dict[tuple[str, str], LinkStats],
    next_job: int,
    next_action: int,
    now_us: int,
    *,
    fabric: Fabric | None = None,
    licenses: Mapping[str, int] = MappingProxyType({}),
    reservations: Iterable[HostReservation] = (),
    accounts: Accounts = NO_ACCOUNTS,
    ledger: Ledger | None = None,
) -> ClusterState:
    """The state from the store; every host is silent until its agent says hello.

    A host's silence counts from `now_us`: what happened while nobody watched is unknown. `fabric` and
    `licenses` are the configuration's.
    """
    state = ClusterState(
        network=dict(network),
        next_job=next_job,
        next_action=next_action,
        fabric=fabric,
        licenses=dict(licenses),
        reservations={one.name: one for one in reservations},
        accounts=accounts,
        ledger=ledger or Ledger(),
    )
    for zone in zones:
        state.zones[zone.name] = zone
    for host in hosts:
        if host.state is HostState.UP:  # it was: nothing is placed there before it answers
            host = replace(
                host, state=HostState.UNKNOWN, reason="it has not answered since the daemon started"
            )
        state.hosts[host.name] = host
        state.free[host.name] = all_of(host)
        state.silent_since[host.name] = now_us
        state.zones.setdefault(host.zone, Zone(host.zone))
    for job in jobs:
        state.recall(job)
    # deployment order is the order in which the attempts were placed
    for job in sorted(state.jobs.values(), key=lambda j: (j.started_us or j.submitted_us, j.id)):
        if job.occupies:
            state.occupy(job)
    state.ledger.go_on(state.jobs.values(), state.hosts, now_us, state.qos_factor)
    state.recount_limits()
    for job_id in sorted(state.jobs):
        if key := state.jobs[job_id].key:
            state.submissions.setdefault((state.jobs[job_id].spec.user, key), []).append(job_id)
        if state.jobs[job_id].state is JobState.PENDING:
            state.pending[job_id] = None
        if (by := state.jobs[job_id].preempted_by) and state.jobs[job_id].occupies:
            state.claims.setdefault(by, {})[job_id] = None
        state.note_instants(state.jobs[job_id])
    state.judge_dependencies()
    return state


def touch(job: Job, now_us: int, what: str, **changes: object) -> Job:
    """A new version of the job with one more line in its story."""
    history = with_line(job, now_us, what)
    return replace(job, history=history, touched_us=now_us, **changes)  # type: ignore[arg-type]


def with_line(job: Job, now_us: int, what: str) -> tuple[tuple[int, str], ...]:
    """The job's story with one more line (the last 50 are kept)."""
    return (*job.history[-49:], (now_us, what))
