"""Resource limits of a contained process."""

from __future__ import annotations

from hipwright.records import Record


class Limits(Record, frozen=True, kw_only=True):
    """Ceilings for one process. Seconds and MiB.

    wall_s ends a tool; a session has a time limit per call instead. memory_mb bounds private writable memory
    (RLIMIT_DATA: torch maps far more address space than it uses, so RLIMIT_AS would measure nothing). file_mb bounds
    each file a tool writes; 0 means `TOOL_FILE_MB`. Sessions write no files.
    """

    wall_s: float = 60.0
    cpu_s: float = 60.0
    memory_mb: int = 8192
    file_mb: int = 0


TOOL_FILE_MB = 512
