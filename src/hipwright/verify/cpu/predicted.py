"""Predicts how long a launch of the unchecked build takes, from what the checked one counted."""

from __future__ import annotations

from collections.abc import Mapping
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
THREAD_SECONDS = 2e-8


def predicted_seconds(entry: Mapping[str, Any]) -> float:
    """CPU seconds of one launch. entry: its counts, grid and block."""
    threads = prod(entry["grid"]) * prod(entry["block"])
    return float(threads * THREAD_SECONDS + sum(entry[name] * cost for name, cost in COSTS.items()))
