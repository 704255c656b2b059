"""Judges for learning: local, on several GPUs, or on another machine."""
