"""The archive of this folder: its runs (queries.py), and the engine's faults that they kept (faults.py)."""
