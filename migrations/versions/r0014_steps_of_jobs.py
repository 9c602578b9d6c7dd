"""What is known of the steps of jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

KEY = ("job", "attempt", "step")


def upgrade() -> None:
    op.create_table(
        "job_steps",
        *(sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False) for name in KEY),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint(*KEY, name="pk_job_steps"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("job_steps")
