"""What people take away of verified programs: packages, gradients, dispatch over shapes (docs/ship.md)."""
