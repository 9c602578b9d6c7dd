"""The typed client of the daemon: jobs and hosts here, the other topics beside it.

The command line makes each of its requests with it; docs/python-client.md is its manual.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from rm.api.hosts import AcceptKey, AddHosts, AdoptHost, Drain, Host, HostKeys, HostRequest, Hosts, OneHost
from rm.api.job_requests import ArrayLimit, JobRequest, JobUpdate, SignalTo
from rm.api.job_rows import JobRow
from rm.api.jobs import Cancelled, FullJob, Iterations, Job, Jobs, OneJob, Waited, WholeJob
from rm.api.reasons import Plan, Priorities, Priority, PriorityWeights, Starts, Why
from rm.api.status import Status
from rm.arrays import JobId, parse_id
from rm.client import submission
from rm.client.address import find_daemon
from rm.client.asking import Asking
from rm.client.connection import PATIENCE_S, PAUSE_S, Connection
from rm.client.followed_log import followed
from rm.client.named_rows import NamedRows, rows_of
from rm.client.topics import Topics
from rm.errors import Conflict, IllegalTransition, NotFound, Refusal, TimedOut, Unreachable, UsageError

if TYPE_CHECKING:
    from rm.api.job_steps import JobStep, UsedNow

JOBS_PAGE, ROWS_PAGE = 500, 10_000
POLL_S = 60.0  # of one question whether a job has ended
POLL_MARGIN_S = 30.0  # for its answer, after that
Verb = Literal["hold", "release", "requeue", "suspend", "resume"]
Listed = TypeVar("Listed", Job, JobRow)
JobRef = int | str | JobId  # a job; as text or JobId also elements of an array: "36_2", "36_[3-9]"


class Client(Topics):
    """A daemon, by whichever door, with your rights.

    It keeps one connection and serves one thread at a time; give each thread a client of its own. Each
    method raises an `rm.errors.RmError`: the daemon's own error with its sentence, or Unreachable. While a
    daemon restarts, waits for its database or hands over to another, what may be repeated is repeated for
    `patience_s`.
    """

    def __init__(
        self,
        daemon: str | Connection | None = None,
        *,
        config: str | None = None,
        patience_s: float = PATIENCE_S,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """
        Args:
            daemon: `ssh://[user@]host[:port]`, `https://host:port`, or the path of its socket; None is the
                one that `rmx` would ask (RM_DAEMON, rm.toml). A Connection is taken as it is.
            config: the rm.toml that names daemon, token file and authorities.
            on_wait: gets a sentence for each request that has to wait for the daemon. A Connection
                that is given has its own.
        """
        if not isinstance(daemon, Connection):
            daemon = Connection(find_daemon(None, config, daemon), patience_s, on_wait=on_wait)
        self.connection = daemon
        self._ask = Asking(self.connection)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; the next request makes a new one."""
        self.connection.close()

    def status(self) -> Status:
        """The daemon, its policies, the number of jobs and hosts by state."""
        return self._ask.get(Status, "status")

    # -- jobs

    def submit(self, job: JobRequest | Mapping[str, Any], *, key: str = "") -> int:
        """The id of the new job, which is on the daemon's disk when this returns.

        Args:
            job: what to run; as a mapping, the fields of JobRequest by name.
            key: for a program that may be started again: with the same key it is the same job.

        Raises:
            ImpossibleRequest: no state of this cluster could ever run it.
            UsageError: a field is wrong.
        """
        return submission.submit(self.connection, _plain(job), key)

    def submit_many(self, jobs: Sequence[JobRequest | Mapping[str, Any]], *, key: str = "") -> list[int]:
        """The ids of the new jobs, in the order of `jobs`: all are taken, or none."""
        return submission.submit_many(self.connection, [_plain(job) for job in jobs], key)

    def plan(self, job: JobRequest | Mapping[str, Any]) -> Plan:
        """Where the job would start now, or why it would not; nothing is submitted."""
        return self._ask.post(Plan, "plan", body={"spec": _plain(job)})

    def job(self, job_id: JobRef) -> FullJob:
        """One job, or element of an array; with script, arguments and environment for its owner and
        administrators.

        Raises:
            NotFound: there is no such job.
        """
        job, tasks = _named(job_id)
        return self._ask.get(WholeJob, "jobs", job, array_tasks=tasks).job

    def jobs(
        self,
        *,
        state: str = "",
        user: str = "",
        name: str = "",
        mine: bool = False,
        ended: bool = False,
        most: int | None = None,
    ) -> list[Job]:
        """The jobs that match, by ascending id: the unfinished ones, and those that ended within
        `jobs.recent_s`.

        They are asked for in pages, so that no answer holds up others.

        Args:
            state: names or Slurm's short codes, with commas, such as "PENDING,R".
            mine: only the caller's own.
            ended: those that ended before, too.
            most: the newest N; None is all.
        """
        asked: dict[str, Any] = {"state": state, "user": user, "name": name, "mine": mine, "all": ended}

        def page(limit: int, before: int) -> tuple[Sequence[Job], bool]:
            answer = self._ask.get(Jobs, "jobs", limit=limit, before=before, **asked)
            return answer.jobs, answer.more

        return _paged(page, JOBS_PAGE, most)

    def rows(
        self,
        *,
        state: str = "",
        user: str = "",
        name: str = "",
        mine: bool = False,
        ended: bool = False,
        most: int | None = None,
    ) -> list[JobRow]:
        """As `jobs`, only what a queue shows of each: far less to make, send and read."""
        asked: dict[str, Any] = {"state": state, "user": user, "name": name, "mine": mine, "all": ended}

        def page(limit: int, before: int) -> tuple[Sequence[JobRow], bool]:
            answer = self._ask.get(NamedRows, "jobs", "rows", limit=limit, before=before, **asked)
            return rows_of(answer), answer.more

        return _paged(page, ROWS_PAGE, most)

    def starts(self) -> Starts:
        """When jobs that wait are expected to start."""
        return self._ask.get(Starts, "jobs", "starts")

    def priorities(self) -> Sequence[Priority]:
        """What makes up the priorities of waiting and running jobs, where the queue policy has such sums."""
        return self._ask.get(Priorities, "jobs", "priorities").priorities

    def priority_weights(self) -> PriorityWeights:
        """What each part of a priority is at most; all but the job's own are 0 where the queue policy has no
        such sums."""
        return self._ask.get(PriorityWeights, "jobs", "priority-weights")

    def queue(self, *, user: str = "", most: int | None = None) -> list[Job]:
        """The waiting jobs in the order in which they are tried; last those that may not start yet."""
        return list(self._ask.get(Jobs, "queue", user=user, limit=most or 0).jobs)

    def wait(self, job_id: JobRef, timeout_s: float | None = None) -> Job:
        """The job, once it has ended; `exit_code(job)` is its code. An array ends with its last element.

        Raises:
            TimedOut: it has not ended within `timeout_s`.
        """
        return next(self.wait_each((job_id,), timeout_s))

    def wait_each(self, job_ids: Sequence[JobRef], timeout_s: float | None = None) -> Iterator[Job]:
        """The jobs in this order, each as soon as it and those before it have ended.

        Raises:
            TimedOut: not all have ended within `timeout_s` of the first `next()`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for job_id in job_ids:
            ended = self._ended(job_id, deadline)
            if ended is None:
                raise TimedOut(f"Job {job_id} has not ended within {timeout_s:g} s.")
            yield ended

    def _ended(self, job_id: JobRef, deadline: float | None) -> Job | None:
        """Asks again over a restart of the daemon, as long as its patience lasts."""
        lost: float | None = None
        job, tasks = _named(job_id)
        while True:
            left = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
            if left <= 0:
                return None
            try:
                answer = self._ask.get(
                    Waited, "jobs", job, "wait", timeout_s=round(left, 3), array_tasks=tasks,
                    answer_within_s=POLL_S + POLL_MARGIN_S,
                )  # fmt: skip
            except Unreachable as error:
                now = time.monotonic()
                if lost is None:
                    lost = now
                    self.connection.on_wait(f"{error.what} Waiting for it to come back.")
                if now - lost > self.connection.patience_s:
                    raise
                time.sleep(PAUSE_S)
                continue
            if answer.final:
                return answer.job
            lost = None

    def logs(
        self,
        job_id: JobRef,
        task: int = 0,
        *,
        stream: Literal["out", "err"] = "out",
        follow: bool = False,
        offset: int = 0,
        tail: int | None = None,
        lines: int | None = None,
        attempt: int | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> Iterator[bytes]:
        """What a task wrote, as it comes, over a connection of its own.

        Args:
            task: its rank.
            follow: go on until the task ends, also at the daemon that leads when this one has ended.
            offset: from this byte; or only the last `tail` bytes or `lines` lines.
            attempt: counted from 1; None is the newest.
            on_note: gets a sentence about what is known to be missing.
        """
        query: dict[str, Any] = {
            "task": task, "stream": stream, "follow": follow, "offset": offset, "tail": tail,
            "lines": lines, "attempt": attempt, "from_attempt": None, "pieces": follow,
            "array_tasks": _named(job_id).tasks,
        }  # fmt: skip
        path = ("jobs", _named(job_id).job, "logs")
        beside, noted = self.connection.beside(), on_note or (lambda note: None)
        return followed(beside, path, query, noted) if follow else beside.stream(*path, _note=noted, **query)

    def why(self, job_id: JobRef) -> Why:
        """Why the job waits, or how it was placed where it runs."""
        job, tasks = _named(job_id)
        return self._ask.get(Why, "jobs", job, "why", array_tasks=tasks)

    def iterations(self, job_id: JobRef, last: int = 0) -> Iterations:
        """The job's iteration times beside their baseline, with the newest `last` iterations; 0 is all that
        are kept."""
        job, tasks = _named(job_id)
        return self._ask.get(Iterations, "jobs", job, "iterations", last=last, array_tasks=tasks)

    def job_steps(self, jobs: Sequence[int]) -> list[JobStep]:
        """What `srun` ran of these jobs, by job, attempt and step; asked for in pages."""
        from rm.api.job_steps import STEP_JOBS_MOST, JobSteps

        found: list[JobStep] = []
        for start in range(0, len(jobs), STEP_JOBS_MOST):
            some, after, more = ",".join(map(str, jobs[start : start + STEP_JOBS_MOST])), "", True
            while more:
                answer = self._ask.get(JobSteps, "jobs", "steps", jobs=some, after=after, limit=0)
                found += answer.steps
                more = answer.more
                if more:
                    last = answer.steps[-1]
                    after = f"{last.job}.{last.attempt}.{last.step}"
        return found

    def used_now(self, job_id: int) -> UsedNow:
        """What the job's script and its steps that run use now; for its user and for operators."""
        from rm.api.job_steps import UsedNow

        return self._ask.get(UsedNow, "jobs", job_id, "used")

    def cancel(self, job_id: JobRef, signal: int | None = None, signal_to: SignalTo = "steps") -> Job:
        """Cancel the job: SIGTERM, and SIGKILL after the grace time; or only send its tasks a signal.

        `signal_to`: not to the script, where that runs once; "script" to its first process alone; "all".

        Raises:
            Conflict: it has ended already.
            IllegalTransition: of an array, these elements have.
        """
        job, tasks = _named(job_id)
        to = None if signal is None else signal_to
        try:
            return self._ask.delete(OneJob, "jobs", job, signal=signal, signal_to=to, array_tasks=tasks).job
        except (Conflict, IllegalTransition) as error:
            if error.refusal is not Refusal.ENDED or not self.connection.asked_again or signal is not None:
                raise
            found = self.job(job)
            if not found.was_cancelled(tasks):
                raise
            return found  # an earlier try did it, whose answer was lost

    def cancel_all(self, *, user: str = "", name: str = "", state: str = "") -> Cancelled:
        """Cancel all matching jobs that have not ended; the answer names those of others, which stay."""
        return self._ask.delete(Cancelled, "jobs", user=user, name=name, state=state)

    def hold(self, job_id: JobRef, *, uhold: bool = False) -> Job:
        """Keep the waiting job from starting; of an array those elements that wait. If an operator or
        administrator holds it, its owner cannot release it, unless with `uhold`."""
        return self._change(job_id, "hold", uhold=uhold)

    def release(self, job_id: JobRef) -> Job:
        """Let the held job start."""
        return self._change(job_id, "release")

    def requeue(self, job_id: JobRef, *, failed: bool = False, hold: bool = False) -> Job:
        """Stop the job and let it wait for another start, with the same id; with `failed` only those elements
        of an array that failed; with `hold` until it is released."""
        return self._change(job_id, "requeue", failed=failed, hold=hold)

    def suspend(self, job_id: JobRef) -> Job:
        """Let the job that runs stand still, with all that it holds; for operators."""
        return self._change(job_id, "suspend")

    def resume_job(self, job_id: JobRef) -> Job:
        """Let the suspended job go on; for operators."""
        return self._change(job_id, "resume")

    def limit_array(self, job_id: int, limit: int) -> Job:
        """Let at most `limit` elements of the array run at once from now on; 0: any number."""
        return self._ask.post(OneJob, "jobs", job_id, "array-limit", body=ArrayLimit(limit=limit)).job

    def update(self, job_id: JobRef, update: JobUpdate) -> Job:
        """Change what the job asks for; of an array: what all its elements, or the named ones, ask for.

        Raises:
            Conflict: its state does not allow that.
            ImpossibleRequest: no state of the cluster could take the job then.
        """
        job, tasks = _named(job_id)
        try:
            return self._ask.post(OneJob, "jobs", job, "update", body=update, array_tasks=tasks).job
        except UsageError as error:
            from rm.client.older_daemon import explained

            raise explained(error, lambda: update.__struct_fields__) from None

    def _change(self, job_id: JobRef, verb: Verb, **query: Any) -> Job:
        job, tasks = _named(job_id)
        return self._ask.post(OneJob, "jobs", job, verb, array_tasks=tasks, **query).job

    # -- hosts

    def hosts(self, *, variables: bool = False) -> list[Host]:
        """All hosts with what is free on them and their jobs; for administrators also with their
        `variables`."""
        return list(self._ask.get(Hosts, "hosts", variables=variables).hosts)

    def host(self, name: str) -> Host:
        """One host.

        Raises:
            NotFound: there is none of this name.
        """
        found = next((host for host in self.hosts() if host.name == name), None)
        if found is None:
            raise NotFound(f"There is no host '{name}'.", "`rmx hosts` lists them.")
        return found

    def add_hosts(self, hosts: Sequence[HostRequest]) -> list[Host]:
        """Add hosts, or update them."""
        return list(self._ask.post(Hosts, "hosts", body=AddHosts(hosts=hosts)).hosts)

    def remove_host(self, name: str) -> Host:
        """Forget the host; it must hold no job."""
        return self._ask.delete(OneHost, "hosts", name).host

    def drain(self, name: str, reason: str = "") -> Host:
        """Let the host finish its jobs and take no new ones."""
        return self._ask.post(OneHost, "hosts", name, "drain", body=Drain(reason=reason)).host

    def resume(self, name: str) -> Host:
        """Let the drained host take jobs again."""
        return self._ask.post(OneHost, "hosts", name, "resume").host

    def adopt(self, name: str, *, stop_jobs: bool = False) -> Host:
        """Take the host over from another cluster; `stop_jobs` kills what that one's jobs run there."""
        return self._ask.post(OneHost, "hosts", name, "adopt", body=AdoptHost(stop_jobs=stop_jobs)).host

    def host_keys(self, name: str) -> HostKeys:
        """The SSH key that the host presents now, and the pinned one."""
        return self._ask.get(HostKeys, "hosts", name, "key")

    def accept_key(self, name: str, fingerprint: str) -> HostKeys:
        """Pin the presented key, if it has exactly this fingerprint."""
        return self._ask.post(HostKeys, "hosts", name, "key", body=AcceptKey(fingerprint=fingerprint))

    # -- other topics; each is loaded when it is asked for


def _named(job: JobRef) -> JobId:
    if isinstance(job, JobId):
        return job
    return JobId(job) if isinstance(job, int) else parse_id(job)


def _plain(job: JobRequest | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(job, JobRequest):
        return job
    made: dict[str, Any] = msgspec.to_builtins(job)
    return made


def _paged(
    page: Callable[[int, int], tuple[Sequence[Listed], bool]], most_a_page: int, most: int | None
) -> list[Listed]:
    """The newest `most` of what `page(limit, before)` answers: some, and whether there are older ones."""
    pages: list[Sequence[Listed]] = []
    left, before = most, 0
    while left is None or left > 0:
        found, more = page(most_a_page if left is None else min(left, most_a_page), before)
        pages.append(found)
        if not more or not found:
            break
        before = found[0].id
        left = None if left is None else left - len(found)
    return [one for some in reversed(pages) for one in some]


def exit_code(job: Job) -> int:
    """The job's code as a shell would say it: its own, or 128 + signal; never 0 unless COMPLETED."""
    code = 128 + job.exit_signal if job.exit_signal else job.exit_code or 0
    return code if code or job.state == "COMPLETED" else 1
