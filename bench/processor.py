"""What programs have used of the processor."""

from __future__ import annotations

import resource


def processor_s() -> float:
    """What the ended children have used; unlike the wall time it does not grow with others' load."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
