"""What people take away: a program as a package of its own (docs/ship.md)."""
