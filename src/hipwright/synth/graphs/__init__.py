"""Canonical forms and hashes of captured graphs (docs/hygiene.md)."""
