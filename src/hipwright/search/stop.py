"""Stopping rules that depend on the view alone; the loop handles the clock and Ctrl-C."""

from __future__ import annotations

from hipwright.records import Evaluation
from hipwright.search.view import SearchView

BARREN_LIMIT = 12
"""Consecutive proposals without a new program after which the space counts as exhausted."""

PATIENCE = "patience"
"""The run setting: stop after this many rounds without a new best. Absent: never."""


ROOFLINE = "roofline"
"""The run setting: stop when the best program reaches this share of its roofline, 0 to 1. Absent: never."""


def done(view: SearchView) -> str | None:
    """Returns why the search is over ("budget", "exhausted", "patience", "roofline"), or None to continue."""
    if view.spent >= view.budget:
        return "budget"
    if view.barren >= BARREN_LIMIT:
        return "exhausted"
    share = view.settings.get(ROOFLINE)
    if share is not None and view.best is not None and (reached(view.best.evaluation) or 0.0) >= float(share):
        return "roofline"
    patience = view.settings.get(PATIENCE)
    if patience is not None and view.best is not None and view.stale_rounds >= int(patience):
        return "patience"
    return None


def reached(evaluation: Evaluation | None) -> float | None:
    """The share of the roofline that a program reaches, on the target where it is lowest; None where none is known.

    Of the timing where one was made, else of the estimate: a bound in both, so that what is left is at most the rest
    (the stop rule of MuCUTLASS, arXiv:2603.29010).
    """
    shares = []
    for result in evaluation.targets.values() if evaluation is not None else ():
        if result.timing is not None:
            shares.append(result.timing.roofline_fraction)
        elif result.estimate is not None:
            shares.append(result.estimate.roofline_fraction)
    known = [share for share in shares if share is not None]
    return min(known) if known and len(known) == len(shares) else None
