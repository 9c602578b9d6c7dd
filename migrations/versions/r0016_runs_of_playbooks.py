"""Playbooks that the daemon runs: what became of their tasks, and those that come again by cron."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NUMBERS = ("run", "number")


def upgrade() -> None:
    op.create_table(
        "playbook_runs",
        sa.Column("id", KEY, nullable=False),
        sa.Column("playbook", sa.Text(), nullable=False),
        sa.Column("ended_us", sa.BigInteger()),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_playbook_runs"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_playbook_runs_ended_us", "playbook_runs", ["ended_us"])
    op.create_table(
        "playbook_outcomes",
        *(sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False) for name in NUMBERS),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint(*NUMBERS, name="pk_playbook_outcomes"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "playbook_schedules",
        sa.Column("id", KEY, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_playbook_schedules"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("playbook_schedules")
    op.drop_table("playbook_outcomes")
    op.drop_index("ix_playbook_runs_ended_us", "playbook_runs")
    op.drop_table("playbook_runs")
