"""The tables of the store, alike on SQLite and PostgreSQL.

What is searched for is a column; the rest of a value is its JSON in `body`, so that a new field
of the core needs no migration. `migrations/` creates these tables; a test compares the two.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from rm.core.sharing.ended import Sums
from rm.core.store import START

# SQLite only makes an INTEGER PRIMARY KEY the row's own address
KEY = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    }
)

# One row: what every commit is guarded by, and the counters that never go back.
cluster = Table(
    "cluster",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),  # "" = nobody leads
    Column("lease_expires_us", BigInteger, nullable=False),
    Column("lease_us", BigInteger, nullable=False, server_default="0"),
    Column("leader_https_url", Text, nullable=False, server_default=""),
    Column("leader_page_url", Text, nullable=False, server_default=""),
    Column("leader_machine", Text, nullable=False, server_default=""),
    Column("next_job_id", BigInteger, nullable=False),
    Column("next_action_id", BigInteger, nullable=False),
    Column("cluster_id", Text, nullable=False, server_default=""),
)


def first_cluster(cluster_id: str) -> dict[str, Any]:
    """That row of a new database."""
    return {
        "id": 1, "version": 0, "epoch": 0, "holder": "", "lease_expires_us": 0, "next_job_id": 1,
        "next_action_id": 1, "cluster_id": cluster_id,
    }  # fmt: skip


# Written once per job, and per job array: a script can be large, and state changes must not write it again.
job_specs = Table(
    "job_specs",
    metadata,
    Column("id", KEY, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", KEY, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("user_name", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("partition", Text, nullable=False),
    Column("priority", BigInteger, nullable=False),
    Column("submitted_us", BigInteger, nullable=False),
    Column("started_us", BigInteger),
    Column("ended_us", BigInteger),
    Column("body", Text, nullable=False),  # the Job without its spec
    Column("spec_id", BigInteger, ForeignKey("job_specs.id"), nullable=False),  # elements have their array's
    Column("array_task", BigInteger),
    Index(None, "state"),
    Index(None, "ended_us"),
    Index(None, "user_name", "id"),
    Index(None, "spec_id", "array_task"),
)

# `id` keeps the order in which the names were first stored (the inventory's order).
hosts = Table(
    "hosts",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("body", Text, nullable=False),
)

zones = Table(
    "zones",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("body", Text, nullable=False),
)

# The outbox: only intents whose outcome is not yet recorded.
actions = Table(
    "actions",
    metadata,
    Column("id", KEY, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("job", BigInteger),
    Column("attempt", BigInteger, nullable=False),
    Column("host", Text),
    Column("body", Text, nullable=False),
    Index(None, "job"),
)

measurements = Table(
    "measurements",
    metadata,
    Column("source", Text, primary_key=True),
    Column("destination", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Index(None, "destination"),
)

documents = Table(
    "documents",
    metadata,
    Column("name", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

# Rows that could not be read when a daemon started, with all columns (`rm/adapters/store/set_aside.py`).
set_aside = Table(
    "set_aside",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("body", Text, nullable=False),
)

# AUTOINCREMENT: a sequence number is not used again after its entry was pruned.
# Entries are many and starts are few: only these are searched for.
IS_START = text(f"kind = '{START}'")
_journal_start = Index("ix_journal_start", "seq", sqlite_where=IS_START)
journal = Table(
    "journal",
    metadata,
    Column("seq", KEY, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    _journal_start,
    sqlite_autoincrement=True,
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user_name", Text, nullable=False),
    Column("body", Text, nullable=False),
)

# The audit log, whose numbers are not used again either.
acts = Table(
    "acts",
    metadata,
    Column("seq", KEY, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("user_name", Text, nullable=False),
    Column("body", Text, nullable=False),
    Index(None, "at_us"),
    sqlite_autoincrement=True,
)

# How the jobs' last placements came about: written once each, and read for `rmx why` alone.
choices = Table(
    "choices",
    metadata,
    Column("job", KEY, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)

# What became of logs when their hosts forgot them; without a row: an empty one.
logs = Table(
    "logs",
    metadata,
    Column("job", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", BigInteger, primary_key=True, autoincrement=False),
    Column("rank", BigInteger, primary_key=True, autoincrement=False),
    Column("stream", Text, primary_key=True),
    Column("body", Text, nullable=False),
    sqlite_with_rowid=False,
)

# What is known of the steps of jobs.
job_steps = Table(
    "job_steps",
    metadata,
    Column("job", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", BigInteger, primary_key=True, autoincrement=False),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
    sqlite_with_rowid=False,
)

# What jobs used, added up over hours and days (`rm/adapters/store/usage_sql.py`): by what they ran for, or by
# host. A name that a sum is not of is "".
LATER_SUMS = [
    name
    for name in Sums._fields
    if (name.startswith("waited_") and name != "waited_us")
    or name in ("received_bytes", "sent_bytes", "saved_us")
]
usage_sums = Table(
    "usage_sums",
    metadata,
    Column("span_us", BigInteger, primary_key=True, autoincrement=False),
    Column("host", Text, primary_key=True),  # before the time: most questions are of "" alone
    Column("start_us", BigInteger, primary_key=True, autoincrement=False),
    *(Column(name, Text, primary_key=True) for name in ("account", "user_name", "qos", "partition")),
    *(Column(n, BigInteger, nullable=False) for n in Sums._fields if n not in LATER_SUMS),
    *(Column(name, BigInteger, nullable=False, server_default="0") for name in LATER_SUMS),
    sqlite_with_rowid=False,
)

# The bytes of logs, where the database keeps them (`rm/adapters/store/log_database.py`).
log_parts = Table(
    "log_parts",
    metadata,
    Column("job", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", BigInteger, primary_key=True, autoincrement=False),
    Column("rank", BigInteger, primary_key=True, autoincrement=False),
    Column("stream", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

# The history of the network: a pair is a direction, `body` what was found by metric.
network_pairs = Table(
    "network_pairs",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("source", Text, nullable=False),
    Column("destination", Text, nullable=False),
    UniqueConstraint("source", "destination"),
    sqlite_autoincrement=True,
)

network_samples = Table(
    "network_samples",
    metadata,
    Column("pair", BigInteger, primary_key=True, autoincrement=False),
    Column("at_us", BigInteger, primary_key=True, autoincrement=False),
    Column("mesh", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Index(None, "at_us"),
    sqlite_with_rowid=False,
)

network_summaries = Table(
    "network_summaries",
    metadata,
    Column("span_us", BigInteger, primary_key=True, autoincrement=False),
    Column("pair", BigInteger, primary_key=True, autoincrement=False),
    Column("start_us", BigInteger, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
    Index(None, "span_us", "start_us"),
    sqlite_with_rowid=False,
)

# Instants up to which the history is summarised, or forgotten.
history_marks = Table(
    "history_marks",
    metadata,
    Column("name", Text, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
)

network_cells = Table(
    "network_cells",
    metadata,
    Column("mesh", Text, primary_key=True),
    Column("check_name", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("destination", Text, primary_key=True),
    Column("body", Text, nullable=False),
    sqlite_with_rowid=False,
)

network_changes = Table(
    "network_changes",
    metadata,
    Column("mesh", Text, primary_key=True),
    Column("check_name", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("destination", Text, primary_key=True),
    Column("at_us", BigInteger, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
    Index(None, "mesh", "at_us"),
    Index(None, "at_us"),
    sqlite_with_rowid=False,
)

meshes = Table(
    "meshes",
    metadata,
    Column("mesh", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

# Results that archives of others are still to get, and how far each has got
# (`rm/adapters/store/results_sql.py`).
archive_results = Table(
    "archive_results",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    sqlite_autoincrement=True,
)

archive_cursors = Table(
    "archive_cursors",
    metadata,
    Column("archive", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

# Playbooks that the daemon runs, and what became of their tasks (`rm/adapters/store/playbook_runs_sql.py`).
playbook_runs = Table(
    "playbook_runs",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("playbook", Text, nullable=False),
    Column("ended_us", BigInteger),
    Column("body", Text, nullable=False),
    Index(None, "ended_us"),
    sqlite_autoincrement=True,
)

playbook_outcomes = Table(
    "playbook_outcomes",
    metadata,
    Column("run", BigInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("host", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("body", Text, nullable=False),
    sqlite_with_rowid=False,
)

playbook_schedules = Table(
    "playbook_schedules",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("body", Text, nullable=False),
    sqlite_autoincrement=True,
)


def tables_of(dialect: str) -> MetaData:
    """All tables, as they are to be created there."""
    if dialect == "postgresql":  # named with the index, this would load the dialect in every daemon
        _journal_start.dialect_options[dialect]["where"] = IS_START
    return metadata
