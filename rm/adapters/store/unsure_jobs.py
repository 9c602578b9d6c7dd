"""The jobs of a restored database that may have run, or ended, since its backup was made, in SQL.

Rows are changed as they are, whichever schema they have: also an rm that is older than this one holds what is
held. A row's `body` is JSON without what is empty; of equal names the last one counts.
"""

from __future__ import annotations

from collections.abc import Sequence

EVERYTHING = 1 << 62  # as the last version that was acknowledged: where nobody knows it, each backup is older
_IS_ARRAY = """body LIKE '%"array":{%'"""  # within text each quotation mark has a backslash
_WAITING = f"state = 'PENDING' AND NOT {_IS_ARRAY}"
_OPEN = f"state IN ('CONFIGURING', 'RUNNING', 'SUSPENDED', 'COMPLETING') AND NOT {_IS_ARRAY}"
_ARRAYS = f"state IN ('PENDING', 'RUNNING') AND {_IS_ARRAY}"
_HELD = {
    "sqlite": "json_set(body, '$.array.held', json_extract(body, '$.array.waiting'))",
    "postgresql": "CASE WHEN position('\\u0000' IN body) > 0 THEN body ELSE "  # which it cannot read as JSON
    "jsonb_set(body::jsonb, '{array,held}', body::jsonb #> '{array,waiting}')::text END",
}


def marks(kind: str, acknowledged: int, hold: bool) -> Sequence[str]:
    """What marks jobs in a database that lacks commits up to the version `acknowledged`: all that had not
    ended are unsure, and with `hold` those that waited are held."""
    older = f"(SELECT version FROM cluster) < {acknowledged}"

    def with_fields(fields: str) -> str:
        return f"UPDATE jobs SET body = substr(body, 1, length(body) - 1) || ',{fields}}}'"

    found = [f"""{with_fields('"unsure":true')} WHERE {_OPEN} AND {older}"""]
    if hold:
        held = with_fields('"held":true,"unsure":true')
        found.append(f"{held} WHERE {_WAITING} AND {older}")
        found.append(f"UPDATE jobs SET body = {_HELD[kind]} WHERE {_ARRAYS} AND {older}")
    return found


def marked(acknowledged: int) -> str:
    """The query for their ids, and whether each waited (1) or ran (0)."""
    older = f"(SELECT version FROM cluster) < {acknowledged}"
    waited = f"CASE WHEN ({_WAITING}) OR ({_ARRAYS}) THEN 1 ELSE 0 END"
    unsure = f"({_WAITING}) OR ({_OPEN}) OR ({_ARRAYS})"
    return f"SELECT id, {waited} FROM jobs WHERE ({unsure}) AND {older} ORDER BY id"
