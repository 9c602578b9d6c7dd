"""What the HTTP API asks of the daemon: structural, so that the service need not import this.

Every method may be sync or async (`Answer`). Methods raise RmError subclasses: NotFound for a
job or host that does not exist, Conflict for a state that does not allow the request,
ImpossibleRequest for a specification that this cluster could never run. The API has checked
the caller's right before it calls; `by` is the caller's user name, for the job's story.

Mappings are answered as they are: their keys are those of docs/http-api.md, their values JSON
values or core dataclasses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Protocol

from rm.api.job_requests import SignalTo
from rm.core.model.asked.demand import Demand
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.described import Described
from rm.core.model.host import Host
from rm.core.model.job import Job, JobSpec, JobState
from rm.core.model.job_step import JobStep, StepName
from rm.core.model.logs import LogPiece
from rm.core.model.progress import Progress
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import Free
from rm.core.model.step_used import StepUsed
from rm.core.people.audit import Act
from rm.core.people.rights import Scope
from rm.core.people.token import Token
from rm.web.planning_ports import (
    AccountService,
    Answer,
    Foresight,
    Priorities,
    ReservationService,
    UsageService,
)
from rm.web.playbook_ports import Playbooks


class Auditing(Protocol):
    """The audit log."""

    async def record(self, act: Act) -> None:
        """Returns when it is durable."""
        ...

    async def read(self, after: int, limit: int, since_us: int, user: str) -> Sequence[tuple[int, Act]]:
        """The oldest `limit` entries above the number `after`, at or after `since_us`; "" = of all."""
        ...


class Tokens(Protocol):
    """The tokens of the HTTPS door, which are found without waiting for anything."""

    async def create(
        self, user: str, uid: int, scope: Scope, lasts_us: int, name: str, by: str
    ) -> tuple[Token, str]:
        """The token, and its text for the owner."""
        ...

    def tokens(self, user: str = "") -> Sequence[Token]: ...
    def token(self, id: str) -> Token:
        """Raises NotFound."""
        ...

    async def revoke(self, id: str, by: str) -> Token: ...
    def find(self, text: str) -> Token | None:
        """The token whose text this is, if it lives."""
        ...

    def use(self, id: str, origin: str) -> None: ...
    def now_us(self) -> int: ...


class Silence(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class Silences(Protocol):
    def add(
        self, conditions: Sequence[str], hosts: Sequence[str], for_us: int, by: str, comment: str
    ) -> tuple[Silence, Future[Any]]: ...
    def end(self, number: int) -> tuple[Silence, Future[Any]]: ...


class Alerts(Protocol):
    def view(self) -> Mapping[str, Any]:
        """{"alerts", "silences", "rules", "channels"}"""
        ...

    def acknowledge(self, names: Sequence[str], by: str, comment: str) -> tuple[list[str], Future[Any]]: ...

    @property
    def silences(self) -> Silences: ...


class Monitoring(Protocol):
    """What the API asks of the daemon's monitoring; mappings are answered as they are."""

    async def meshes(self) -> Mapping[str, Any]: ...
    async def grid(self, name: str) -> Mapping[str, Any]: ...
    async def history(self, source: str, destination: str, span_us: int) -> Mapping[str, Any]: ...
    async def changes(
        self, name: str, check: str, source: str, destination: str, span_us: int, limit: int
    ) -> Mapping[str, Any]: ...
    async def run(self, name: str, everything: bool) -> Mapping[str, Any]: ...
    async def pause(self, name: str, by: str) -> Mapping[str, Any]: ...
    async def resume(self, name: str) -> Mapping[str, Any]: ...
    async def sources(self) -> Mapping[str, Any]: ...
    async def archives(self) -> Mapping[str, Any]: ...
    async def read_source(self, name: str) -> Mapping[str, Any]: ...


class Steps(Protocol):
    """What the API asks of the daemon; mappings are answered as they are."""

    def channels(self) -> Sequence[Mapping[str, Any]]: ...
    async def run(self, door: Mapping[str, Any], request: Mapping[str, Any]) -> Mapping[str, Any]: ...


class AttendedSession(Protocol):
    """The way to a session of a job; it waits for whoever is slower."""

    async def read(self) -> bytes:
        """What comes next; empty at the end."""
        ...

    async def write(self, data: bytes) -> None: ...
    async def away(self) -> None:
        """Tell the session that who attended it has gone."""
        ...


class Sessions(Protocol):
    def attend(
        self, job: Job, host: str, session: str, begin: Mapping[str, Any] | None, user: str
    ) -> AbstractAsyncContextManager[AttendedSession]: ...


class Reasons(Protocol):
    @property
    def partitions(self) -> Mapping[int, str]:
        """Of the jobs that asked for several and have hosts, the one that they run or ran in."""
        ...

    def of_job(self, job: Job) -> Reason | None: ...

    def codes(self) -> Callable[[Job, Demand], ReasonCode | None]:
        """Of a job that waits, and its demand, the code of what `of_job` says."""
        ...

    def shown(self, job: Job) -> Job:
        """The job with its newest reason."""
        ...


