"""The Python client of rm's daemon: `from rm.client import Client` (docs/python-client.md).

What is named here is loaded when it is first asked for: the command line imports some files of this room
alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rm.api.hosts import Host, HostRequest
    from rm.api.job_requests import JobRequest
    from rm.api.jobs import FullJob, Job
    from rm.api.reasons import Plan, Reason, Why
    from rm.client.client import Client, exit_code
    from rm.client.script import batch_job

__all__ = [
    "Client", "FullJob", "Host", "HostRequest", "Job", "JobRequest", "Plan", "Reason", "Why", "batch_job",
    "exit_code",
]  # fmt: skip
_WHERE = {
    "rm.api.hosts": ("Host", "HostRequest"),
    "rm.api.job_requests": ("JobRequest",),
    "rm.api.jobs": ("FullJob", "Job"),
    "rm.api.reasons": ("Plan", "Reason", "Why"),
    "rm.client.client": ("Client", "exit_code"),
    "rm.client.script": ("batch_job",),
}


def __getattr__(name: str) -> Any:
    for module, names in _WHERE.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
