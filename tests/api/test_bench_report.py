"""What a benchmark did not establish, in words."""

from __future__ import annotations

import pytest

from hipwright.api.bench.report import not_measured
from hipwright.evaluation.bench import BenchRow


@pytest.mark.parametrize(("device", "count"), [("gfx942 (simulated)", 1), ("AMD Instinct MI300X", 0)])
def test_times_of_software_are_no_gpus(device: str, count: int) -> None:
    row = BenchRow(key="k", task="t", candidate="engine", status="pass", timed_on="rocm", device=device)
    lines = not_measured(["rocm"], [row, row])
    assert sum("those of software" in line for line in lines) == count == len(lines)
