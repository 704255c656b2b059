"""Stopping rules that depend on the view alone; the loop handles the clock and Ctrl-C."""

from __future__ import annotations

from hipwright.search.view import SearchView

BARREN_LIMIT = 12
"""Consecutive proposals without a new program after which the space counts as exhausted."""

PATIENCE = "patience"
"""The run setting: stop after this many rounds without a new best. Absent: never."""


def done(view: SearchView) -> str | None:
    """Returns why the search is over ("budget", "exhausted", "patience"), or None to continue."""
    if view.spent >= view.budget:
        return "budget"
    if view.barren >= BARREN_LIMIT:
        return "exhausted"
    patience = view.settings.get(PATIENCE)
    if patience is not None and view.best is not None and view.stale_rounds >= int(patience):
        return "patience"
    return None
