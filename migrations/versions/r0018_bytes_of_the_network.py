"""Sums of usage say how much jobs received and sent; of those that have ended before, nobody knows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

SUMS = ("received_bytes", "sent_bytes")


def upgrade() -> None:
    for name in SUMS:
        op.add_column("usage_sums", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    with op.batch_alter_table("usage_sums", table_kwargs={"sqlite_with_rowid": False}) as table:
        for name in SUMS:
            table.drop_column(name)
