"""Many rows as one text, compressed: rows that came one by one lie far apart on a disk, those of a text together."""

from __future__ import annotations

import base64
import zlib

import msgspec


def packed(rows: object) -> str:
    """The text of rows, of whatever msgspec encodes."""
    return base64.b64encode(zlib.compress(msgspec.json.encode(rows))).decode()


def unpacked(text: str) -> bytes:
    """The JSON of rows. Raises ValueError for a text that is damaged."""
    try:
        return zlib.decompress(base64.b64decode(text, validate=True))
    except zlib.error as error:
        raise ValueError(f"it cannot be unpacked: {error}") from error
