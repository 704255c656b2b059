"""Rank correlations of the cycle model: the figures, and the command whole with a stand-in for the clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.common import json_rows
from benchmarks.simulated import rank_figures
from benchmarks.simulated.published import FOLDER, line, results, summary
from benchmarks.simulated.rank_programs import keep
from benchmarks.timing.sides import TimedSides

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 0.5, -1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(96, 130)]


def get_init_inputs() -> list[object]:
    return []
"""


def row(*programs: tuple[float, float]) -> dict[str, Any]:
    made = [{"name": str(n), "simulated_us": a, "us": b} for n, (a, b) in enumerate(programs)]
    return {"task": "toy.py", "device": "toy GPU", "programs": made}


def test_figures_of_a_task() -> None:
    right = row((1, 10), (2, 20), (3, 30), (4, 40), (5, 50))
    found = rank_figures.task_figures(right, "simulated_us")
    assert found == pytest.approx({"programs": 5, "spread": 5.0, "spearman": 1.0, "kendall": 1.0})
    wrong = row((5, 10), (4, 20), (3, 30), (2, 40), (1, 50))
    found = rank_figures.task_figures(wrong, "simulated_us")
    assert found is not None and (found["spearman"], found["kendall"]) == pytest.approx((-1.0, -1.0))
    assert rank_figures.task_figures(row((1, 10), (2, 20)), "simulated_us") is None
    alike = row(*((n, 10 + 0.01 * n) for n in range(6)))
    assert rank_figures.task_figures(alike, "simulated_us") is None
    assert rank_figures.task_figures(right, "static_us") is None


def test_pairs_within_the_noise_do_not_count() -> None:
    assert rank_figures.kendall([1, 2, 3], [10.0, 10.2, 20.0]) == 1.0
    assert rank_figures.kendall([2, 1, 3], [10.0, 10.2, 20.0]) == 1.0
    assert rank_figures.kendall([1, 1, 3], [10.0, 15.0, 20.0]) == pytest.approx(2 / 3)


def test_sums_over_tasks() -> None:
    rows = [row((1, 10), (2, 20), (3, 30), (4, 40), (5, 50)), row((1, 10), (2, 20), (3, 30), (5, 40), (4, 50))]
    found = rank_figures.summary(rows, "simulated_us")
    assert found is not None and found["tasks"] == 2 and found["mean"] == pytest.approx(0.95)
    assert 0.89 <= found["interval"][0] <= found["mean"] <= found["interval"][1] <= 1.001
    text = rank_figures.text([*rows, {"task": "bad.py", "failed": "no memory"}])
    assert "within a task 0.95" in text and "bad.py" in text and "no memory" in text and "toy GPU" in text


def test_published_results_have_sources() -> None:
    found = results()
    assert len(found) >= 10 and {one["target"] for one in found} == {"gfx942", "gfx950"}
    for one in found:
        assert (FOLDER / f"{one['task']}.py").is_file() and one["url"].startswith("https://") and one["quoted"]
        assert one["us"] > 0 and 0 < one["share"] <= 1
    assert len(list(FOLDER.glob("*.py"))) == len({one["task"] for one in found})
    made = [{**one, "published_us": one["us"], "estimate_us": 2 * one["us"]} for one in found]
    assert "ESTIMATE (SIMULATED)" in line(made[0]) and "x2.00" in line(made[0])
    assert summary(made).startswith(f"{len(made)} results: rank correlation 1.00") and "2.00 times" in summary(made)


def test_the_command_with_a_stand_in_for_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task, counted, out = tmp_path / "toy.py", tmp_path / "counted.jsonl.xz", tmp_path / "times.jsonl"
    task.write_text(TASK)
    assert main(["ranks", "--count", str(counted), str(task), "--variants", "6"]) == 0
    (first,) = json_rows(counted)
    assert len(first["programs"]) == 7 and all(one["simulated_us"] > 0 for one in first["programs"])
    assert main(["ranks", "--count", str(counted), str(task)]) == 0  # known already
    assert len(json_rows(counted)) == 1
    order = {one["name"]: float(10 + n) for n, one in enumerate(first["programs"])}
    monkeypatch.setattr(TimedSides, "times", lambda self, names, rounds, base: {n: (order[n], 1.0) for n in names})
    assert first["programs"].pop(0)["name"] == "default"  # as where the simulator cannot run it
    first["programs"][2]["text"] = first["programs"][2]["text"].replace("threadIdx.x", "threadIdx.nowhere")
    for n, one in enumerate(first["programs"]):
        one["simulated_us"] = 1.0 + n
    counted.unlink()
    keep(counted, first)
    assert main(["ranks", "--time", str(counted), "--target", "cpu", "--out", str(out)]) == 0
    (found,) = (json.loads(text) for text in out.read_text().splitlines())
    assert len(found["programs"]) == 5 and list(found["left_out"]) == [first["programs"][2]["name"]]
    capsys.readouterr()
    assert main(["ranks", "--report", str(out)]) == 0
    assert "simulated: rank correlation within a task 1.00" in capsys.readouterr().out


def test_wrong_inputs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["ranks", "--report", str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err
