"""Run by Alembic. The URL comes from rm itself, or from `-x url=…` on Alembic's command line."""

from __future__ import annotations

from alembic import context

from rm.adapters.migrate import VERSION_TABLE
from rm.adapters.schema import metadata
from rm.adapters.store_sql import migrating
from rm.errors import UsageError


def _url() -> str:
    url = context.config.attributes.get("url") or context.get_x_argument(as_dictionary=True).get("url")
    if not url:
        raise UsageError(
            "No database was named.", "Say which: alembic -c migrations/alembic.ini -x url=URL COMMAND."
        )
    return str(url)


if context.is_offline_mode():
    context.configure(url=_url(), target_metadata=metadata, version_table=VERSION_TABLE, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    with migrating(_url()) as connection:
        context.configure(
            connection=connection,
            target_metadata=metadata,
            version_table=VERSION_TABLE,
            render_as_batch=connection.dialect.name == "sqlite",
        )
        context.run_migrations()
