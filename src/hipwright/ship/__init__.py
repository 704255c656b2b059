"""Packages of one program for users of PyTorch (docs/ship.md)."""