class JobReading(Protocol):
    """The jobs that there are."""

    def jobs(
        self,
        *,
        states: frozenset[JobState],
        user: str,
        name: str,
        limit: int,
        everything: bool,
        before: int = 0,
    ) -> Answer[Sequence[Job]]:
        """As they are stored, newest last; empty filters do not filter; limit 0 = no limit, else the
        newest N; with ids below `before`, 0 = all.

        Without `everything`: unfinished jobs and those that ended a short while ago.
        """
        ...

    def jobs_and_reasons(
        self,
        *,
        states: frozenset[JobState],
        user: str,
        name: str,
        limit: int,
        everything: bool,
        before: int = 0,
        by_rests: bool = False,
    ) -> Answer[tuple[Sequence[Job], Reasons]]:
        """The same jobs, and why those of them wait that do. `by_rests`: an array counts as CANCELLED, too,
        for elements that were cancelled before they started."""
        ...

    def queue(self, *, user: str, limit: int) -> Answer[Sequence[Job]]:
        """Waiting jobs in the order of their turns; "" = of everybody; `limit` 0 = all."""
        ...

    def job(self, job_id: int) -> Answer[Job]: ...

    def job_steps(
        self, jobs: Sequence[int], after: StepName | None, limit: int
    ) -> Answer[tuple[Sequence[JobStep], frozenset[int]]]:
        """The first `limit` steps of these jobs `after` one, by their names; and of which of these jobs hosts
        may yet tell more."""
        ...

    def described(self, job_id: int, array_tasks: str = "") -> Answer[Described]:
        """The job with what is known of it beside its record; or one element of an array."""
        ...

    def progress(self, job_ids: Sequence[int]) -> Answer[Mapping[int, Progress]]:
        """How far these jobs have come, by their reports."""
        ...

    def wait(self, job_id: int, timeout_s: float, array_tasks: str = "") -> Answer[Job]:
        """The job as soon as it is final, or as it is after `timeout_s`."""
        ...

    def why(self, job_id: int, array_tasks: str = "") -> Answer[Mapping[str, Any]]:
        """{"job", "state", "reasons", "verdicts", "alignment"}; of a job that waits also "queue_position"; of
        one that was placed "placement" and "choice", the decision as it was taken, or None where it was not
        recorded."""
        ...


class JobSubmissions(Protocol):
    """Jobs that are not there yet."""

    def submit(
        self, specs: Sequence[JobSpec], key: str = "", may_know: Callable[[str], bool] = lambda user: True
    ) -> Answer[Sequence[int]]:
        """Ids in order; returns only after the commit of all of them. It refuses all or none; only where the
        daemon ends meanwhile, some of many may be there. Dependencies may name jobs of users that the caller
        `may_know`."""
        ...

    def plan(
        self, spec: JobSpec, may_know: Callable[[str], bool] = lambda user: True
    ) -> Answer[Mapping[str, Any]]:
        """Dry run: {"placement", "alignment", "reasons", "verdicts"}."""
        ...


class JobChanges(Protocol):
    """Changes of jobs, each answered after its commit."""

    def cancel(
        self, job_id: int, by: str, signal: int | None, array_tasks: str = "", signal_to: SignalTo = "steps"
    ) -> Answer[Job]:
        """Stop the job, or of an array these elements (as rm.arrays writes them; "" = all); with `signal`
        only send that signal to its tasks: to whom `signal_to` says."""
        ...

    def cancel_all(
        self, job_ids: Sequence[int], by: str, states: frozenset[JobState] = frozenset()
    ) -> Answer[Sequence[Job]]:
        """Stop those of the jobs that have not ended; the jobs as they are then. `states`: that were asked
        for; an array then stands for those of its elements alone that wait without jobs of their own."""
        ...

    def hold(self, job_id: int, by: str, array_tasks: str = "", *, as_admin: bool = False) -> Answer[Job]:
        """`as_admin`: its owner does not release it, unless it is the owner who asks."""
        ...

    def release(self, job_id: int, by: str, array_tasks: str = "", *, as_admin: bool = False) -> Answer[Job]:
        """`as_admin`: also what was held so."""
        ...

    def requeue(
        self, job_id: int, by: str, array_tasks: str = "", failed: bool = False, hold: bool = False
    ) -> Answer[Job]:
        """`failed`: of an array only what ended otherwise than it should."""
        ...

    def suspend(self, job_id: int, by: str, array_tasks: str = "") -> Answer[Job]:
        """Let the job stand still, with all that it holds."""
        ...

    def resume_job(self, job_id: int, by: str, array_tasks: str = "") -> Answer[Job]: ...

    def limit_array(self, job_id: int, by: str, limit: int) -> Answer[Job]:
        """At most `limit` elements of the array run at once; 0: any number."""
        ...

    def update(
        self,
        job_id: int,
        by: str,
        update: JobUpdate,
        may_know: Callable[[str], bool],
        may_raise: bool,
        array_tasks: str = "",
    ) -> Answer[Job]:
        """Other values of what the job asks for, or some elements of an array; its dependencies may be on
        jobs of users whom the caller `may_know`, and with `may_raise` the time limit of a job that runs may
        rise."""
        ...


