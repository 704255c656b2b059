"""When a search is over. Each rule reads the view only; the clock and Ctrl-C are the loop's."""

from __future__ import annotations

from hipwright.search.view import SearchView

BARREN_LIMIT = 12
"""Proposals in a row without a new program, each after several tries, before the space counts as exhausted."""

PATIENCE = "patience"
"""The run setting: stop after so many rounds without a new best. Absent: never."""


def done(view: SearchView) -> str | None:
    """Why the search is over ("budget", "exhausted", "patience"), or None to go on."""
    if view.evaluations >= view.budget:
        return "budget"
    if view.barren >= BARREN_LIMIT:
        return "exhausted"
    patience = view.settings.get(PATIENCE)
    if patience is not None and view.best is not None and view.stale_rounds >= int(patience):
        return "patience"
    return None
