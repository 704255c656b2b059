"""Honest programs: modules by library operators alone, whose sums are added in other orders than torch's."""
