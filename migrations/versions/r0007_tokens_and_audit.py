"""Tokens of the HTTPS door, and the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
    )
    op.create_table(
        "acts",
        sa.Column("seq", KEY, nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_acts"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_acts_at_us", "acts", ["at_us"])


def downgrade() -> None:
    op.drop_table("acts")
    op.drop_table("tokens")
