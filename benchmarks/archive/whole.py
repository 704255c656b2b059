"""What reads a whole archive, in a process of its own: its seconds, and the most memory that it has had.

    python -m benchmarks.archive.whole check|calibrate

The archive is $HIPWRIGHT_HOME. Prints a line of JSON: seconds, of the processor too, and MB of memory, before and at
most.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from hipwright.api.audit import screener_calibration
from hipwright.api.runs.archive import check_place
from hipwright.archive import Place

WORKS: dict[str, Callable[[], object]] = {"check": lambda: check_place(None), "calibrate": screener_calibration}


def measured(place: Place, work: str) -> str:
    """A line about a work on an archive, done by another process."""
    environment = {**os.environ, "HIPWRIGHT_HOME": str(place)}
    command = [sys.executable, "-m", "benchmarks.archive.whole", work]
    found = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    return "{seconds:.1f} s (processor {processor:.1f}); {most:.0f} MB at most, {before:.0f} before".format(**found)


def _megabytes() -> float:
    """The most memory of this process so far; of getrusage it would be that of the process that began it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def main(work: str) -> None:
    """Does one work, and prints what it took."""
    before, begun, begun_processor = _megabytes(), time.perf_counter(), time.process_time()
    WORKS[work]()
    took, processor = time.perf_counter() - begun, time.process_time() - begun_processor
    print(json.dumps({"seconds": took, "processor": processor, "most": _megabytes(), "before": before}))


if __name__ == "__main__":
    main(sys.argv[1])
