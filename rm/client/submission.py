"""The request that submits jobs; cheap to import, for `rmx submit` waits for each import."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rm.client.connection import Connection


def submit(connection: Connection, spec: Mapping[str, Any], key: str = "") -> int:
    """The id of the new job, which is on the daemon's disk.

    Args:
        spec: the fields of `rm.api.job_requests.JobRequest` that are not left out, as plain values.
        key: however often it is asked with this key, it is one job; "" makes a new key.
    """
    answer = connection.post("jobs", body={"spec": spec}, key=key or _new_key())
    try:
        return int(answer["job"])
    except (KeyError, TypeError, ValueError):
        raise connection.stranger() from None


def submit_many(connection: Connection, specs: Sequence[Mapping[str, Any]], key: str = "") -> list[int]:
    """The ids of the new jobs, in the order of `specs`: all are taken, or none."""
    answer = connection.post("jobs", body={"specs": list(specs)}, key=key or _new_key())
    try:
        return [int(job) for job in answer["jobs"]]
    except (KeyError, TypeError, ValueError):
        raise connection.stranger() from None


def _new_key() -> str:
    return os.urandom(16).hex()
