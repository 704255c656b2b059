"""The archive in a PostgreSQL database, for many machines: SQLAlchemy Core and Alembic, `hipwright[postgres]`."""
