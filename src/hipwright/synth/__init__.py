"""New tasks: by mutation, composition and constraint, each self-checked (docs/synth.md)."""
