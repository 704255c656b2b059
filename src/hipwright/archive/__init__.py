"""Everything that happened: append-only events, programs by content, and what can be asked of them (docs/search.md)."""

from hipwright.archive.export import export
from hipwright.archive.log import Called, Confirmed, Evaluated, Finished, Proposed, RunLog, as_stored, read_log
from hipwright.archive.query import Comparison, RunDetail, RunSummary, Trial, compare, list_runs, show
from hipwright.archive.store import Archive, Entry, new_id

__all__ = [
    "Archive",
    "Called",
    "Comparison",
    "Confirmed",
    "Entry",
    "Evaluated",
    "Finished",
    "Proposed",
    "RunDetail",
    "RunLog",
    "RunSummary",
    "Trial",
    "as_stored",
    "compare",
    "export",
    "list_runs",
    "new_id",
    "read_log",
    "show",
]
