"""Where users reach the daemon that leads: one that waits for its turn names these addresses."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

COLUMNS = ("leader_https_url", "leader_page_url")


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column("cluster", sa.Column(name, sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    with op.batch_alter_table("cluster") as table:
        for name in COLUMNS:
            table.drop_column(name)
