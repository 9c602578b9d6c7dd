"""What Slurm's commands change of jobs: of a daemon on this machine at the least cost, else by
`rm.client.Client`."""

from __future__ import annotations

from rm.cli.slurm.asking import Asking
from rm.client.failure import failure
from rm.client.one_request import answered, opened
from rm.client.quick_json import dumps
from rm.errors import Unreachable, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from rm.api.job_requests import SignalTo
    from rm.arrays import JobId

JSON = {"Content-Type": "application/json"}
SAFE = frozenset("0123456789,-")  # what elements of arrays are written with, which a query has as it is


class Changing(Asking):
    """Has those methods of a Client that change jobs, and tells no more than that it was done.

    Raises:
        RmError: from each method, as a Client does.
    """

    def cancel(self, job: JobId, signal: int | None = None, signal_to: SignalTo = "steps") -> None:
        query = {} if signal is None else {"signal": str(signal), "signal_to": signal_to}
        if not self._done("DELETE", job, "", query):
            self.client.cancel(job, signal=signal, signal_to=signal_to)

    def hold(self, job: JobId, *, uhold: bool = False) -> None:
        if not self._done("POST", job, "/hold", {"uhold": "1"} if uhold else {}):
            self.client.hold(job, uhold=uhold)

    def release(self, job: JobId) -> None:
        if not self._done("POST", job, "/release"):
            self.client.release(job)

    def requeue(self, job: JobId, *, hold: bool = False) -> None:
        if not self._done("POST", job, "/requeue", {"hold": "1"} if hold else {}):
            self.client.requeue(job, hold=hold)

    def suspend(self, job: JobId) -> None:
        if not self._done("POST", job, "/suspend"):
            self.client.suspend(job)

    def resume_job(self, job: JobId) -> None:
        if not self._done("POST", job, "/resume"):
            self.client.resume_job(job)

    def update(self, job: JobId, fields: Mapping[str, Any]) -> None:
        """`fields`: those of `rm.api.job_requests.JobUpdate`, as plain values."""
        try:
            done = self._done("POST", job, "/update", fields=fields)
        except UsageError as error:
            from rm.client.older_daemon import explained

            raise explained(error, lambda: fields) from None
        if not done:
            from rm.api.job_requests import JobUpdate

            self.client.update(job, JobUpdate(**fields))

    def limit_array(self, job: JobId, limit: int) -> None:
        if not self._done("POST", job, "/array-limit", fields={"limit": limit}):
            self.client.limit_array(job.job, limit)

    def _done(
        self,
        method: str,
        job: JobId,
        what: str,
        query: Mapping[str, str] = {},
        fields: Mapping[str, Any] | None = None,
    ) -> bool:
        """Has the daemon done it? If not, nothing was done, and a Client is to be asked."""
        if not self._path or not SAFE.issuperset(job.tasks):
            return False
        asked = {**query, "array_tasks": job.tasks} if job.tasks else query
        words = "&".join(f"{name}={value}" for name, value in asked.items())
        target = f"/v1/jobs/{job.job}{what}{'?' if words else ''}{words}"
        body = dumps(fields or {}).encode() if method == "POST" else b""
        headers = JSON if body else {}
        said = answered(opened(self._path), method, target, headers, body, _refuse, _unheard, self._say_why)
        return said is not None

    def _say_why(self) -> bool:
        """The answer is waited for in any case: what was heard without a key is not asked for again."""
        from rm.cli.quiet import say_why
        from rm.client.address import Address

        say_why(Address("unix", self._path))
        return True


def _refuse(status: int, body: bytes) -> None:
    raise failure(status, body)


def _unheard() -> None:
    raise Unreachable(
        "The daemon closed the connection before it answered.",
        "Look whether it happened before repeating it.",
    )
