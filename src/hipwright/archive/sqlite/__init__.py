"""The archive as one SQLite file in a folder: the embedded default."""
