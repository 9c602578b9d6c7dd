"""The cluster's id: hosts obey no other cluster's daemon."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("cluster", sa.Column("cluster_id", sa.Text(), nullable=False, server_default=""))
    op.execute(sa.text("UPDATE cluster SET cluster_id = :id").bindparams(id=secrets.token_hex(4)))


def downgrade() -> None:
    with op.batch_alter_table("cluster") as table:
        table.drop_column("cluster_id")
