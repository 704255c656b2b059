"""Budgets and comparisons of large tensors in blocks that stay in a processor's cache."""
