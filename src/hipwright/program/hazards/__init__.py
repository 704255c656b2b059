"""Hazards of a program on AMD GPUs, found in its text."""
