"""Which engine this is: what it failed at is worth another try when its source has changed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hipwright.records import content_key


@cache
def source_key() -> str:
    """Names the text of the modules that capture and write."""
    package = Path(__file__).parents[1]
    modules = (path for folder in ("capture", "engine") for path in sorted((package / folder).rglob("*.py")))
    return content_key("engine", *(path.read_text(encoding="utf-8") for path in modules))
