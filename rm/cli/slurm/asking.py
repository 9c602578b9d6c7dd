"""What Slurm's lists ask a daemon: of one on this machine at the least cost, else by `rm.client.Client`."""

from __future__ import annotations

from rm.cli.output import note
from rm.client.address import find_daemon
from rm.client.kept_ssh import at_hand
from rm.client.told import told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self

    from rm.api.hosts import Host
    from rm.api.job_steps import JobStep
    from rm.api.jobs import FullJob, Job
    from rm.api.reasons import Priority, Starts
    from rm.api.sharing import Accounts, Partition
    from rm.api.status import Status
    from rm.arrays import JobId
    from rm.client import Client
    from rm.client.sharing import Sharing

PAGE = 500  # jobs in an answer


class Asking:
    """Has those methods of a Client that only read. What was told quickly has the fields that the API tells,
    and None for the others. What else is asked of it, a Client answers."""

    def __init__(self) -> None:
        self._path = at_hand(find_daemon(None, None))
        self._client: Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()

    def _told(self, target: str) -> Any:
        """None: a Client is to be asked, and for the rest, too: it may have found another daemon."""
        answer = told(self._path, target) if self._path else None
        if answer is None:
            self._path = ""
        return answer

    @property
    def client(self) -> Client:
        if self._client is None:
            from rm.client import Client

            self._client = Client(on_wait=note)
        return self._client

    @property
    def sharing(self) -> Sharing:
        return self.client.sharing

    def hosts(self) -> Sequence[Host]:
        answer = self._told("/v1/hosts")
        return self.client.hosts() if answer is None else answer.hosts

    def status(self) -> Status:
        return self._told("/v1/status") or self.client.status()

    def job(self, job: JobId) -> FullJob:
        answer = None if job.tasks else self._told(f"/v1/jobs/{job.job}")
        return self.client.job(job) if answer is None else answer.job

    def starts(self) -> Starts:
        return self._told("/v1/jobs/starts") or self.client.starts()

    def priorities(self) -> Sequence[Priority]:
        answer = self._told("/v1/jobs/priorities")
        return self.client.priorities() if answer is None else answer.priorities

    def jobs(self, *, state: str = "", mine: bool = False, ended: bool = False) -> Sequence[Job]:
        """As `Client.jobs`; `state`: words with commas."""
        query = "".join(
            (f"&state={state}" if state else "", "&mine=1" if mine else "", "&all=1" if ended else "")
        )
        pages: list[Sequence[Job]] = []
        more, before = True, 0
        while more:
            answer = self._told(f"/v1/jobs?limit={PAGE}&before={before}{query}")
            if answer is None:
                return self.client.jobs(state=state, mine=mine, ended=ended)
            pages.append(answer.jobs)
            more = bool(answer.more and answer.jobs)
            before = answer.jobs[0].id if more else 0
        return [job for page in reversed(pages) for job in page]

    def job_steps(self, jobs: Sequence[int]) -> Sequence[JobStep]:
        if not jobs:
            return ()
        named = ",".join(map(str, jobs))
        answer = self._told(f"/v1/jobs/steps?jobs={named}&limit=0") if len(jobs) <= PAGE else None
        return self.client.job_steps(jobs) if answer is None or answer.more else answer.steps

    def partitions(self) -> Sequence[Partition]:
        answer = self._told("/v1/partitions")
        return self.client.sharing.partitions() if answer is None else answer.partitions

    def accounts(self) -> Accounts:
        return self._told("/v1/accounts") or self.client.sharing.accounts()
