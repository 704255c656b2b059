"""ATen operators as functions of an index: one table per family of operators."""
