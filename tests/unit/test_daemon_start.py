"""What a daemon does without until it is needed, since to load it takes time and memory of every daemon; and
what it waits for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

from rm.client.connection import Connection
from rm.errors import RmError
from tests.cluster import until

# who needs it: the first host, the first playbook, a database on PostgreSQL, one of an older rm, an sdist
LATER = {
    "fabric", "paramiko", "invoke", "cryptography", "nacl", "bcrypt",
    "jinja2", "yaml", "jmespath", "rm.playbook.module",
    "sqlalchemy.dialects.postgresql", "psycopg", "alembic", "mako",
    "matplotlib", "rich", "rm.web.pages.app",
}  # fmt: skip


def test_a_daemon_starts_without_what_it_may_never_need() -> None:
    code = f"import sys, rm.bootstrap.daemon; print(sorted({LATER} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


BLINKING = """
import sys
from pathlib import Path
from rm.adapters.store.playbook_runs_sql import SqlPlaybookRuns
from rm.adapters.store.sql import SqlStore
from rm.bootstrap.daemon import run_daemon
from rm.config import load_config
from rm.errors import StoreUnavailable

def blinks(kind, name):
    work, tries = getattr(kind, name), iter((True, True))
    def tried(*given, **named):
        if next(tries, False):
            print(name, flush=True)
            raise StoreUnavailable("The database is away.", "It comes back.")
        return work(*given, **named)
    setattr(kind, name, tried)

blinks(SqlPlaybookRuns, "interrupt")
blinks(SqlPlaybookRuns, "schedules")
blinks(SqlStore, "load")
run_daemon(load_config(flags={"daemon.socket": sys.argv[1], "daemon.state_dir": sys.argv[2]}))
"""


def test_a_database_that_is_away_while_a_daemon_begins_to_lead_is_waited_for(tmp_path: Path) -> None:
    door = tmp_path / "rm.sock"
    words = [sys.executable, "-c", BLINKING, str(door), str(tmp_path / "state")]
    with (tmp_path / "log").open("w") as log:
        daemon = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=log, env={**os.environ, "RM_CONFIG": ""}
        )
    try:
        client = Connection(str(door))
        until(lambda: daemon.poll() is not None or leads(client), "it leads")
        assert daemon.poll() is None, (tmp_path / "log").read_text()
    finally:
        daemon.terminate()
        said, _ = daemon.communicate(timeout=60)
    assert Counter(said.decode().split()) == {"load": 2, "interrupt": 2, "schedules": 2}


TAKEN = """
import sqlite3, sys
from rm.adapters.store.playbook_runs_sql import SqlPlaybookRuns
from rm.bootstrap.daemon import run_daemon
from rm.config import load_config
from rm.errors import StoreUnavailable

def away(*asked):
    print("interrupt", flush=True)
    with sqlite3.connect(sys.argv[2] + "/rm.sqlite3") as database:
        database.execute("UPDATE cluster SET epoch = epoch + 1, holder = 'another'")
    raise StoreUnavailable("The database is away.", "It comes back.")

SqlPlaybookRuns.interrupt = away
run_daemon(load_config(flags={"daemon.socket": sys.argv[1], "daemon.state_dir": sys.argv[2]}))
"""


def test_a_daemon_whose_lease_was_taken_while_it_waited_marks_no_playbooks(tmp_path: Path) -> None:
    """They may be the runs of the daemon that leads now."""
    words = [sys.executable, "-c", TAKEN, str(tmp_path / "rm.sock"), str(tmp_path / "state")]
    env = {**os.environ, "RM_CONFIG": ""}
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=60, check=False)
    assert done.stdout.split() == ["interrupt"]
    assert "Another daemon took the lease" in done.stderr


def leads(client: Connection) -> bool:
    with suppress(RmError):
        return bool(client.get("status"))
    client.close()
    return False
