"""Predicts how long calls of the unchecked build take, from the counts of the calls so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

# CPU seconds of each event that the checked run counts, on a laptop core; constants, so that predictions do not vary
COSTS = {
    "read_bytes": 1e-9,
    "write_bytes": 1e-9,
    "lds_bytes_moved": 1e-9,
    "barriers": 1e-5,
    "wave_ops": 5e-6,
    "atomics": 5e-8,
}
MOVED = ("read_bytes", "write_bytes", "lds_bytes_moved")
THREAD_SECONDS = 2e-8


def predicted_seconds(entry: Mapping[str, Any]) -> float:
    """CPU seconds of one launch. entry: its counts, grid and block."""
    threads = prod(entry["grid"]) * prod(entry["block"])
    return float(threads * THREAD_SECONDS + sum(entry[name] * cost for name, cost in COSTS.items()))


OPERATION_SECONDS = 5e-10
"""Of a product's or a convolution's operation: such work grows faster than the elements do."""

SLACK = 4.0
"""How much longer than measured calls suggest a call may take."""


@dataclass
class CallSeconds:
    """CPU seconds of one program's calls, by what the smallest and the largest call so far took.

    A small call takes more for each element: most threads of its blocks are idle. The counts decide, so that a busy
    machine skips nothing; they are far too high for some programs, so that `SLACK` times the measured time is enough.
    """

    _calls: dict[int, tuple[float, float]] = field(default_factory=dict)  # elements: seconds by counts, and measured
    _moving: float = 0.0  # seconds an element of moving bytes, which the checked build alone counts

    def note(self, elements: int, stats: Sequence[Mapping[str, Any]]) -> None:
        """Adds a call's counts and its time."""
        moving = sum(entry[name] * COSTS[name] for entry in stats for name in MOVED)
        self._moving = max(self._moving, moving / max(elements, 1))
        counted, measured = sum(map(predicted_seconds, stats)) - moving, sum(entry["seconds"] for entry in stats)
        before = self._calls.get(elements, (counted, measured))
        self._calls[elements] = min(before[0], counted), min(before[1], measured)

    def of(self, elements: int, operations: float = 0.0) -> float:
        """The seconds of a call. operations: of its products and convolutions."""
        if not self._calls:
            return 0.0
        counted = self._extended(0, elements) + elements * self._moving
        return max(min(counted, SLACK * self._extended(1, elements)), operations * OPERATION_SECONDS)

    def _extended(self, which: int, elements: int) -> float:
        """The line through the smallest and the largest call; through 0 and the largest where they are alike."""
        least, most = min(self._calls), max(self._calls)
        end = self._calls[most][which]
        rise = end - self._calls[least][which]
        slope = rise / (most - least) if most >= 2 * least and rise > 0 else end / max(most, 1)
        return max(end + slope * (elements - most), 0.0)
