"""Faults planted in the engine's kernels: a run of one evaluation ends with a verified program all the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.commands.planted_faults import FAMILIES

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_fault_of_a_template_is_survived(family: str) -> None:
    command = [sys.executable, "-m", "benchmarks", "planted-faults", "--only", family, "--json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads(ran.stdout)
    assert found["survived"] == found["planted"] >= 2
    assert all(row["given_up"] for row in found["rows"])
