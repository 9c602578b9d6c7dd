"""The rows of a queue from a daemon of this machine, at the least cost."""

from __future__ import annotations

from rm.api.job_rows import JobRow, by_name
from rm.client.one_request import read
from rm.client.quick_json import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
PLAIN = frozenset(f"{_LETTERS}{_LETTERS.upper()}0123456789_.,-")  # need no quoting in an address


def rows_at_once(path: str, selection: Mapping[str, object]) -> list[JobRow] | None:
    """All matching jobs by ascending id; None: `rm.client.Client.rows` has to ask.

    Args:
        path: the daemon's socket.
        selection: parameters of `GET /v1/jobs/rows`; "" and False are left out.
    """
    given = [(name, "1" if value is True else str(value)) for name, value in selection.items() if value]
    if not all(PLAIN.issuperset(value) for _, value in given):
        return None
    query = "&".join(f"{name}={value}" for name, value in given)
    pages: list[list[JobRow]] = []
    more, before = True, 0
    while more:
        answer = read(path, f"/v1/jobs/rows?before={before}&{query}")
        if answer is None:
            return None
        try:
            told = loads(answer.decode())
            pages.append(by_name(told["columns"], told["rows"]))
            more = bool(told["more"] and pages[-1])
            oldest = int(pages[-1][0].id) if more else 0
            if more and not 0 < oldest < (before or oldest + 1):
                return None  # it would go on for ever
            before = oldest
        except (ValueError, LookupError, TypeError, RecursionError):
            return None
    return [row for page in reversed(pages) for row in page]
