"""What a daemon does without until it is needed: to load it takes time and memory of every daemon."""

from __future__ import annotations

import subprocess
import sys

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
