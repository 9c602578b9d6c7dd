"""The grid's past: each change of a cell's status."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "network_changes",
        sa.Column("mesh", sa.Text(), nullable=False),
        sa.Column("check_name", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint(
            "mesh", "check_name", "source", "destination", "at_us", name="pk_network_changes"
        ),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_network_changes_mesh_at_us", "network_changes", ["mesh", "at_us"])
    op.create_index("ix_network_changes_at_us", "network_changes", ["at_us"])


def downgrade() -> None:
    op.drop_table("network_changes")
