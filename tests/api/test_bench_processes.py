"""Rows judged by several processes: real ones, also where one is killed, and the rows of one process."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hipwright.api.bench.driver import WorkerPlan
from hipwright.api.bench.plan import BenchRequest
from hipwright.api.bench.run import run_benchmark
from hipwright.device.gpu_info import GpuInfo

TASK = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * {factor}


def get_inputs():
    return [torch.rand(4, 33)]
"""
NAMES = ("one", "two", "three")


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suite"
    folder.mkdir()
    for number, name in enumerate(NAMES, 2):
        (folder / f"{name}.py").write_text(TASK.format(factor=number))
    return folder


def children() -> list[int]:
    """The worker processes of this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            command = (path.parent / "cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        if parent == os.getpid() and b"worker_process" in command:
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize(
    ("gpus", "workers", "processes", "shares", "alone"),
    [
        (1, 8, None, [2, 2, 2, 2], False),
        (1, 3, None, [2, 1], False),
        (1, 2, None, [2], True),
        (1, 8, 1, [8], True),
        (2, 2, 1, [2], False),
        (0, 4, 3, [2, 1, 1], False),
        (0, 2, 9, [1, 1], False),
        (0, 9, None, [2, 2, 1], False),
    ],
)
def test_how_workers_share_processes(
    gpus: int, workers: int, processes: int | None, shares: list[int], alone: bool
) -> None:
    found = [GpuInfo(index=n, kind="cuda", name="H200", architecture="sm_90") for n in range(gpus)]
    plan = WorkerPlan(("cpu",), found, workers, jobs=5, processes=processes)
    assert (plan.shares, plan.alone) == (shares, alone)


@pytest.mark.slow
def test_a_killed_process_costs_a_try_and_no_row(suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "home"))
    retried: list[str] = []
    seen: set[int] = set()

    def listener(kind: str, data: dict[str, Any]) -> None:
        if kind == "retry":
            assert data["job"] in NAMES
            retried.append(data["error"])
        if kind == "row" and len(seen) < 2:
            seen.update(children())
            if data["done"] == 1:
                os.kill(min(seen), signal.SIGKILL)

    request = BenchRequest(suite, ("cpu",), out=tmp_path / "out", budget=1, workers=2, processes=2, seed=7)
    report = run_benchmark(request, listener=listener)
    assert len(seen) == 2 and not children()
    assert {row.task: row.status for row in report.rows} == dict.fromkeys(NAMES, "pass")
    assert {path.stem for path in (tmp_path / "out/programs").iterdir()} == set(NAMES)
    assert all("of cpu has ended" in error for error in retried)
    here = run_benchmark(BenchRequest(suite, ("cpu",), out=tmp_path / "here", budget=1, workers=1, seed=7))
    assert {row.program for row in here.rows} == {row.program for row in report.rows}


@pytest.mark.slow
def test_given_programs_and_errors_of_a_task_cross(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "home"))
    (suite / "three.py").write_text("import torch\n\n\nclass Model(torch.nn.Module):\n    pass\n")
    programs = tmp_path / "programs"
    programs.mkdir()
    plan = "HIP = r''''''\n\n\ndef forward(self, x):\n    return torch.relu(x) * {factor}\n"
    for name, factor in zip(NAMES, (2, 4, 4), strict=True):
        (programs / f"{name}.py").write_text(plan.format(factor=factor))
    request = BenchRequest(suite, ("cpu",), candidates=programs, workers=2, processes=2)
    found = {row.task: (row.status, row.fault) for row in run_benchmark(request).rows}
    assert found["one"] == ("pass", None) and found["two"] == ("wrong_value", "candidate"), found
    assert found["three"][1] == "task"


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_several_candidates_of_a_task_are_judged_while_it_is_open(
    processes: int, suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "home"))
    for number, name in enumerate(NAMES, 1):
        (suite / f"{name}.py").rename(suite / f"{number}_{name}.py")
    programs = tmp_path / "programs"
    programs.mkdir()
    plan = "HIP = r''''''\n\n\ndef forward(self, x):\n    return torch.relu(x) * {factor}  # {sample}\n"
    expected = {}
    for number, name in enumerate(NAMES, 1):
        for sample in range(3):
            wrong = sample == number - 1
            text = plan.format(factor=number + 1 + wrong, sample=sample)
            (programs / f"level_1_problem_{number}_sample_{sample}_kernel.py").write_text(text)
            expected[f"{number}_{name}", sample] = "wrong_value" if wrong else "pass"
    request = BenchRequest(suite, ("cpu",), candidates=programs, workers=2, processes=processes)
    found = {(row.task, row.sample): row.status for row in run_benchmark(request).rows}
    assert found == expected
