"""The journal holds whole steps, which concern no single job: its starts are what is searched for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

IS_START = sa.text("kind = 'start'")


def upgrade() -> None:
    # SQLite makes the table anew: its sequence numbers must go on
    with op.batch_alter_table("journal", table_kwargs={"sqlite_autoincrement": True}) as table:
        table.drop_index("ix_journal_job_seq")
        table.drop_index("ix_journal_at_us")
        table.drop_column("job")
        table.drop_column("host")
    op.create_index("ix_journal_start", "journal", ["seq"], sqlite_where=IS_START, postgresql_where=IS_START)


def downgrade() -> None:
    op.drop_index("ix_journal_start", "journal")
    with op.batch_alter_table("journal", table_kwargs={"sqlite_autoincrement": True}) as table:
        table.add_column(sa.Column("job", sa.BigInteger()))
        table.add_column(sa.Column("host", sa.Text()))
        table.create_index("ix_journal_job_seq", ["job", "seq"])
        table.create_index("ix_journal_at_us", ["at_us"])
