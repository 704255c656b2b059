"""The miniature: a kernel writer trained from random weights on the engine's own programs (docs/mini.md)."""

from hipwright.train.mini.stages import run

__all__ = ["run"]
