"""Elements of job arrays: they have the specification of their array."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("spec_id", sa.BigInteger()))
    op.add_column("jobs", sa.Column("array_task", sa.BigInteger()))
    op.execute("UPDATE jobs SET spec_id = id")
    with op.batch_alter_table("jobs") as table:
        table.drop_constraint("fk_jobs_id", type_="foreignkey")
        table.alter_column("spec_id", existing_type=sa.BigInteger(), nullable=False)
        table.create_foreign_key("fk_jobs_spec_id", "job_specs", ["spec_id"], ["id"])
    op.create_index("ix_jobs_spec_id_array_task", "jobs", ["spec_id", "array_task"])


def downgrade() -> None:
    """Elements become jobs of their own."""
    op.execute(
        "INSERT INTO job_specs (id, body) SELECT jobs.id, job_specs.body FROM jobs"
        " JOIN job_specs ON job_specs.id = jobs.spec_id WHERE jobs.spec_id <> jobs.id"
    )
    op.drop_index("ix_jobs_spec_id_array_task", "jobs")
    with op.batch_alter_table("jobs") as table:
        table.drop_constraint("fk_jobs_spec_id", type_="foreignkey")
        table.drop_column("spec_id")
        table.drop_column("array_task")
        table.create_foreign_key("fk_jobs_id", "job_specs", ["id"], ["id"])
