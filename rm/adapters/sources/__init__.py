"""Clients of archives, one file a kind. `read` asks one for what it has between two instants.

A sample names hosts of ours; `rm.core.monitoring.history.complaint` has still to look at its values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from rm.adapters.sources import esmond, maddash, opensearch
from rm.adapters.sources.asking import Archive, Found, Span
from rm.core.monitoring.source import Source

__all__ = ["Found", "Span", "read"]
READERS: Mapping[str, Callable[[Archive, Span], Awaitable[Found]]] = {
    "maddash": maddash.read,
    "esmond": esmond.read,
    "opensearch": opensearch.read,
}


def read(source: Source, span: Span) -> Found:
    """Blocks; call it from a thread of its own.

    Raises:
        Unreachable: the archive does not answer, or not as an archive would.
        ConfigError: a file that the source names cannot be read.
    """

    async def ask() -> Found:
        async with Archive(source) as archive:
            return await READERS[source.kind](archive, span)

    return asyncio.run(ask())