class JobLogs(Protocol):
    """What tasks wrote."""

    def read(
        self,
        job_id: int,
        rank: int,
        stream: str,
        offset: int,
        follow: bool,
        lines: int = 0,
        attempt: int = 0,
        from_attempt: int = 0,
    ) -> AsyncIterator[LogPiece]:
        """The bytes of `stream` ("out" or "err") from `offset`, counted from the end when it is negative, or
        the last `lines`; of an `attempt`, or the newest; with `follow` until the task ends, and then
        `from_attempt` comes first and all after it."""
        ...

    def note(self, job_id: int, rank: int, stream: str, attempt: int = 0) -> Answer[str]:
        """A sentence when some of the log is known to be missing; else ""."""
        ...


class HostService(Protocol):
    """The hosts."""

    def hosts(self) -> Answer[Sequence[tuple[Host, Free | None, Sequence[int]]]]:
        """Each host, by name, with what is free on it and its jobs' ids."""
        ...

    def add_hosts(
        self, hosts: Sequence[Host], by: str, may_steer: bool = False
    ) -> Answer[Sequence[Host]]: ...

    def drain(self, name: str, reason: str, by: str) -> Answer[Host]: ...

    def resume(self, name: str, by: str) -> Answer[Host]: ...

    def adopt(self, name: str, stop_jobs: bool, by: str) -> Answer[Host]: ...

    def remove_host(self, name: str, by: str) -> Answer[Host]: ...

    def present_key(self, name: str) -> Answer[Mapping[str, Any]]:
        """{"presented": {"type", "fingerprint"}, "pinned": {"type", "fingerprint"} | None}"""
        ...

    def accept_key(self, name: str, fingerprint: str, by: str) -> Answer[Mapping[str, Any]]:
        """Pin the presented key; Conflict when its fingerprint is not exactly `fingerprint`."""
        ...


class NetworkService(Protocol):
    """The network between the hosts."""

    def links(self) -> Answer[Sequence[Mapping[str, Any]]]: ...

    def pairs(self) -> Answer[Sequence[Mapping[str, Any]]]: ...

    def measure(self, zone: str | None) -> Answer[Mapping[str, Any]]:
        """Measure now: {"measured": pairs, "left_out": [{"host", "why"}]}"""
        ...


class DaemonStatus(Protocol):
    """How the daemon is."""

    def status(self) -> Answer[Mapping[str, Any]]:
        """{"daemon", "jobs", "hosts", "policies", "licenses"}"""
        ...


class UsedNow(Protocol):
    """What running jobs use."""

    def of(self, job_id: int) -> Answer[tuple[int, Sequence[tuple[int, StepUsed]], Sequence[str]]]:
        """The attempt; what its script (-1) and the steps that run use; and the hosts that do not tell it."""
        ...


class Service(Protocol):
    """The topics of the API."""

    def iterations(self, job_id: int) -> Answer[Mapping[str, Any]]: ...

    @property
    def reading(self) -> JobReading: ...
    @property
    def submissions(self) -> JobSubmissions: ...
    @property
    def changes(self) -> JobChanges: ...
    @property
    def used_now(self) -> UsedNow: ...
    @property
    def job_logs(self) -> JobLogs: ...
    @property
    def host_service(self) -> HostService: ...
    @property
    def foresight(self) -> Foresight: ...
    @property
    def priorities(self) -> Priorities: ...
    @property
    def reservation_service(self) -> ReservationService: ...
    @property
    def account_service(self) -> AccountService: ...
    @property
    def usage_service(self) -> UsageService: ...
    @property
    def network_service(self) -> NetworkService: ...
    @property
    def daemon_status(self) -> DaemonStatus: ...
    @property
    def alerting(self) -> Alerts | None:
        """The alerts; None where nothing looks for them."""
        ...

    @property
    def monitoring(self) -> Monitoring | None:
        """Meshes, grids and histories; None where nothing can be monitored."""
        ...

    @property
    def tokens(self) -> Tokens | None:
        """None where none are kept."""
        ...

    @property
    def audit(self) -> Auditing | None:
        """None where none is kept."""
        ...

    @property
    def playbooks(self) -> Playbooks | None:
        """Playbooks that people start from the page; None where none can be."""
        ...

    @property
    def sessions(self) -> Sessions | None:
        """Programs in jobs that somebody attends; None where there are no agents."""
        ...

    @property
    def steps(self) -> Steps | None:
        """Playbook steps over the agents' channels; None where there are no agents."""
        ...
