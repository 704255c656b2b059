"""Where hipwright keeps things, read from the environment once, at the edge."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The archive folder: $HIPWRIGHT_HOME, else ./.hipwright (created on first use by the archive)."""
    return Path(os.environ.get("HIPWRIGHT_HOME") or ".hipwright").absolute()


def cache_dir() -> Path:
    """The build cache all archives share: $HIPWRIGHT_CACHE, else hipwright/ in $XDG_CACHE_HOME or ~/.cache."""
    if explicit := os.environ.get("HIPWRIGHT_CACHE"):
        return Path(explicit).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "hipwright"
