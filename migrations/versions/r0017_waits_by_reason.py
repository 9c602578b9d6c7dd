"""Sums of usage say for what jobs waited; of those that have ended before, nobody knows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

SUMS = (
    "waited_resources_us", "waited_priority_us", "waited_dependency_us", "waited_held_us",
    "waited_begin_us", "waited_limits_us", "waited_licenses_us", "waited_network_us", "waited_other_us",
)  # fmt: skip


def upgrade() -> None:
    for name in SUMS:
        op.add_column("usage_sums", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    with op.batch_alter_table("usage_sums", table_kwargs={"sqlite_with_rowid": False}) as table:
        for name in SUMS:
            table.drop_column(name)
