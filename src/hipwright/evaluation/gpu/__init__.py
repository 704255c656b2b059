"""One GPU: what all tasks share there, one task on it, and the lock and queue of its timings."""
