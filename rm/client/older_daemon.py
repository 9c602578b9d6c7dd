"""What a daemon that is older than this rm does not know of its requests."""

from __future__ import annotations

from rm.errors import UsageError
from rm.imported_later import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

_UNKNOWN = r"Unknown field '(\w+)' in the "
# those of a job that lists show, and which change nothing of how it runs: it goes on without them
FOR_LISTS = frozenset({"submit_line", "script_path"})


def is_older(error: UsageError) -> bool:
    """May the daemon lack a field that this rm knows?"""
    return re.match(_UNKNOWN, error.what) is not None


def without_unknown(specs: Sequence[Mapping[str, Any]], error: UsageError) -> list[Mapping[str, Any]]:
    """The specifications of jobs without the field that the daemon does not know.

    Raises:
        UsageError: it is another error, or a job would mean something else without the field.
    """
    found = re.match(_UNKNOWN, error.what)
    if found and found[1] in FOR_LISTS and any(found[1] in spec for spec in specs):
        return [{name: value for name, value in spec.items() if name != found[1]} for spec in specs]

    def known() -> Collection[str]:
        from rm.api.job_requests import JobRequest

        return JobRequest.__struct_fields__

    raise explained(error, known) from None


def explained(error: UsageError, known: Callable[[], Collection[str]]) -> UsageError:
    """The error, and where it is about a field that is known here what to do about the daemon."""
    found = re.match(_UNKNOWN, error.what)
    if found is None or found[1] not in known():
        return error
    return UsageError(
        f"The daemon does not know the field '{found[1]}': it is older than this rm.",
        "Upgrade the daemon (docs/backup.md), or do without the option.",
        error.refusal,
    )
