"""The folders and limits of hipwright, from the environment."""

from __future__ import annotations

import os
from pathlib import Path

from hipwright.errors import BadInput


def home() -> Path:
    """The archive folder: $HIPWRIGHT_HOME, else ./.hipwright (created on first use by the archive)."""
    return Path(os.environ.get("HIPWRIGHT_HOME") or ".hipwright").absolute()


def cache_dir() -> Path:
    """The build cache all archives share: $HIPWRIGHT_CACHE, else hipwright/ in $XDG_CACHE_HOME or ~/.cache."""
    if explicit := os.environ.get("HIPWRIGHT_CACHE"):
        return Path(explicit).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "hipwright"


def outage_seconds() -> float:
    """How long a model's provider may fail every call before a run pauses: $HIPWRIGHT_OUTAGE_SECONDS, else 600."""
    text = os.environ.get("HIPWRIGHT_OUTAGE_SECONDS", "")
    try:
        seconds = float(text or 600)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise BadInput(f"HIPWRIGHT_OUTAGE_SECONDS={text} is not a number of seconds")
    return seconds
