"""Sums of usage say how much time interleaving saved; of jobs that have ended before, nobody knows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("usage_sums", sa.Column("saved_us", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    with op.batch_alter_table("usage_sums", table_kwargs={"sqlite_with_rowid": False}) as table:
        table.drop_column("saved_us")
