"""Statements on the tables of the store, made once."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    Table,
    bindparam,
    delete,
    exists,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.functions import FunctionElement

from rm.adapters.store.schema import (
    IS_START,
    actions,
    archive_cursors,
    choices,
    cluster,
    documents,
    history_marks,
    hosts,
    job_specs,
    job_steps,
    jobs,
    journal,
    logs,
    measurements,
    meshes,
    network_cells,
    network_changes,
    network_pairs,
    network_samples,
    network_summaries,
    tokens,
    zones,
)
from rm.core.model.job import JobState

JOBS = select(jobs.c.id, jobs.c.body, job_specs.c.body.label("spec")).join_from(jobs, job_specs)
_elements = jobs.alias("elements")
HAS_ELEMENTS = exists().where(_elements.c.spec_id == jobs.c.id, _elements.c.id != jobs.c.id)
# arrays of which elements were cancelled before they started: a text in JSON cannot hold these quotes
_BODY = jobs.c.body
_DROPPED = jobs.c.array_task.is_(None) & _BODY.like('%"dropped":"%') & _BODY.not_like('%"dropped":""%')
_OWN = select(jobs.c.user_name).join_from(jobs, job_specs, job_specs.c.id == jobs.c.id)


def in_states(states: Collection[JobState], by_rests: bool) -> ColumnElement[bool]:
    """`by_rests`: also arrays of which elements are in one of these states that have no jobs of their own."""
    within = jobs.c.state.in_([state.value for state in states])
    return within | _DROPPED if by_rests and JobState.CANCELLED in states else within


class _Octets(FunctionElement[int]):
    """The bytes of a text in UTF-8; SQLite has this function of PostgreSQL's since 3.43."""

    type = Integer()
    inherit_cache = True


@compiles(_Octets)
def _in_postgresql(element: _Octets, compiler: SQLCompiler, **given: Any) -> str:
    return f"octet_length({compiler.process(element.clauses, **given)})"


@compiles(_Octets, "sqlite")
def _in_sqlite(element: _Octets, compiler: SQLCompiler, **given: Any) -> str:
    return f"length(CAST({compiler.process(element.clauses, **given)} AS BLOB))"


_SIZE = _Octets(job_specs.c.body)

# FOR UPDATE holds back other leaders on PostgreSQL; on SQLite BEGIN IMMEDIATE already did
CLUSTER_FOR_UPDATE = select(cluster).with_for_update()
GUARD = select(
    cluster.c.epoch, cluster.c.version, cluster.c.next_job_id, cluster.c.next_action_id
).with_for_update()
# PostgreSQL: ends this account's other sessions that hold the cluster's row, or are about to
END_WRITERS = text(
    "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
    " WHERE l.relation = 'cluster'::regclass AND l.mode IN ('RowShareLock', 'RowExclusiveLock')"
    " AND a.datname = current_database() AND a.usename = current_user AND l.pid <> pg_backend_pid()"
)
UPDATE_CLUSTER = update(cluster).where(
    cluster.c.version == bindparam("b_expected"), cluster.c.epoch == bindparam("b_epoch")
)
UPDATE_LEASE = update(cluster).where(cluster.c.epoch == bindparam("b_epoch"))

DELETE_HOST = delete(hosts).where(hosts.c.name == bindparam("b_name"))
DELETE_MEASUREMENTS = delete(measurements).where(
    (measurements.c.source == bindparam("b_name")) | (measurements.c.destination == bindparam("b_name"))
)
DELETE_ZONE = delete(zones).where(zones.c.name == bindparam("b_name"))
DELETE_ACTION = delete(actions).where(actions.c.id == bindparam("b_id"))
# literal, so that the partial index serves
STARTS = select(journal.c.seq, journal.c.at_us).where(IS_START).order_by(journal.c.seq)
DELETE_TOKEN = delete(tokens).where(tokens.c.id == bindparam("b_id"))
DELETE_DOCUMENT = delete(documents).where(documents.c.name == bindparam("b_name"))


def ordered(table: Table) -> Select[Any]:
    return select(table).order_by(table.c.id)


def insert_of(dialect: str, table: Table) -> sqlite.Insert:
    """The dialect's own INSERT, which knows ON CONFLICT alike. Only one dialect is loaded."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return cast("sqlite.Insert", postgresql.insert(table))
    return sqlite.insert(table)


@cache
def upserts(dialect: str) -> dict[str, Insert]:
    """By table name: insert a row, or replace all but the key of the one that has this key."""
    keys = {job_specs: "id", jobs: "id", hosts: "name", zones: "name", documents: "name", tokens: "id"}
    made = {table.name: _upsert(dialect, table, (key,)) for table, key in keys.items()}
    keyed = (
        measurements,
        logs,
        job_steps,
        choices,
        network_summaries,
        history_marks,
        network_cells,
        network_changes,
        meshes,
        archive_cursors,
    )
    for table in keyed:
        made[table.name] = _upsert(dialect, table, tuple(c.name for c in table.primary_key))
    return made


@cache
def additions(dialect: str) -> dict[str, Insert]:
    """By table name: insert a row, unless there is one with its key."""
    return {t.name: insert_of(dialect, t).on_conflict_do_nothing() for t in (network_pairs, network_samples)}


def _upsert(dialect: str, table: Table, key: tuple[str, ...]) -> Insert:
    insert = insert_of(dialect, table)
    replaced = {c.name: insert.excluded[c.name] for c in table.c if c.name not in (*key, "id")}
    return insert.on_conflict_do_update(index_elements=list(key), set_=replaced)


def heavy_users(which: ColumnElement[bool], most: int) -> Select[Any]:
    """The users whose jobs of these have specifications of more bytes together."""
    return _OWN.where(which).group_by(jobs.c.user_name).having(func.sum(_SIZE) > most)


def weighed(which: ColumnElement[bool], user: str) -> Select[Any]:
    """The user's jobs of these, and the bytes of their specifications; the last that ended first."""
    found = _OWN.with_only_columns(jobs.c.id, _SIZE).where(which, jobs.c.user_name == user)
    return found.order_by(jobs.c.ended_us.desc(), jobs.c.id.desc())
