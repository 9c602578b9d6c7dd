"""`json_query`: JMESPath over a value, as the collection community.general has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rm.playbook.template.plain import plain


def _json_query(data: Any, expression: str) -> Any:
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        return jmespath.search(str(expression), plain(data))
    except JMESPathError as problem:
        raise ValueError(f"json_query: '{expression}': {str(problem).splitlines()[0]}") from None


QUERY: dict[str, Callable[..., Any]] = {
    "json_query": _json_query,
    "community.general.json_query": _json_query,
}
