"""Which engine this is: what it failed at is worth another try when its source has changed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hipwright.records import content_key
from hipwright.toolchain import device_headers


@cache
def source_key() -> str:
    """A hash of the modules that capture and write, and of the device headers that programs include."""
    package = Path(__file__).parents[1]
    folders = [package / "capture", package / "engine"]
    sources = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    texts = (path.read_text(encoding="utf-8") for path in sources)
    return content_key("engine", *texts, device_headers.device_headers_id())
