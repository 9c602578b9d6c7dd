"""Results that archives of others are still to get, and how far each archive has got."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "archive_results",
        sa.Column("id", KEY, nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_archive_results"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "archive_cursors",
        sa.Column("archive", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("archive", name="pk_archive_cursors"),
    )


def downgrade() -> None:
    op.drop_table("archive_cursors")
    op.drop_table("archive_results")
