"""How much the command prints beside its result: `--quiet`, `--verbose`, or neither. One value for the process."""

from __future__ import annotations

import sys
from enum import IntEnum


class Verbosity(IntEnum):
    """quiet: the result and errors; normal: stages and progress too; verbose: all evidence too."""

    quiet = 0
    normal = 1
    verbose = 2


_current = Verbosity.normal


def set_verbosity(value: Verbosity) -> None:
    """Sets it for the rest of the command."""
    global _current
    _current = value


def verbosity() -> Verbosity:
    """What the command line asked for."""
    return _current


def says_progress() -> bool:
    """Whether progress is said at all."""
    return _current > Verbosity.quiet


def draws_progress() -> bool:
    """Whether progress is drawn: on a terminal, unless --quiet."""
    return says_progress() and sys.stderr.isatty()
