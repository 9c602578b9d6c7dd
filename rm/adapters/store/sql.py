"""The store on SQLite or PostgreSQL, through SQLAlchemy Core.

Durability: SQLite runs in WAL mode with synchronous=FULL and PostgreSQL with its default
synchronous_commit=on, so a commit returns after its log record is on disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from rm.adapters.store import records, schema, statements
from rm.adapters.store.database import (
    Prepared,
    PreparedRow,
    around_damage,
    jobs_of,
    lenient_text,
)
from rm.adapters.store.database_files import DatabaseFiles
from rm.adapters.store.history_sql import SqlHistory
from rm.adapters.store.log_database import LogDatabase
from rm.adapters.store.playbook_runs_sql import SqlPlaybookRuns
from rm.adapters.store.results_sql import SqlResults
from rm.adapters.store.set_aside import put_aside, rows_aside, sound, sound_cluster
from rm.adapters.store.sql_lease import SqlLease
from rm.adapters.store.usage_sql import addition, old_usage, read_usage, rows_of
from rm.collector import uncollected
from rm.core.jobs.dependents import named_by
from rm.core.model.choice import Choice
from rm.core.model.job import Job, JobState
from rm.core.model.job_step import JobStep, StepName
from rm.core.model.logs import KeptLog
from rm.core.people.audit import Act
from rm.core.sharing.ended import Heap, Sums
from rm.core.sharing.usage_query import Asked
from rm.core.store import Batch, Damaged, Entry, Loaded
from rm.errors import StaleLeader, StoreError, StoreUnavailable

STATES = frozenset(s.value for s in JobState)
UNFINISHED = tuple(s.value for s in JobState if not s.final)
IN_CHUNK = 500  # values in one IN (...): builds of SQLite limit the number of parameters
PRUNE_CHUNK = 5_000  # journal entries that are forgotten in one transaction
PRUNE_PAUSE_S = 0.005
Value = TypeVar("Value")


class SqlStore(SqlLease):
    """A `Store` in a database; made by `open_store`, which brings the schema up to date."""

    def __init__(self, engine: Engine, files: DatabaseFiles | None = None) -> None:
        self._engine = engine
        self._files = files
        self.name = engine.url.render_as_string(hide_password=True)
        self._writing = threading.RLock()
        self._epoch: int | None = None
        self._in_doubt: Batch | None = None  # whether its commit took effect is not known
        self._upsert = statements.upserts(engine.dialect.name)
        self._guard = PreparedRow(statements.GUARD, engine.dialect)
        self._often = _often(engine.url.drivername)
        self.history = SqlHistory(engine.dialect.name, self._reading, self._changing)
        self.playbook_runs = SqlPlaybookRuns(engine.dialect.name, self._reading, self._changing)
        self.results = SqlResults(engine.dialect.name, self._reading, self._changing)

    # ── the leader's side ──

    def load(self, ended_after_us: int | None = None) -> Loaded:
        return self._around_damage("load", lambda c: self._load(c, ended_after_us))

    def _around_damage(self, purpose: str, read: Callable[[Connection], Value]) -> Value:
        return around_damage(self._reading, purpose, read)

    def _load(self, c: Connection, ended_after_us: int | None) -> Loaded:
        # a state that is none: whether the job is over is what the rest of its row says
        odd = c.scalars(sa.select(schema.jobs.c.id).where(schema.jobs.c.state.not_in(STATES))).all()
        wanted = sa.or_(schema.jobs.c.state.in_(UNFINISHED), *([schema.jobs.c.id.in_(odd)] if odd else []))
        if ended_after_us is not None:
            wanted = sa.or_(wanted, schema.jobs.c.ended_us >= ended_after_us)
        damaged: list[Damaged] = []
        with uncollected():

            def read(kind: str, query: sa.Select[Any], value: Callable[[Any], Value]) -> list[Value]:
                return sound(kind, c.execute(query), value, damaged)

            cluster = sound_cluster(c.execute(sa.select(schema.cluster)).mappings().one())
            # in order afterwards: SQLite would sort the rows with all that is in them
            job = records.job_reader()
            jobs = read("job", statements.JOBS.where(wanted), job)
            seen = {job.id for job in jobs}
            seen |= {int(one.key[0]) for one in damaged if one.kind == "job"}
            missing = sorted(named_by(jobs) - seen)
            for at in range(0, len(missing), IN_CHUNK):
                those = schema.jobs.c.id.in_(missing[at : at + IN_CHUNK])
                jobs += read("job", statements.JOBS.where(those), job)
            jobs.sort(key=lambda job: job.id)
            measurements = read("measurement", sa.select(schema.measurements), records.measured)
            documents = read("document", sa.select(schema.documents), lambda r: (r.name, records.document(r)))
            loaded = Loaded(
                version=cluster["version"],
                next_job_id=cluster["next_job_id"],
                next_action_id=cluster["next_action_id"],
                cluster=cluster["cluster_id"],
                jobs=tuple(jobs),
                hosts=tuple(read("host", statements.ordered(schema.hosts), records.host)),
                zones=tuple(read("zone", statements.ordered(schema.zones), records.zone)),
                actions=tuple(read("action", statements.ordered(schema.actions), records.action)),
                measurements=tuple(sorted(measurements, key=lambda m: (m.source, m.destination))),
                documents=tuple(sorted(documents, key=lambda d: d[0])),
                tokens=tuple(read("token", statements.ordered(schema.tokens), records.token)),
            )
        return replace(loaded, damaged=tuple(damaged))

    def set_aside(self, damaged: Collection[Damaged], at_us: int) -> None:
        with self._changing("set damaged rows aside") as c, lenient_text(c):
            put_aside(c, damaged, at_us)

    def aside(self) -> list[Damaged]:
        with self._reading("list what was set aside") as c:
            return rows_aside(c)

    def commit(self, batch: Batch, expected_version: int) -> int:
        try:
            with self._turn("commit a batch"), self._transaction("commit a batch") as c:
                self._commit(c, batch, expected_version)
        except StoreUnavailable:
            self._in_doubt = batch
            raise
        self._in_doubt = None
        return expected_version + 1

    def _commit(self, c: Connection, batch: Batch, expected_version: int) -> None:
        epoch, version, next_job, next_action = self._guard(c)
        if self._epoch is None or epoch != self._epoch:
            raise StaleLeader("This daemon does not lead the cluster (any more).")
        if batch is self._in_doubt and version == expected_version + 1:
            return  # the answer was lost, not the commit: under this epoch nobody else moves the version
        if version != expected_version:
            raise StaleLeader(f"The store is at version {version}, not at {expected_version}.")
        _refuse_used_ids(c, batch, next_job, next_action)
        self._write(c, batch, next_job)
        new = {
            "b_expected": expected_version,
            "b_epoch": self._epoch,
            "version": expected_version + 1,
            "next_job_id": max(next_job, *(j.id + 1 for j in batch.jobs), 1),
            "next_action_id": max(next_action, *(a.id + 1 for a in batch.actions), 1),
        }
        self._often["cluster"](c, [new])

    def _write(self, c: Connection, batch: Batch, next_job: int) -> None:
        def put(statement: sa.Executable, rows: list[dict[str, Any]]) -> None:
            if rows:
                c.execute(statement, rows)

        put(statements.DELETE_HOST, [{"b_name": n} for n in batch.removed_hosts])
        put(statements.DELETE_MEASUREMENTS, [{"b_name": n} for n in batch.removed_hosts])
        put(statements.DELETE_ZONE, [{"b_name": n} for n in batch.removed_zones])
        often = self._often
        often["job_specs"](
            c, [records.spec_row(j) for j in batch.jobs if j.id >= next_job and not j.array_job]
        )
        changed = [j for j in batch.jobs if j.updates and j.id < next_job and not j.array_job]
        put(self._upsert["job_specs"], [records.spec_row(j) for j in changed])
        often["jobs"](c, [records.job_row(j) for j in batch.jobs])
        put(self._upsert["hosts"], [records.named_row(h.name, h, "Host") for h in batch.hosts])
        put(self._upsert["zones"], [records.named_row(z.name, z, "Zone") for z in batch.zones])
        often["measurements"](c, [records.measured_row(m) for m in batch.measurements])
        often["actions"](c, [records.action_row(a) for a in batch.actions])
        often["finished"](c, [{"b_id": id} for id in batch.finished_actions])
        # one row after the other: a name may appear twice, and the last one counts
        for name, body in batch.documents:
            if body is None:
                c.execute(statements.DELETE_DOCUMENT, {"b_name": name})
            else:
                c.execute(self._upsert["documents"], records.named_row(name, body, "Document"))
        put(statements.DELETE_TOKEN, [{"b_id": id} for id in batch.removed_tokens])
        put(self._upsert["tokens"], [records.token_row(t) for t in batch.tokens])
        often["acts"](c, [records.act_row(a) for a in batch.acts])
        often["logs"](c, [records.kept_log_row(log) for log in batch.logs])
        often["job_steps"](c, [records.job_step_row(step) for step in batch.job_steps])
        often["choices"](c, [records.choice_row(*one) for one in batch.choices])
        often["usage_sums"](c, rows_of(batch.ended))
        often["journal"](c, [records.entry_row(e) for e in batch.events])

    # ── everybody's side ──

    def jobs(
        self,
        *,
        states: Collection[JobState] | None = None,
        user: str | None = None,
        name: str | None = None,
        ended_after_us: int | None = None,
        limit: int | None = None,
        before_id: int | None = None,
        by_rests: bool = False,
    ) -> list[Job]:
        columns, query = schema.jobs.c, statements.JOBS
        if states is not None:
            query = query.where(statements.in_states(states, by_rests))
        if user is not None:
            query = query.where(columns.user_name == user)
        if name is not None:
            query = query.where(columns.name == name)
        if ended_after_us is not None:
            query = query.where(columns.state.in_(UNFINISHED) | (columns.ended_us >= ended_after_us))
        if before_id is not None:
            query = query.where(columns.id < before_id)
        newest = query.order_by(columns.id.desc()).limit(limit)
        found = self._around_damage(
            "list jobs", lambda c: sound("job", c.execute(newest), records.job_reader())
        )
        found.reverse()
        return found

    def job(self, id: int) -> Job | None:
        with self._reading("read a job") as c:
            row = c.execute(statements.JOBS.where(schema.jobs.c.id == id)).one_or_none()
            return None if row is None else records.job(row)

    def elements(self, array: int, tasks: Collection[int] | None = None) -> list[Job]:
        columns = schema.jobs.c
        of_array = statements.JOBS.where(columns.spec_id == array, columns.array_task.is_not(None))
        wanted = sorted(tasks or ())
        chunks = [wanted[at : at + IN_CHUNK] for at in range(0, len(wanted), IN_CHUNK)]
        queries = [of_array] if tasks is None else [of_array.where(columns.array_task.in_(c)) for c in chunks]

        def read(c: Connection) -> list[Job]:
            rows = (row for query in queries for row in c.execute(query.order_by(columns.array_task)))
            return sound("job", rows, records.job_reader())

        return self._around_damage("list elements of an array", read)

    def choice(self, job: int) -> Choice | None:
        query = sa.select(schema.choices).where(schema.choices.c.job == job)
        found = self._around_damage(
            "read how a job was placed", lambda c: sound("choice", c.execute(query), records.choice)
        )
        return found[0] if found else None

    def logs(self, job: int) -> list[KeptLog]:
        columns = schema.logs.c
        order = (columns.attempt, columns.rank, columns.stream)
        query = sa.select(schema.logs).where(columns.job == job).order_by(*order)
        return self._around_damage(
            "read what became of logs", lambda c: sound("log", c.execute(query), records.kept_log)
        )

    def job_steps(
        self, jobs: Collection[int], after: StepName | None = None, limit: int = 1000
    ) -> list[JobStep]:
        columns = schema.job_steps.c
        order = (columns.job, columns.attempt, columns.step)
        query = sa.select(schema.job_steps).where(columns.job.in_(jobs)).order_by(*order).limit(limit)
        if after is not None:
            query = query.where(sa.tuple_(*order) > sa.tuple_(after.job, after.attempt, after.step))
        return self._around_damage(
            "read the steps of jobs", lambda c: sound("job_step", c.execute(query), records.job_step)
        )

    def usage(self, asked: Asked) -> list[tuple[Heap, Sums]]:
        return self._around_damage("read the sums of usage", lambda c: read_usage(c, asked))

    def prune_usage(self, hours_before_us: int, days_before_us: int) -> int:
        old = old_usage(hours_before_us, days_before_us)
        with self._changing("prune the sums of usage") as c:
            return c.execute(sa.delete(schema.usage_sums).where(old)).rowcount

    def journal(self, after: int = 0, limit: int = 1000) -> list[tuple[int, Entry]]:
        columns = schema.journal.c
        query = sa.select(schema.journal).where(columns.seq > after).order_by(columns.seq).limit(limit)
        with self._reading("read the journal") as c:
            return [(r.seq, records.entry(r)) for r in c.execute(query)]

    def journal_starts(self) -> list[tuple[int, int]]:
        with self._reading("read the journal") as c:
            return [(r.seq, r.at_us) for r in c.execute(statements.STARTS)]

    def ids(self) -> set[int]:
        with self._reading("list jobs") as c:
            return set(c.scalars(sa.select(schema.jobs.c.id)))

    def counts(self) -> dict[JobState, int]:
        state = schema.jobs.c.state
        query = sa.select(state, sa.func.count()).group_by(state)
        found = self._around_damage("count jobs", lambda c: c.execute(query).all())
        return {JobState(name): count for name, count in found if name in STATES}

    def prune(self, before_us: int, most: int | None = None, most_bytes: int | None = None) -> int:
        jobs = schema.jobs
        over = jobs.c.state.not_in(UNFINISHED)
        if most is not None:
            newest_first = sa.select(jobs.c.ended_us).where(over).order_by(jobs.c.ended_us.desc())
            with self._reading("count ended jobs") as c:
                last = c.scalar(newest_first.offset(max(most - 1, 0)).limit(1))
            if last is not None:
                before_us = max(before_us, last if most else last + 1)
        forgotten = self._forget(over, jobs.c.ended_us < before_us)
        heavy = [] if most_bytes is None else self._beyond(over, most_bytes)
        for at in range(0, len(heavy), PRUNE_CHUNK):  # elements of arrays have the specification of theirs
            forgotten += self._forget(over, jobs.c.spec_id.in_(heavy[at : at + PRUNE_CHUNK]))
        for table in (schema.logs, schema.job_steps, schema.choices):  # also what came after its job's end
            there = sa.select(jobs.c.id).where(jobs.c.id == table.c.job).exists()
            with self._changing("prune") as c:
                c.execute(sa.delete(table).where(~there))
        return forgotten

    def _forget(self, *which: sa.ColumnElement[bool]) -> int:
        """Those of these jobs that nothing needs, in many short transactions; the number of them."""
        jobs, actions = schema.jobs, schema.actions
        busy = sa.select(actions.c.id).where(actions.c.job == jobs.c.id).exists()
        # an array stays as long as one of its elements
        old = sa.select(jobs.c.id).where(*which, ~busy, ~statements.HAS_ELEMENTS).limit(PRUNE_CHUNK)
        forgotten = 0
        while True:
            with self._changing("prune") as c:
                some = list(c.scalars(old))
                for table in (jobs, schema.job_specs):
                    c.execute(sa.delete(table).where(table.c.id.in_(some)))
            forgotten += len(some)
            if not some:
                return forgotten
            time.sleep(PRUNE_PAUSE_S)  # waiters for the lock get it

    def _beyond(self, over: sa.ColumnElement[bool], most_bytes: int) -> list[int]:
        """Of each user's ended jobs those before the last whose specifications take so much."""
        found: list[int] = []
        with self._reading("weigh ended jobs") as c:
            for (user,) in c.execute(statements.heavy_users(over, most_bytes)).all():
                rows = c.execute(statements.weighed(over, user)).all()
                sums = accumulate(row[1] for row in rows)
                found += [row[0] for row, size in zip(rows, sums, strict=True) if size > most_bytes]
        return found

    def prune_journal(self, before_us: int) -> int:
        """In many short transactions: the leader's commits go on in between."""
        kept = max((seq for seq, at_us in self.journal_starts() if at_us <= before_us), default=0)
        seq, forgotten = schema.journal.c.seq, 0
        oldest = sa.select(seq).where(seq < kept).order_by(seq).limit(PRUNE_CHUNK)
        while True:
            with self._changing("prune the journal") as c:
                some = c.execute(sa.delete(schema.journal).where(seq.in_(oldest))).rowcount
            forgotten += some
            if some < PRUNE_CHUNK:
                return forgotten
            time.sleep(PRUNE_PAUSE_S)  # waiters for the lock get it

    def acts(
        self, after: int = 0, limit: int = 1000, since_us: int = 0, user: str | None = None
    ) -> list[tuple[int, Act]]:
        columns = schema.acts.c
        query = sa.select(schema.acts).where(columns.seq > after)
        if since_us:
            query = query.where(columns.at_us >= since_us)
        if user is not None:
            query = query.where(columns.user_name == user)
        query = query.order_by(columns.seq).limit(limit)
        return self._around_damage(
            "read the audit log", lambda c: [(r.seq, records.act(r)) for r in c.execute(query)]
        )

    def prune_acts(self, before_us: int) -> int:
        """In many short transactions, as the journal."""
        columns, forgotten = schema.acts.c, 0
        oldest = sa.select(columns.seq).where(columns.at_us < before_us).limit(PRUNE_CHUNK)
        while True:
            with self._changing("prune the audit log") as c:
                some = c.execute(sa.delete(schema.acts).where(columns.seq.in_(oldest))).rowcount
            forgotten += some
            if some < PRUNE_CHUNK:
                return forgotten
            time.sleep(PRUNE_PAUSE_S)

    @property
    def file(self) -> Path | None:
        """The SQLite file; None for a database on a server."""
        sqlite = self._engine.dialect.name == "sqlite"
        return Path(str(self._engine.url.database)).absolute() if sqlite else None

    def log_place(self, gathered: Path) -> LogDatabase | None:
        """Logs in this database, gathered in a directory of this machine; None where they belong beside it:
        a SQLite file has one writer, which must not wait for them."""
        if self.file is not None:
            return None
        return LogDatabase(self.name, self._reading, self._transaction, gathered)

    def check_writable(self) -> None:
        """Raises StoreError when the database can only be read."""
        with self._changing("be written") as c:
            c.execute(sa.update(schema.cluster).values(version=schema.cluster.c.version))

    def close(self) -> None:
        self._epoch = None
        self._engine.dispose()
        if self._files is not None:
            self._files.close()


