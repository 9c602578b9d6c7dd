"""The name or address by which users' machines reach the one whose daemon leads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("cluster", sa.Column("leader_machine", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    with op.batch_alter_table("cluster") as table:
        table.drop_column("leader_machine")
