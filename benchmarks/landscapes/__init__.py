"""Measured landscapes: a closed part of the engine's space of a task, timed whole, on which searches are replayed."""