@cache  # a process may open many stores
def _often(driver: str) -> dict[str, Prepared]:
    """By table name: what most commits put into it; `finished`: what takes actions out."""
    dialect = URL.create(driver).get_dialect()()
    upsert = statements.upserts(dialect.name)
    often: dict[sa.Table, sa.UpdateBase] = {
        t: upsert[t.name]
        for t in (
            schema.job_specs,
            schema.jobs,
            schema.measurements,
            schema.logs,
            schema.job_steps,
            schema.choices,
        )
    }
    for table in (schema.actions, schema.acts, schema.journal):
        often[table] = sa.insert(table).inline()
    made = {
        table.name: Prepared(statement, dialect, [c.name for c in table.c if c.name != "seq"])
        for table, statement in often.items()
    }
    sums = schema.usage_sums
    made[sums.name] = Prepared(addition(dialect.name), dialect, [c.name for c in sums.c])
    made["finished"] = Prepared(statements.DELETE_ACTION, dialect)
    made["cluster"] = Prepared(
        statements.UPDATE_CLUSTER, dialect, ["version", "next_job_id", "next_action_id"]
    )
    return made


def _refuse_used_ids(c: Connection, batch: Batch, next_job: int, next_action: int) -> None:
    existing = [j.id for j in batch.jobs if j.id < next_job]
    known = jobs_of(c, existing) if existing else set()
    for id in existing:
        if id not in known:
            raise StoreError(f"Job id {id} was given out before and cannot be used again.")
    seen: set[int] = set()
    for action in batch.actions:
        if action.id < next_action or action.id in seen:
            raise StoreError(f"Action id {action.id} was given out before and cannot be used again.")
        seen.add(action.id)
