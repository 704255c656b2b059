"""Alembic's folder: env.py runs the revisions of versions/ on the connection that it is given."""
