"""What an update took: phases, and a file for each process that a resumed training goes on with."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hipwright.train.step_times import StepTimes


def test_phases_are_summed_over_an_update_and_begin_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    times = StepTimes(tmp_path / "run")
    for _ in range(2):
        with times.span("wait"):
            time.sleep(0.02)
    times.step(1, tokens=70)
    times.step(2)
    StepTimes(tmp_path / "run").step(3)
    first, second, third = map(json.loads, (tmp_path / "run/times-3.jsonl").read_text().splitlines())
    assert first["step"] == 1 and first["tokens"] == 70
    assert 0.04 <= first["seconds_wait"] <= first["seconds"]
    assert "seconds_wait" not in second and "tokens" not in second and third["step"] == 3
