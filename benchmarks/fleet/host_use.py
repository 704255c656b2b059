"""What a run uses of its host: processor seconds of the whole machine, and how busy the GPUs are."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any, Self

EVERY_S = 2.0
_ASK = ("nvidia-smi", "--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits")


class HostUse:
    """Measures from its start to its end, as a context manager; `figures` after it.

    The processor's figures are of the whole machine, other users' work included. GPUs are asked every EVERY_S seconds
    by nvidia-smi; without it there are none.
    """

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._samples: dict[int, list[tuple[float, float]]] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._begun = self._seconds = 0.0
        self._before = self._used = (0.0, 0.0)

    def __enter__(self) -> Self:
        self._begun, self._before = time.monotonic(), processor_seconds()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._seconds = time.monotonic() - self._begun
        after = processor_seconds()
        self._used = after[0] - self._before[0], after[1] - self._before[1]
        self._ended.set()
        self._thread.join(2 * EVERY_S)

    def figures(self) -> dict[str, Any]:
        """seconds, cores of the host, mean busy cores, mean cores that waited for the disk, by GPU the mean share of
        time in which a kernel ran and the largest memory in MiB."""
        spent = max(self._seconds, 1e-9)
        return {
            "seconds": round(self._seconds, 1),
            "cores": os.cpu_count(),
            "busy_cores": round(self._used[0] / spent, 2),
            "disk_cores": round(self._used[1] / spent, 2),
            "gpu_busy": {gpu: round(fmean(one for one, _ in some) / 100, 3) for gpu, some in self._samples.items()},
            "gpu_memory_mib": {gpu: max(one for _, one in some) for gpu, some in self._samples.items()},
        }

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_S):
            with suppress(OSError, ValueError, subprocess.SubprocessError):
                done = subprocess.run(_ASK, capture_output=True, text=True, timeout=10, check=True)
                for line in done.stdout.splitlines():
                    gpu, busy, memory = (float(word) for word in line.split(","))
                    self._samples.setdefault(int(gpu), []).append((busy, memory))


def processor_seconds() -> tuple[float, float]:
    """(seconds of work, seconds of waits for a disk) of all processors since the machine started."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    user, nice, system, _, disk, irq, soft, _ = (int(word) / os.sysconf("SC_CLK_TCK") for word in words)
    return user + nice + system + irq + soft, disk
