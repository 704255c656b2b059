"""Packs: many digests of one kind as one row, so that all are read from few places of a disk.

A digest is kept as a row of its own first. Once there are some, they are put together with the packs that are not full.
A later row counts instead of what a pack has of the same run or record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from hipwright.archive.damage import ROW_ERRORS
from hipwright.archive.database import Digest
from hipwright.archive.packing import packed, unpacked
from hipwright.archive.store import Archive
from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import content_key

LOOSE = 16
"""Digests with a row each that are put into a pack."""
FULL = 512
"""The entries of a full pack."""

T = TypeVar("T")


def entries_of(packs: Iterable[Digest], decoder: msgspec.json.Decoder[list[T]]) -> list[T]:
    """The entries of packs; one that is damaged has none, so that its digests are computed again."""
    found: list[T] = []
    for pack in packs:
        with suppress(*ROW_ERRORS):
            found += decoder.decode(unpacked(pack.data))
    return found


def not_full(packs: Iterable[Digest], decoder: msgspec.json.Decoder[list[T]]) -> list[Digest]:
    """The packs that take more entries, and the damaged ones, which are replaced."""
    return [pack for pack in packs if pack.seq < FULL or not entries_of([pack], decoder)]


def put_together(archive: Archive, kind: str, entries: Sequence[object], replaced: Sequence[Digest]) -> None:
    """Keeps entries as packs of this kind, in the place of the digests that have them so far, where that can be."""
    packs = []
    for at in range(0, len(entries), FULL):
        part = entries[at : at + FULL]
        text = packed(part)
        packs.append(Digest(kind, content_key(text), len(part), text))
    with suppress(BadInput, InfrastructureError):  # what cannot be packed stays as it is
        archive.database.digests.put_together(packs, replaced)
