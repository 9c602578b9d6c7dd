"""What became of logs, and the logs themselves where the database keeps them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

KEY = ("job", "attempt", "rank", "stream")


def _key() -> tuple[sa.Column[int] | sa.Column[str], ...]:
    numbers = (sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False) for name in KEY[:3])
    return (*numbers, sa.Column("stream", sa.Text(), nullable=False))


def upgrade() -> None:
    op.create_table(
        "logs",
        *_key(),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint(*KEY, name="pk_logs"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "log_parts",
        *_key(),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint(*KEY, "number", name="pk_log_parts"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("log_parts")
    op.drop_table("logs")
