"""Figures of the service in Prometheus' text format (version 0.0.4), without a library."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

BUCKETS_S = (0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0)
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class ServiceMetrics:
    """Counts requests. Used in one event loop. gauges: functions that are read when the page is written."""

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        self._gauges = dict(gauges)
        self.requests: Counter[tuple[str, int]] = Counter()
        self.refused: Counter[str] = Counter()
        self.judged: Counter[str] = Counter()
        self.replayed = 0
        self._seconds = 0.0
        self._buckets = [0] * len(BUCKETS_S)
        self._count = 0

    def spent(self, seconds: float) -> None:
        """Notes the seconds of one judged request, with its wait."""
        self._seconds += seconds
        self._count += 1
        for number, bound in enumerate(BUCKETS_S):
            self._buckets[number] += seconds <= bound

    @property
    def mean_s(self) -> float:
        """Mean seconds of a judged request; 1 before the first."""
        return self._seconds / self._count if self._count else 1.0

    def page(self) -> bytes:
        """The text."""
        lines = _family("hipwright_requests_total", "counter", "Answered requests by path and status.")
        lines += [
            f'hipwright_requests_total{{path="{path}",code="{code}"}} {count}'
            for (path, code), count in sorted(self.requests.items())
        ]
        lines += _family("hipwright_refused_total", "counter", "Requests that were not judged, by reason.")
        lines += [f'hipwright_refused_total{{reason="{why}"}} {count}' for why, count in sorted(self.refused.items())]
        lines += _family("hipwright_verdicts_total", "counter", "Judged programs by status.")
        lines += [f'hipwright_verdicts_total{{status="{one}"}} {count}' for one, count in sorted(self.judged.items())]
        lines += _family("hipwright_replayed_total", "counter", "Replies given again by idempotency key.")
        lines.append(f"hipwright_replayed_total {self.replayed}")
        lines += _family("hipwright_judge_seconds", "histogram", "Seconds from a request's arrival to its reply.")
        for bound, count in zip(BUCKETS_S, self._buckets, strict=True):
            lines.append(f'hipwright_judge_seconds_bucket{{le="{bound}"}} {count}')
        lines.append(f'hipwright_judge_seconds_bucket{{le="+Inf"}} {self._count}')
        lines += [f"hipwright_judge_seconds_sum {self._seconds:.6f}", f"hipwright_judge_seconds_count {self._count}"]
        for name, (about, read) in self._gauges.items():
            lines += [*_family(name, "gauge", about), f"{name} {read():g}"]
        return ("\n".join(lines) + "\n").encode()


def resident_bytes() -> float:
    """Memory of this process."""
    try:
        return float(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0.0


def _family(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
