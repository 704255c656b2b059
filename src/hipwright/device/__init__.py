"""Run a build: one launcher a target."""
