"""Products of verified programs: packages, gradients, dispatch over shapes (docs/ship.md)."""
