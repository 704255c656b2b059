"""What is computed from a run's events and kept, so that a list of many runs, or a search among them, reads no events.

So are the features of programs and tasks. A digest is of the run's events up to one, and is computed again where the
run has more. It is kept when a run ends, or when it is first asked for; an archive that cannot be written is read as
before. With a run's digest its fastest verified programs are kept, in order of their speed (archive/similar.py).
Rows that cannot be read are named when a digest is computed, and that one is not kept; `hipwright archive check`
always reads every row.

Many digests are kept as one row, a pack (archive/digests/packs.py): rows that came one by one lie far apart.
"""

from hipwright.archive.digests.records import kernel_features_of, task_text, task_texts
from hipwright.archive.digests.runs import (
    MOST_VERIFIED,
    ReadRun,
    RunDigest,
    computed,
    digests_of,
    group_of,
    keep_digests,
    listed,
    pack_runs,
    unkept_runs,
)

__all__ = [
    "MOST_VERIFIED",
    "ReadRun",
    "RunDigest",
    "computed",
    "digests_of",
    "group_of",
    "keep_digests",
    "kernel_features_of",
    "listed",
    "pack_runs",
    "task_text",
    "task_texts",
    "unkept_runs",
]
