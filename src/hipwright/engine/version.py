"""Which engine this is: what it failed at is worth another try when its source has changed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hipwright.records import content_key


@cache
def source_key() -> str:
    """A hash of the modules that capture and write, and of the device code that they emit."""
    package = Path(__file__).parents[1]
    folders = [package / "capture", package / "engine"]
    sources = [path for folder in folders for kind in ("*.py", "*.h") for path in sorted(folder.rglob(kind))]
    return content_key("engine", *(path.read_text(encoding="utf-8") for path in sources))
