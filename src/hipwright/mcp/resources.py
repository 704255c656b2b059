"""Resources: the report of each archived run, `hipwright://runs/RUN`, one HTML page; the newest run first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipwright.errors import BadInput

if TYPE_CHECKING:
    from hipwright.archive import Place

PREFIX = "hipwright://runs/"
MOST = 100
"""Runs that are listed; any other one can be read by its name."""


def listed(place: Place) -> list[tuple[str, str]]:
    """(address, one line) of the archive's runs; none where there is no archive yet."""
    from hipwright.archive import Archive, NoArchive, list_runs

    try:
        with Archive(place, create=False) as archive:
            runs = list_runs(archive)[:MOST]
    except NoArchive:
        return []
    return [(f"{PREFIX}{run.id}", f"{run.task}: {run.status}, {run.evaluations} evaluations") for run in runs]


def report(place: Place, address: str) -> str:
    """The page of a run. Raises BadInput for an address that names none."""
    from msgspec.structs import replace

    from hipwright.api.models import models_spent
    from hipwright.api.runs.results import result_of
    from hipwright.archive import Archive, show

    if not address.startswith(PREFIX):
        raise BadInput(f"no resource {address!r}", hint=f"addresses begin with {PREFIX}")
    with Archive(place, create=False) as archive:
        detail = show(archive, address.removeprefix(PREFIX))
        return replace(result_of(archive, detail, ""), models=models_spent(archive, detail.run)).report()
