"""Archives as a whole: copied, checked, brought to the present schema. A place is a folder or a URL."""

from __future__ import annotations

from pathlib import Path

from hipwright import archive as store
from hipwright import config
from hipwright.archive import Archive, ArchiveCopy, DamagedRow, shown
from hipwright.archive.sqlite.schema import SCHEMA_VERSION
from hipwright.errors import BadInput
from hipwright.events import Listener, silent


def copy_archive(source: str, target: str, listener: Listener = silent) -> ArchiveCopy:
    """Copies one archive into another, which is made where it is missing. Raises BadInput for one and the same."""
    places = [config.place_of(text) for text in (source, target)]
    if len({shown(place) for place in places}) == 1:
        raise BadInput(f"{shown(places[0])} cannot be copied into itself")
    with Archive(places[0], create=False) as old, Archive(places[1]) as new:
        return store.copy(old, new, listener)


def check_place(place: str | None) -> tuple[str, list[DamagedRow]]:
    """(the archive's name, its rows that cannot be read or are missing); without a place, that of this folder."""
    found = config.archive() if place is None else config.place_of(place)
    with Archive(found, create=False) as archive:
        return archive.place, store.check(archive)


def migrate_archive(place: str | None) -> tuple[str, str, str]:
    """(the archive's name, its schema's version before, and after); without a place, that of this folder."""
    found = config.archive() if place is None else config.place_of(place)
    if isinstance(found, Path):
        with Archive(found, create=False) as archive:  # there is one version of the file, and opening checks it
            return archive.place, str(SCHEMA_VERSION), str(SCHEMA_VERSION)
    from hipwright.archive.postgres.opening import migrate

    return (shown(found), *migrate(found))
