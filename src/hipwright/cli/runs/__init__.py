"""Commands on the archive: runs listed, shown, compared and exported (queries.py), and faults (faults.py)."""
