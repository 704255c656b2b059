"""Runs the revisions on the caller's connection, in the caller's transaction."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"], version_table_schema=context.config.attributes["schema"]
)
with context.begin_transaction():
    context.run_migrations()
