"""`python -m benchmarks host-cost`: microseconds of host time a call."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TASK = """import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.softmax(x * 2.0, -1), torch.cumsum(y, -1)
def get_inputs():
    return [torch.randn(16, 64), torch.randn(8, 32)]
"""


def run(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", "host-cost", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env={**os.environ})


def test_the_fast_path_is_faster(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text(TASK)
    done = run(path)
    us = r"([\d.]+) us"
    line = rf"two: (\d+) launches, {us} a call, {us} on the checked path; as a drop-in {us}, {us} by a graph\n"
    found = re.fullmatch(line, done.stdout)
    assert found, done.stdout + done.stderr
    assert int(found[1]) == 2
    assert 0 < float(found[2]) < float(found[3])
    assert float(found[4]) > 0 < float(found[5])


def test_a_task_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path / "none.py")
    assert done.returncode == 2 and done.stderr.startswith("error: cannot read the task") and done.stdout == ""
