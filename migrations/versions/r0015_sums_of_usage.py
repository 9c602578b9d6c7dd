"""What jobs used, added up over hours and days. Jobs that have ended are counted with what they held."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

NAMES = ("account", "user_name", "qos", "partition")
KEY = ("span_us", "host", "start_us", *NAMES)
SUMS = (
    "jobs", "failed", "requeued", "elapsed_us", "waited_us", "slowed_us", "cpu_us", "cpu_watched_us",
    "cpu_busy_us", "mem_mib_s", "gpu_us", "gpu_watched_us", "gpu_busy_us", "energy_mj", "read_bytes",
    "written_bytes",
)  # fmt: skip
SPANS_US = (3_600_000_000, 86_400_000_000)
ROWS = 1_000  # that are written at once
JOBS = 100  # that are read at once: a job's script may have megabytes

ENDED = (
    "SELECT jobs.id, jobs.state, jobs.user_name, jobs.partition, jobs.submitted_us, jobs.started_us,"
    " jobs.ended_us, jobs.body, job_specs.body AS spec"
    " FROM jobs JOIN job_specs ON job_specs.id = jobs.spec_id"
    " WHERE jobs.started_us IS NOT NULL AND jobs.ended_us IS NOT NULL AND jobs.state IN"
    " ('COMPLETED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'NODE_FAIL', 'PREEMPTED', 'OUT_OF_MEMORY')"
    " AND jobs.id > :after ORDER BY jobs.id LIMIT :jobs"
)


def upgrade() -> None:
    made = op.create_table(
        "usage_sums",
        sa.Column("span_us", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("start_us", sa.BigInteger(), autoincrement=False, nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in NAMES),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in SUMS),
        sa.PrimaryKeyConstraint(*KEY, name="pk_usage_sums"),
        sqlite_with_rowid=False,
    )
    found: dict[tuple[Any, ...], list[int]] = {}
    bind, after = op.get_bind(), -1
    hosts = _hosts(bind)
    while some := bind.execute(sa.text(ENDED), {"after": after, "jobs": JOBS}).fetchall():
        after = some[-1].id
        for row in some:
            try:
                counted = list(_counted(row, hosts))
            except (ValueError, TypeError, KeyError, AttributeError):
                continue  # a damaged row, which the daemon sets aside
            for key, sums in counted:
                heap = found.setdefault(key, [0] * len(SUMS))
                heap[:] = map(sum, zip(heap, sums, strict=True))
    values = [dict(zip((*KEY, *SUMS), (*key, *sums), strict=True)) for key, sums in found.items()]
    for at in range(0, len(values), ROWS):
        op.bulk_insert(made, values[at : at + ROWS])


def _hosts(bind: Any) -> dict[str, tuple[int, int, int]]:
    """(processors, GPUs, bytes of memory) of each host that is there still."""
    found = {}
    for row in bind.execute(sa.text("SELECT name, body FROM hosts")):
        try:
            host = json.loads(row.body)
            found[row.name] = (int(host["cpus"]), len(host.get("gpus", ())), int(host.get("mem_bytes", 0)))
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # a damaged row, which the daemon sets aside
    return found


def _counted(row: Any, known: dict[str, tuple[int, int, int]]) -> Iterator[tuple[tuple[Any, ...], list[int]]]:
    """As rm counts a job when it ends; what it used of what it held is not known."""
    job, spec = json.loads(row.body), json.loads(row.spec)
    elapsed_us = max(0, row.ended_us - row.started_us - job.get("stood_us", 0))
    since_us = max(row.submitted_us, spec.get("begin_us") or 0, job.get("not_before_us", 0))
    earlier = job.get("earlier") or [{}]
    since_us = max(since_us, earlier[-1].get("ended_us") or 0)
    once = [1, int(row.state != "COMPLETED"), 0, elapsed_us, max(0, row.started_us - since_us), 0]
    hosts: dict[str, list[Any]] = {}
    for task in job.get("tasks") or ():
        hosts.setdefault(task["host"], []).append(task)
    for host, tasks in hosts.items():
        cpus = spec.get("cpus_per_task", 1) * len(tasks)
        mem_bytes = spec.get("mem_bytes_per_host", 0) or spec.get("mem_bytes_per_task", 0) * len(tasks)
        gpus = len({gpu for task in tasks for gpu in task.get("gpus", ())})
        if spec.get("exclusive") or spec.get("mem_all"):
            all_cpus, all_gpus, mem_bytes = known.get(host, (0, 0, 0))
            if spec.get("exclusive"):
                cpus, gpus = all_cpus, all_gpus
        held = [cpus * elapsed_us, 0, 0, (mem_bytes >> 20) * elapsed_us // 1_000_000, gpus * elapsed_us]
        sums = [*once, *held, 0, 0, 0, 0, 0]
        who = (job.get("account", ""), row.user_name, job.get("qos", ""), row.partition)
        for span_us in SPANS_US:
            start_us = row.ended_us - row.ended_us % span_us
            yield (span_us, "", start_us, *who), sums
            yield (span_us, host, start_us, "", "", "", ""), sums
        once = [0, 0, 0, 0, 0, 0]  # on its first host


def downgrade() -> None:
    op.drop_table("usage_sums")
