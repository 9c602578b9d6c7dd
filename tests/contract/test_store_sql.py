"""What concerns the databases themselves: upgrades, and what can go wrong with a database."""

from __future__ import annotations

import resource
import shutil
import sqlite3
import stat
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from rm.adapters.store import database, migrate, opening, records, schema
from rm.core.jobs.actions import Discard, Intent
from rm.core.model.choice import Choice
from rm.core.model.host import Zone
from rm.core.model.job import Job, JobState, Task
from rm.core.model.logs import KeptLog, LogName
from rm.core.model.network.links import LinkStats
from rm.core.monitoring.mesh import MeshState
from rm.core.people.audit import Act, Outcome
from rm.core.people.token import Token
from rm.core.sharing.ended import added_up, ended_parts
from rm.core.sharing.usage_query import Asked, answer
from rm.core.store import Batch, Entry, Measured, StoredAction
from rm.daemon.leading.outbox import stored
from rm.errors import ConfigError, StoreError, Unstorable
from tests import builders
from tests.contract.opened import open_store

# Rows as the first rm wrote them, with a field it no longer has and without those it got later.
FIRST_DATA = """
UPDATE cluster SET version = 41, epoch = 3, holder = 'h', next_job_id = 8, next_action_id = 5;
INSERT INTO job_specs VALUES (6, '{"name":"train","user":"alice","script":"#!/bin/sh\\n","retired":1}');
INSERT INTO job_specs VALUES (7, '{"name":"eval","user":"bob","script":"true","ntasks":4}');
INSERT INTO jobs VALUES (6, 'RUNNING', 'alice', 'train', '', 0, 10, 20, NULL,
  '{"id":6,"submitted_us":10,"state":"RUNNING","attempt":1,"tasks":[{"rank":0,"host":"h1"}],"started_us":20}');
INSERT INTO jobs VALUES (7, 'COMPLETED', 'bob', 'eval', '', 0, 11, 21, 31,
  '{"id":7,"submitted_us":11,"state":"COMPLETED","started_us":21,"ended_us":31,"exit_code":0}');
INSERT INTO hosts (name, body) VALUES ('h1', '{"name":"h1","zone":"z","address":"10.0.0.1","state":"UP"}');
INSERT INTO zones (name, body) VALUES ('z', '{"name":"z","delay_us":250}');
INSERT INTO actions VALUES (4, 'launch', 6, 1, 'h1', '{"hold":false}');
INSERT INTO measurements VALUES ('h1', 'h2', '{"loss_pct":0.5,"delay_us":90}');
INSERT INTO documents VALUES ('alignment', '{"score":100.0}');
INSERT INTO journal (at_us, kind, body) VALUES (10, 'Submitted', '{"id":6}');
"""

# A revision such as one may come: it makes a table anew to which another one refers.
LATER = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = "{number}", "{previous}"
def upgrade():
    with op.batch_alter_table("job_specs") as table:
        table.add_column(sa.Column("digest", sa.Text(), nullable=False, server_default=""))
        table.alter_column("body", nullable=True)
    {more}
