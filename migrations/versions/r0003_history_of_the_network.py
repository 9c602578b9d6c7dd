"""The history of the measured network: tries, their summaries, and the grid's cells."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "network_pairs",
        sa.Column("id", KEY, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_network_pairs"),
        sa.UniqueConstraint("source", "destination", name="uq_network_pairs_source_destination"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "network_samples",
        sa.Column("pair", sa.BigInteger(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("mesh", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("pair", "at_us", "mesh", name="pk_network_samples"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_network_samples_at_us", "network_samples", ["at_us"])
    op.create_table(
        "network_summaries",
        sa.Column("span_us", sa.BigInteger(), nullable=False),
        sa.Column("pair", sa.BigInteger(), nullable=False),
        sa.Column("start_us", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("span_us", "pair", "start_us", name="pk_network_summaries"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_network_summaries_span_us_start_us", "network_summaries", ["span_us", "start_us"])
    op.create_table(
        "history_marks",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_history_marks"),
    )
    op.create_table(
        "network_cells",
        sa.Column("mesh", sa.Text(), nullable=False),
        sa.Column("check_name", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("mesh", "check_name", "source", "destination", name="pk_network_cells"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "meshes",
        sa.Column("mesh", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("mesh", name="pk_meshes"),
    )


def downgrade() -> None:
    for table in (
        "meshes", "network_cells", "history_marks", "network_summaries", "network_samples", "network_pairs"
    ):  # fmt: skip
        op.drop_table(table)
