"""Modules that are drawn from a number, so that nobody chooses them."""
