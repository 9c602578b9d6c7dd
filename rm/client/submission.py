"""The request that submits jobs; cheap to import, for `rmx submit` waits for each import."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rm.client.connection import Connection
from rm.errors import UsageError


def submit(connection: Connection, spec: Mapping[str, Any], key: str = "") -> int:
    """The id of the new job, which is on the daemon's disk.

    Args:
        spec: the fields of `rm.api.job_requests.JobRequest` that are not left out, as plain values.
        key: however often it is asked with this key, it is one job; "" makes a new key.
    """
    answer = _posted(connection, "spec", [spec], key)
    try:
        return int(answer["job"])
    except (KeyError, TypeError, ValueError):
        raise connection.stranger() from None


def submit_many(connection: Connection, specs: Sequence[Mapping[str, Any]], key: str = "") -> list[int]:
    """The ids of the new jobs, in the order of `specs`: all are taken, or none."""
    answer = _posted(connection, "specs", specs, key)
    try:
        return [int(job) for job in answer["jobs"]]
    except (KeyError, TypeError, ValueError):
        raise connection.stranger() from None


def _posted(
    connection: Connection, kind: str, specs: Sequence[Mapping[str, Any]], key: str
) -> Mapping[str, Any]:
    """The answer, also of a daemon from before some of the fields: those that only lists show are left out
    where it does not know them."""
    key = key or _new_key()
    while True:
        try:
            return connection.post("jobs", body={kind: specs[0] if kind == "spec" else list(specs)}, key=key)
        except UsageError as error:
            from rm.client.older_daemon import is_older, without_unknown

            if not is_older(error):
                raise
            specs = without_unknown(specs, error)


def _new_key() -> str:
    return os.urandom(16).hex()