"""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/rm.sqlite3"
    return str(request.getfixturevalue("empty_postgres")())


def run_sql(url: str, script: str) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as c:
            c.executescript(script)
    else:
        import psycopg  # as few workers need it

        name, _, host = url.removeprefix("postgresql://rm@/").partition("?host=")
        with psycopg.connect(host=host, user="rm", dbname=name) as c:
            c.execute(script)


def with_later_revision(directory: Path, more: str = "") -> Path:
    migrations = directory / "migrations"
    shutil.copytree(migrate.MIGRATIONS, migrations, ignore=shutil.ignore_patterns("__pycache__"))
    number = f"{int(migrate.head()) + 1:04}"
    text = LATER.format(number=number, previous=migrate.head(), more=more)
    (migrations / "versions" / f"r{number}_later.py").write_text(text)
    return migrations


def assert_first_data(store: Any) -> None:
    loaded = store.load(ended_after_us=0)
    assert (loaded.version, loaded.next_job_id, loaded.next_action_id) == (41, 8, 5)
    train, done = loaded.jobs
    assert (train.id, train.state, train.spec.user, train.attempt) == (6, JobState.RUNNING, "alice", 1)
    assert train.placement.hosts == ("h1",)
    assert (done.spec.ntasks, done.exit_code, done.ended_us) == (4, 0, 31)
    assert [h.name for h in loaded.hosts] == ["h1"]
    assert [(z.name, z.delay_us) for z in loaded.zones] == [("z", 250)]
    assert loaded.actions == (StoredAction(4, "launch", 6, 1, "h1", {"hold": False}),)
    assert loaded.measurements == (Measured("h1", "h2", LinkStats(0.5, 90)),)
    assert loaded.documents == (("alignment", {"score": 100.0}),)
    assert store.journal() == [(1, Entry(10, "Submitted", {"id": 6}))]


# ── upgrades ──


def where(index: Any) -> list[tuple[str, str]]:
    """Which rows are in an index that is not of all."""
    return [(name, str(value)) for name, value in index.get("dialect_options", {}).items()]


def described(url: str) -> dict[str, object]:
    """All that is in a database without jobs."""
    found: dict[str, object] = {}
    with opening.migrating(url) as c:
        about = sa.inspect(c)
        for table in about.get_table_names():
            columns = {
                one["name"]: (str(one["type"]), one["nullable"], str(one["default"]).strip("'"))
                for one in about.get_columns(table)
            }
            indexes = {
                (one["name"], *one["column_names"], one["unique"], str(where(one)))
                for one in about.get_indexes(table)
            }
            keys = about.get_pk_constraint(table), about.get_foreign_keys(table)
            unique = sorted(str(one["column_names"]) for one in about.get_unique_constraints(table))
            rows = [dict(row._mapping) for row in c.execute(sa.text(f"SELECT * FROM {table}"))]
            if c.dialect.name == "sqlite":
                made = sa.text("SELECT sql FROM sqlite_master WHERE name = :name").bindparams(name=table)
                words = [word in str(c.scalar(made)) for word in ("AUTOINCREMENT", "WITHOUT ROWID")]
                found[f"kind of {table}"] = words
            found[table] = columns, indexes, keys, unique, [{**row, "cluster_id": ""} for row in rows]
    return found


def test_a_new_database_is_as_the_migrations_make_it(empty_url: str) -> None:
    migrate.upgrade(empty_url)
    by_migrations = described(empty_url)
    with opening.migrating(empty_url) as c:
        tables = sa.MetaData()
        tables.reflect(c)
        tables.drop_all(c)
    open_store(empty_url).close()
    assert described(empty_url) == by_migrations
    opening.create(empty_url)  # another daemon that found it empty, too
    assert described(empty_url) == by_migrations


def test_the_migrations_make_the_schema(empty_url: str) -> None:
    migrate.upgrade(empty_url)
    with opening.migrating(empty_url) as c:
        context = MigrationContext.configure(c, opts={"version_table": migrate.VERSION_TABLE})
        assert compare_metadata(context, schema.metadata) == []


def test_revisions_are_numbered_in_one_line() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrate.MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [migrate.head()]
    numbers = [s.revision for s in reversed(list(scripts.walk_revisions()))]
    assert numbers == [f"{n:04}" for n in range(1, len(numbers) + 1)]


def with_first_data(url: str) -> None:
    """A database of now, out of one that the first rm has filled."""
    migrate.upgrade(url, revision="0001")
    run_sql(url, FIRST_DATA)
    migrate.upgrade(url)


def test_data_of_the_first_revision_lives_on(empty_url: str, tmp_path: Path) -> None:
    """From the first revision, through all there are, to one more that may come."""
    with_first_data(empty_url)
    store = open_store(empty_url)
    assert_first_data(store)
    store.close()

    later = with_later_revision(tmp_path)
    migrate.upgrade(empty_url, later)
    store = open_store(empty_url, later)
    assert_first_data(store)
    assert store.acquire_lease("h", 0, 1) == 4
    assert store.commit(Batch(jobs=(builders.job(8),)), 41) == 42
    store.close()


def ended_job(
    id: int,
    ended_us: int,
    *hosts: str,
    state: JobState = JobState.COMPLETED,
    asked: Mapping[str, Any] = MappingProxyType({}),
    **more: Any,
) -> Job:
    """It ran on these hosts, with four processors, 3 GiB and two GPUs on each."""
    fields = {"cpus_per_task": 4, "mem_bytes_per_task": 3 << 30, "gpus_per_task": 2, "partition": "main"}
    spec = builders.spec(f"job{id}", ntasks=len(hosts), user=f"user{id % 2}", **fields | asked)
    tasks = tuple(Task(r, h, (2 * r, 2 * r + 1), ended_us=ended_us) for r, h in enumerate(hosts))
    started_us = ended_us - 5_000_000_000
    times = {"started_us": started_us, "ended_us": ended_us}
    ending = None if state is JobState.COMPLETED else state
    return Job(
        id, spec, started_us - 90, state, tasks=tasks, ending=ending, account="physics", **times, **more
    )


def test_jobs_that_had_ended_are_counted_by_an_upgrade(empty_url: str) -> None:
    """As they are counted when they end, but for what they used of what they held."""
    day_us = 86_400_000_000
    jobs = [
        ended_job(1, 6_000_000_000, "h1"),
        ended_job(2, 9_000_000_000, "h1", "h2", state=JobState.FAILED, stood_us=1_000_000_000),
        ended_job(3, 3 * day_us, "h2", qos="low"),
        replace(ended_job(4, day_us, "h1"), started_us=None, state=JobState.CANCELLED),
        ended_job(5, day_us, "h1", asked={"exclusive": True}),
        ended_job(6, day_us, "h2", "gone", asked={"mem_all": True, "mem_bytes_per_task": 0}),
        ended_job(7, day_us, "gone", asked={"exclusive": True}),
        *(ended_job(id, day_us, "h2") for id in range(10, 120)),
    ]
    hosts = {name: builders.host(name, cpus=64, gpus=8, mem_gib=512) for name in ("h1", "h2")}
    migrate.upgrade(empty_url, revision="0014")
    with opening.migrating(empty_url) as c:
        for job in jobs:
            for table, row in (("job_specs", records.spec_row(job)), ("jobs", records.job_row(job))):
                names = ", ".join(f'"{name}"' for name in row)
                values = ", ".join(f":{name}" for name in row)
                c.execute(sa.text(f"INSERT INTO {table} ({names}) VALUES ({values})"), row)
        c.execute(sa.text("UPDATE jobs SET body = '{' WHERE id = 4"))  # a damaged one
        for row in (records.named_row(name, host, "Host") for name, host in hosts.items()):
            c.execute(sa.text("INSERT INTO hosts (name, body) VALUES (:name, :body)"), row)
        c.execute(sa.text("INSERT INTO hosts (name, body) VALUES ('h3', '[')"))
    migrate.upgrade(empty_url)
    store = open_store(empty_url)
    parts = [part for job in jobs for part in ended_parts(job, hosts)]
    for by in (("account", "user"), ("qos", "partition"), ("host",), ("day",)):
        what = Asked(by, 0, 4 * day_us)
        found = store.usage(what)
        assert found == answer(what, added_up(parts))
        assert sum(sums.jobs for _, sums in found) == 116
        held = (8 + 8 + 4 + 0 + 2 * 110) * 5_000_000_000 - 4_000_000_000
        assert sum(sums.gpu_us for _, sums in found) == held
    store.close()


def test_sums_that_know_of_nothing_saved_are_kept_by_an_upgrade(empty_url: str) -> None:
    """And more is added to them."""
    migrate.upgrade(empty_url, revision="0019")
    job = ended_job(1, 6_000_000_000, "h1", slowed=((7, 5),), saved_us=9)
    parts = ended_parts(job, {})
    with opening.migrating(empty_url) as c:
        for heap, sums in added_up(parts).items():
            row = heap._asdict() | sums._asdict()
            row["user_name"] = row.pop("user")
            del row["saved_us"]
            names, values = ", ".join(row), ", ".join(f":{name}" for name in row)
            c.execute(sa.text(f"INSERT INTO usage_sums ({names}) VALUES ({values})"), row)
    migrate.upgrade(empty_url)
    store = open_store(empty_url)
    for by in (("account",), ("host",)):
        ((_, sums),) = store.usage(Asked(by, 0, 86_400_000_000))
        assert (sums.jobs, sums.slowed_us, sums.saved_us) == (1, 5, 0)
    epoch = store.acquire_lease("h", 0, 1)
    assert epoch is not None
    store.commit(Batch(ended=parts), store.load().version)
    ((_, sums),) = store.usage(Asked(("account",), 0, 86_400_000_000))
    assert (sums.jobs, sums.slowed_us, sums.saved_us) == (2, 10, 9)
    store.close()


def test_an_upgrade_that_fails_changes_nothing(empty_url: str, tmp_path: Path) -> None:
    with_first_data(empty_url)
    broken = with_later_revision(tmp_path, more='op.execute("SELECT nonsense")')
    with pytest.raises(StoreError, match=r"failed to upgrade: .*nonsense"):
        migrate.upgrade(empty_url, broken)
    store = open_store(empty_url)
    assert_first_data(store)
    store.close()


def test_an_upgrade_that_would_lose_rows_is_undone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/rm.sqlite3"
    with_first_data(url)
    broken = with_later_revision(tmp_path, more='op.execute("DELETE FROM job_specs WHERE id = 7")')
    with pytest.raises(StoreError, match="would lose rows of job_specs"):
        migrate.upgrade(url, broken)
    store = open_store(url)
    assert_first_data(store)
    store.close()


def test_opening_upgrades_a_sqlite_file_and_keeps_a_copy(tmp_path: Path) -> None:
    url, now = f"sqlite:///{tmp_path}/rm.sqlite3", migrate.head()
    with_first_data(url)
    store = open_store(url, with_later_revision(tmp_path))
    assert_first_data(store)
    store.close()
    copy = tmp_path / f"rm.sqlite3.{now}.backup"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    store = open_store(f"sqlite:///{copy}")  # what an older rm goes back to
    assert_first_data(store)
    store.close()


@pytest.mark.postgres
def test_opening_tells_how_to_upgrade_postgres(empty_postgres: Callable[[], str], tmp_path: Path) -> None:
    url = empty_postgres()
    with_first_data(url)
    with pytest.raises(StoreError, match="rmx upgrade"):
        open_store(url, with_later_revision(tmp_path))
    store = open_store(url)
    assert_first_data(store)
    store.close()


def test_a_newer_database_is_refused(empty_url: str, tmp_path: Path) -> None:
    migrate.upgrade(empty_url, with_later_revision(tmp_path))
    with pytest.raises(StoreError, match="written by a newer rm"):
        open_store(empty_url)


def test_a_database_of_something_else_is_left_alone(empty_url: str) -> None:
    run_sql(empty_url, "CREATE TABLE recipes (id INTEGER)")
    with pytest.raises(StoreError, match=r"tables that are not rm's \(recipes"):
        open_store(empty_url)


# ── trouble ──


def test_the_file_is_private(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/rm.sqlite3")
    store.acquire_lease("a", 0, 1)
    assert {stat.S_IMODE(f.stat().st_mode) for f in tmp_path.iterdir()} == {0o600}
    store.close()


@pytest.mark.parametrize("path", ["missing/rm.sqlite3", "."])
def test_a_file_that_cannot_be_made(tmp_path: Path, path: str) -> None:
    with pytest.raises(StoreError, match=r"cannot be written: .*\. .*the daemon's user write there"):
        open_store(f"sqlite:///{tmp_path}/{path}")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "rm.sqlite3"
    file.write_text("once upon a time\n" * 1000)
    with pytest.raises(StoreError, match=r"not a database.*Restore"):
        open_store(f"sqlite:///{file}")


def test_a_damaged_file(tmp_path: Path) -> None:
    file = tmp_path / "rm.sqlite3"
    store = open_store(f"sqlite:///{file}")
    store.acquire_lease("a", 0, 1)
    store.commit(Batch(jobs=tuple(builders.job(i) for i in range(1, 300))), 0)
    store.close()
    with open(file, "r+b") as f:  # all but the first pages, as a bad disk would
        f.seek(4096 * 4)
        f.write(b"\xa5" * (file.stat().st_size - 4096 * 4))
    with pytest.raises(StoreError, match="Restore"):
        open_store(f"sqlite:///{file}").load()


DAMAGE = {
    ("job", "6"): "UPDATE jobs SET body = '{\"id\":6}' WHERE id = 6",
    ("host", "h1"): 'UPDATE hosts SET body = \'{"name":"h1","boot_id":5}\' WHERE name = \'h1\'',
    ("zone", "z1"): "UPDATE zones SET body = '[]' WHERE name = 'z1'",
    ("action", "3"): "UPDATE actions SET body = '3' WHERE id = 3",
    ("measurement", "h1", "h2"): "UPDATE measurements SET body = '{' WHERE source = 'h1'",
    ("document", "note"): "UPDATE documents SET body = 'x' WHERE name = 'note'",
    ("token", "t1"): "UPDATE tokens SET body = '{}' WHERE id = 't1'",
}


def test_damaged_rows_of_the_history_are_left_out(empty_url: str) -> None:
    store = open_store(empty_url)
    history = store.history
    for mesh in ("good", "bad"):
        history.put_mesh_state(MeshState(mesh))
    run_sql(empty_url, "UPDATE meshes SET body = '[' WHERE mesh = 'bad';")
    assert [state.mesh for state in history.mesh_states()] == ["good"]
    store.close()


def test_damaged_rows_are_set_aside_with_all_that_is_in_them(empty_url: str) -> None:
    store = open_store(empty_url)
    store.acquire_lease("a", 0, 1)
    batch = Batch(
        jobs=tuple(builders.job(i) for i in (6, 7)),
        hosts=tuple(builders.host(name) for name in ("h1", "h2")),
        zones=(Zone("z1"), Zone("z2")),
        actions=tuple(stored(Intent(i, Discard(6, 1, "h1"))) for i in (3, 4)),
        measurements=(Measured("h1", "h2", LinkStats()), Measured("h2", "h1", LinkStats())),
        documents=(("note", {}), ("other", {})),
        tokens=tuple(replace(builders.filled(Token), id=id) for id in ("t1", "t2")),
    )
    store.commit(batch, 0)
    run_sql(empty_url, ";".join(DAMAGE.values()) + ";")
    loaded = store.load()
    assert {(one.kind, *one.key) for one in loaded.damaged} == set(DAMAGE)
    assert [j.id for j in store.jobs()] == [7]  # nobody's list breaks
    store.set_aside(loaded.damaged, 5)
    again = store.load()
    assert (again.damaged, [j.id for j in again.jobs], [h.name for h in again.hosts]) == ((), [7], ["h2"])
    assert [a.id for a in again.actions] == [4]
    assert [d for d, _ in again.documents] == ["other"]
    assert [token.id for token in again.tokens] == ["t2"]
    aside = store.aside()
    assert {one.kind for one in aside} == {key[0] for key in DAMAGE}
    assert any("Host h1 is damaged" in one.why for one in aside)
    assert again.next_job_id == 8
    assert store.commit(Batch(hosts=(builders.host("h1"),)), again.version) == again.version + 1
    store.close()


def test_one_damaged_row_spoils_no_other_answer(empty_url: str) -> None:
    store = open_store(empty_url)
    store.acquire_lease("a", 0, 1)
    choice, act = builders.filled(Choice), replace(builders.filled(Act), user="ann")
    kept = tuple(KeptLog(LogName(1, 1, rank, "out"), 7, 7) for rank in (0, 1))
    jobs = (builders.job(1), builders.job(2))
    store.commit(Batch(jobs=jobs, choices=((1, choice), (2, choice)), acts=(act,) * 3, logs=kept), 0)
    (first, _), (second, _), (third, _) = store.acts()
    run_sql(
        empty_url,
        "UPDATE choices SET body = '[' WHERE job = 1;"
        f"UPDATE acts SET body = '{{}}' WHERE seq = {second};"
        "UPDATE logs SET body = '7' WHERE rank = 0;"
        "UPDATE jobs SET state = 'GONE' WHERE id = 2;",
    )
    assert (store.choice(1), store.choice(2)) == (None, choice)
    assert store.logs(1) == [kept[1]]
    assert store.counts() == {JobState.PENDING: 1}
    assert [job.id for job in store.load().jobs] == [1, 2]  # what waits is not forgotten
    told = dict(store.acts())
    assert (told[first], told[third]) == (act, act)
    assert (told[second].user, told[second].verb, told[second].outcome) == ("ann", "damaged", Outcome.FAILED)
    assert f"Entry {second} of the audit log is damaged" in told[second].detail
    store.close()


def test_bytes_that_are_no_text_spoil_no_other_answer(tmp_path: Path) -> None:
    """PostgreSQL takes none."""
    url = f"sqlite:///{tmp_path / 'rm.sqlite3'}"
    store = open_store(url)
    store.acquire_lease("a", 0, 1)
    choice, act = builders.filled(Choice), replace(builders.filled(Act), user="ann")
    store.commit(Batch(jobs=(builders.job(1), builders.job(2)), choices=((1, choice),), acts=(act, act)), 0)
    run_sql(
        url,
        "UPDATE choices SET body = CAST(x'fffe' AS TEXT);"
        "UPDATE acts SET body = CAST(x'fffe' AS TEXT) WHERE seq = 1;"
        "UPDATE jobs SET body = CAST(x'fffe' AS TEXT) WHERE id = 1;",
    )
    assert store.choice(1) is None
    assert [act.verb for _, act in store.acts()] == ["damaged", act.verb]
    assert [job.id for job in store.jobs()] == [2]
    store.close()


def test_a_full_disk_loses_nothing_acknowledged(tmp_path: Path) -> None:
    file = tmp_path / "rm.sqlite3"
    store = open_store(f"sqlite:///{file}")
    store.acquire_lease("a", 0, 1)
    assert store.commit(Batch(jobs=(builders.job(1),)), 0) == 1
    large = Batch(jobs=(builders.job(2, script="x" * 4_000_000),))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(StoreError, match="nothing that was acknowledged is lost"):
            store.commit(large, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [j.id for j in store.load().jobs] == [1]
    assert store.commit(large, 1) == 2  # and goes on when there is room again
    store.close()


def test_a_locked_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 1)
    file = tmp_path / "rm.sqlite3"
    store = open_store(f"sqlite:///{file}")
    store.acquire_lease("a", 0, 1)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"locked.*Another process"):
            store.commit(Batch(), 0)
    assert store.commit(Batch(), 0) == 1
    store.close()


@pytest.mark.postgres
def test_a_lost_connection_is_made_again(empty_postgres: Callable[[], str]) -> None:
    url = empty_postgres()
    store = open_store(url)
    store.acquire_lease("a", 0, 1)
    assert store.commit(Batch(), 0) == 1
    run_sql(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rm'")
    assert store.commit(Batch(), 1) == 2
    store.close()


def test_what_cannot_be_stored_is_named(make_durable: Callable[[], Any]) -> None:
    store = make_durable().open()
    store.acquire_lease("a", 0, 1)
    with pytest.raises(StoreError, match="The specification of job 1 cannot be stored"):
        store.commit(Batch(jobs=(builders.job(1, script="\udcff"),)), 0)
    with pytest.raises(StoreError, match="failed to commit a batch"):
        store.commit(Batch(jobs=(builders.job(1, submitted_us=1 << 70),)), 0)
    assert store.commit(Batch(jobs=(builders.job(1),)), 0) == 1
    store.close()


def test_values_that_sqlite_itself_refuses_are_of_no_use_later() -> None:
    with pytest.raises(Unstorable, match="too big"), database.sentences("rm.db", "commit a batch"):
        raise sqlite3.DataError("string or blob too big")


@pytest.mark.parametrize("url", ["", "rm.db", "mysql://x/y", "sqlite://", "sqlite:///:memory:"])
def test_a_wrong_url(url: str) -> None:
    with pytest.raises(ConfigError, match="sqlite:////path"):
        open_store(url)


def test_a_server_that_does_not_answer_and_no_password_in_sight(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Is PostgreSQL running") as e:
        open_store(f"postgresql://rm:hunter2@/rm?host={tmp_path}")
    assert "hunter2" not in str(e.value)
