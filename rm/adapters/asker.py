"""On whose behalf the request runs that is worked on now, as the web knows it: what it waits for is taken in
turns with others. It follows a request as context variables do, like `rm.adapters.store.audit_scope`.
"""

from __future__ import annotations

from contextvars import ContextVar

ASKER: ContextVar[str] = ContextVar("asker", default="")
