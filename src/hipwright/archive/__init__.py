"""The archive of runs: append-only events, programs by content key, and queries on them (docs/search.md)."""

from hipwright.archive.copying import ArchiveCopy, copy
from hipwright.archive.damage import DamagedRow
from hipwright.archive.digests import keep_digests
from hipwright.archive.export import export
from hipwright.archive.faults import EngineFault, FaultCheck, Reproducer
from hipwright.archive.log import (
    Called,
    Confirmed,
    Counted,
    Evaluated,
    Finished,
    Proposed,
    RunLog,
    as_stored,
    read_log,
)
from hipwright.archive.outline import Outline, continue_outline
from hipwright.archive.place import NoArchive, Place, shown
from hipwright.archive.query import RunComparison, RunDetail, TrialDetail, compare, list_runs, show, trial_of
from hipwright.archive.readable import check, readable_log
from hipwright.archive.store import Archive, Lease, LogEntry, new_id
from hipwright.archive.summary import RunSummary, costs_of, summary_of

__all__ = [
    "Archive",
    "ArchiveCopy",
    "Called",
    "Confirmed",
    "Counted",
    "DamagedRow",
    "EngineFault",
    "Evaluated",
    "FaultCheck",
    "Finished",
    "Lease",
    "LogEntry",
    "NoArchive",
    "Outline",
    "Place",
    "Proposed",
    "Reproducer",
    "RunComparison",
    "RunDetail",
    "RunLog",
    "RunSummary",
    "TrialDetail",
    "as_stored",
    "check",
    "compare",
    "continue_outline",
    "copy",
    "costs_of",
    "export",
    "keep_digests",
    "list_runs",
    "new_id",
    "read_log",
    "readable_log",
    "show",
    "shown",
    "summary_of",
    "trial_of",
]
