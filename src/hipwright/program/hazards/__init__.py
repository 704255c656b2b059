"""Hazards of a program, found in its text alone."""
