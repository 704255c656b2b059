"""How a scan kernel is laid out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ScanLayout:
    """The layout of one scan. Sizes are names of knobs.

    mapping: "rows", "chunks", "columns" or "tiles" (kernel.py). share: vectors of columns side by side in a tile.
    """

    mapping: str
    threads: str
    vec: str
    items: str
    share: str = ""
