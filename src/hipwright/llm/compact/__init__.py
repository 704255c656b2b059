"""The short form of programs (programs.py) and of references (reference.py), for models with a small context."""

from __future__ import annotations

from hipwright.llm.compact.programs import expand, shorten, shortened
from hipwright.llm.compact.reference import prompt

__all__ = ["expand", "prompt", "shorten", "shortened"]
