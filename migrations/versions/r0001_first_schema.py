"""The first schema: see rm/adapters/store/schema.py for what each table is for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    cluster = op.create_table(
        "cluster",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("lease_expires_us", sa.BigInteger(), nullable=False),
        sa.Column("next_job_id", sa.BigInteger(), nullable=False),
        sa.Column("next_action_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_cluster"),
    )
    op.create_table(
        "job_specs",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_job_specs"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("submitted_us", sa.BigInteger(), nullable=False),
        sa.Column("started_us", sa.BigInteger()),
        sa.Column("ended_us", sa.BigInteger()),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["id"], ["job_specs.id"], name="fk_jobs_id"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_state", "jobs", ["state"])
    op.create_index("ix_jobs_ended_us", "jobs", ["ended_us"])
    op.create_index("ix_jobs_user_name_id", "jobs", ["user_name", "id"])
    for named in ("hosts", "zones"):
        op.create_table(
            named,
            sa.Column("id", KEY, nullable=False),
            sa.Column("name", sa.Text(), nullable=False),
            sa.Column("body", sa.Text(), nullable=False),
            sa.PrimaryKeyConstraint("id", name=f"pk_{named}"),
            sa.UniqueConstraint("name", name=f"uq_{named}_name"),
        )
    op.create_table(
        "actions",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("job", sa.BigInteger()),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.Text()),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_actions"),
    )
    op.create_index("ix_actions_job", "actions", ["job"])
    op.create_table(
        "measurements",
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("source", "destination", name="pk_measurements"),
    )
    op.create_index("ix_measurements_destination", "measurements", ["destination"])
    op.create_table(
        "documents",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_documents"),
    )
    op.create_table(
        "journal",
        sa.Column("seq", KEY, nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("job", sa.BigInteger()),
        sa.Column("host", sa.Text()),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_journal"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_journal_job_seq", "journal", ["job", "seq"])
    op.create_index("ix_journal_at_us", "journal", ["at_us"])
    op.bulk_insert(
        cluster,
        [
            {
                "id": 1,
                "version": 0,
                "epoch": 0,
                "holder": "",
                "lease_expires_us": 0,
                "next_job_id": 1,
                "next_action_id": 1,
            }
        ],
    )


def downgrade() -> None:
    for table in ("jobs", "job_specs", "hosts", "zones", "actions", "measurements", "documents", "journal"):
        op.drop_table(table)
    op.drop_table("cluster")
