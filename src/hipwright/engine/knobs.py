"""What search may vary: numbers the compiler gets as -D, and structural choices that change the text."""

from __future__ import annotations

from typing import Literal

from hipwright.records import Record

Value = int | str | bool


class Choice(Record, frozen=True, kw_only=True):
    """One thing to choose. kind "knob": a -D number; "structure": another text."""

    options: tuple[Value, ...]
    default: Value
    kind: Literal["knob", "structure"] = "structure"


KNOBS: dict[str, tuple[int, tuple[int, ...], str]] = {
    "BLOCK": (256, (64, 128, 256, 512, 1024), "threads of a block"),
    "VEC": (4, (1, 2, 4, 8), "neighbouring elements a thread handles"),
    "ROW_BLOCK": (256, (64, 128, 256, 512, 1024), "threads that share a row"),
    "PLANES": (4, (1, 2, 4, 8), "planes that a block of a stencil covers"),
    "ROW_VEC": (4, (1, 2, 4, 8), "neighbouring elements of a row a thread reads at once"),
    "LANES": (32, (4, 8, 16, 32), "lanes that share a short row"),
    "ROW_ITEMS": (4, (1, 2, 4, 8, 16, 32), "vectors of a row a thread loads at once"),
    "COLUMN_ROWS": (8, (1, 2, 4, 8, 16, 32), "rows for which a thread keeps the values of its columns"),
    "ROWS_AT_ONCE": (4, (1, 2, 4, 8), "rows whose vectors a thread loads at once"),
    "COLUMNS": (32, (8, 16, 32, 64), "vectors of neighbouring rows side by side in a block"),
    "COLUMN_VEC": (4, (1, 2, 4, 8), "neighbouring rows a thread handles"),
    "TRANSPOSE_TILE": (32, (32, 64), "side of a transposed tile"),
    "COOP_BLOCKS": (16, (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), "blocks that share a long row, at most"),
    "LDS_TILES": (1, (1, 2, 3), "tiles of a row that each cooperative block keeps in LDS"),
    "VECS": (4, (1, 2, 4, 8), "vectors a thread handles"),
    "SCAN_BLOCK": (256, (64, 128, 256, 512, 1024), "threads of a scan's block"),
    "SCAN_VEC": (4, (1, 2, 4, 8), "neighbouring elements a thread scans"),
    "SCAN_ITEMS": (4, (1, 2, 4, 8), "vectors a thread loads at once in a scan"),
}


CDNA4 = "cdna4"
"""The choice, true or false, whether products have the options that gfx950 alone has an instruction for: 32 of k at
once, and loads from global memory to LDS. True for runs whose GPUs are all gfx950; its programs run everywhere.
"""
FLOAT8_UNITS = "float8_units"
"""The choice, in no space: a run's architectures, joined by commas, if all of them multiply 8-bit floats by MFMA."""
GIVEN_UP = "given_up"
"""The choice that is in no space: the nodes that stay library calls because a program of theirs was refused.

Its value is their names joined by commas, or one of the next three, of which the last may stand among names.
"""
EVERY_OPERATOR = "every operator"
PLAIN_PLAN = "a plan of library calls"
"""A plan that is written without the lowering (plan/library.py)."""
OTHER_SIZES = "other sizes"
"""Sizes that are not those of the capture: the program's guards refuse them. A module's own branch on a size of 1
leaves no trace in a capture at larger sizes.
"""
SPLIT = "split"
"""The choice, true or false, whether float32 products and convolutions are written in half parts by default. Its rule
is measured on NVIDIA GPUs alone, and a processor computes such a program slowly, so runs for them alone say true.
"""
SPLIT_LDS = "split_lds"
"""The choice, in no space: bytes of LDS that a block may have on all GPUs of a run for which SPLIT is true."""
DEFAULT = "default:"
"""Before the name of a template's knob: the choice of another default for it, which is in no space either."""
