"""Run by Alembic. The URL comes from rm, from `-x url=…`, or from rm's own configuration."""

from __future__ import annotations

from alembic import context

from rm.adapters.store.migrate import VERSION_TABLE
from rm.adapters.store.opening import migrating
from rm.adapters.store.schema import metadata
from rm.config import load_config


def _url() -> str:
    url = context.config.attributes.get("url") or context.get_x_argument(as_dictionary=True).get("url")
    return str(url or load_config().daemon.database)


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
