"""What users call a job: `36`, `36_2` for an element of a job array, `36_[3-9]` for what waits of one.

Source: "Job Array Support" of Slurm 22.05. Its own file, since every list shows ids and few read them.
"""

from __future__ import annotations

SHOWN = 64  # characters of a long list of indices, as in Slurm


def shown_id(job: int, array_job: int, array_task: int | None, rest: str = "", limit: int = 0) -> str:
    """What users call a job: its number, `36_2` for an element, `36_[3-9%5]` for the `rest` of an array."""
    if array_task is not None:
        return f"{array_job}_{array_task}"
    if not rest:
        return str(job)
    if len(rest) > SHOWN:
        rest = rest[:SHOWN].rpartition(",")[0] + ",..."
    return f"{job}_[{rest}{f'%{limit}' if limit else ''}]"
