"""One GPU: what is warm there for all tasks, one task on it, and who may use it when."""
