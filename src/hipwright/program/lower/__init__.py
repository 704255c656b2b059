"""Lowering of a checked plan to closures over tensors. Imports torch."""
