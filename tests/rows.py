"""What a client reads of a list of jobs that the daemon has written."""

from collections.abc import Iterable

import msgspec

from rm.api.job_rows import JobRow, by_name
from rm.core.model.job import Job
from rm.core.model.reasons import Reason
from rm.web.answers import respond_rows


def read_rows(found: Iterable[tuple[Job, Reason | None, str]]) -> list[JobRow]:
    """Of each job, its newest reason and its partition."""
    body = respond_rows(found, more=False).body
    assert isinstance(body, bytes)
    told = msgspec.json.decode(body)
    return by_name(told["columns"], told["rows"])
