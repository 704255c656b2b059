"""The miniature: a kernel writer trained from random weights on the engine's own programs (docs/mini.md)."""
