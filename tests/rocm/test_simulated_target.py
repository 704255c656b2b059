"""The rocm target end to end on the simulated GPU: commands, verdicts, labels, and a shipped package's HIP half."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import warm
from tests.rocm import simulated
from tests.ship import subjects
from tests.ship.shipping import shipped

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples/bias_gelu.py"


@pytest.fixture(scope="module")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated.made(tmp_path_factory.mktemp("rocm"))


@pytest.fixture(scope="module")
def run(rocm: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Runs a command line on a machine whose ROCm is simulated."""
    folder = tmp_path_factory.mktemp("run")

    env = {"ROCM_PATH": str(rocm), "HIPWRIGHT_HOME": str(folder / "home")}
    return lambda *words: warm.hipwright(folder, *words, env=env)


@pytest.mark.slow
def test_a_search_says_everywhere_that_the_gpu_is_simulated(run: Callable[..., Any], tmp_path: Path) -> None:
    done = run("optimize", EXAMPLE, "--target", "rocm", "--budget", 2, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "MEASURED" not in done.stdout + done.stderr
    assert "SIMULATED  rocm: gfx942 (simulated) (gfx942)" in done.stdout and "no AMD GPU's speed" in done.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["status"], result["score_kind"], list(result["targets"])) == ("pass", "simulated", ["rocm"])
    rocm = result["targets"]["rocm"]
    assert rocm["timing"]["device"] == "gfx942 (simulated)" and rocm["timing"]["versus"]["eager"]["speedup"] > 0
    assert rocm["verdict"]["checks"]["device"] == "gfx942 (simulated)"
    assert any("no AMD GPU's speed" in line for line in result["not_measured"])
    page = (tmp_path / "report.html").read_text()
    assert "SIMULATED" in page and "MEASURED" not in page and "they say nothing of an AMD GPU's speed" in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("right", "pass", ""),
        ("wrong", "wrong_value", "times the tolerance"),
        ("beside", "out_of_bounds", "a write outside y, near element"),
        ("far", "out_of_bounds", "an address that is not mapped"),
    ],
)
def test_verdicts(run: Callable[..., Any], name: str, status: str, said: str) -> None:
    programs = HERE / "programs"
    done = run("eval", HERE / "tasks/twice.py", programs / f"{name}.py", "--target", "rocm", "--json")
    found = json.loads(done.stdout)
    assert found["status"] == status and said in found["message"], found["message"]


@pytest.mark.slow
def test_processes_that_share_the_gpu_time_in_turn(run: Callable[..., Any], tmp_path: Path) -> None:
    """Its timing lock is the command's: a timing in one process waits for the verifications of the other."""
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.py").write_text((HERE / "tasks/twice.py").read_text())
    done = run("bench", tmp_path, "--target", "rocm", "--budget", 1, "--workers", 2, "--processes", 2, "--json")
    found = json.loads(done.stdout)
    assert [row["status"] for row in found["rows"]] == ["pass"] * 3, done.stderr
    assert found["timed"] == 3 and any("those of software" in line for line in found["not_measured"])


@pytest.mark.slow
def test_a_task_that_keeps_state_is_timed(run: Callable[..., Any]) -> None:
    """Its late inputs are judged by a first call's result (found here: right programs were refused on every GPU)."""
    corpus = HERE.parents[1] / "src/hipwright/audit/corpus"
    done = run("eval", corpus / "tasks/ema.py", corpus / "program/honest/ema_buffer.py", "--target", "rocm", "--json")
    found = json.loads(done.stdout)
    assert found["status"] == "pass" and found["targets"]["rocm"]["timing"]["median_ms"] > 0, found["message"]


def test_doctor_promises_no_speed(run: Callable[..., Any]) -> None:
    checks = {check["name"]: check for check in json.loads(run("doctor", "--json").stdout)["checks"]}
    said = checks["amd gpu"]["detail"]
    assert said == "1 found, gfx942 (simulated) (gfx942, 192 GiB): --target rocm gives numerics, in software, no speed"


def test_a_package_builds_and_launches_by_hip(rocm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch's ROCm build would say is stood in for; compiler, loader, launches and values are real."""
    monkeypatch.setenv("ROCM_PATH", str(rocm))
    monkeypatch.setenv("HIPWRIGHT_OPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.version, "hip", "6.0")
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0, raising=False)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    made = shipped(tmp_path, "shipped_by_hip", subjects.SCALE_TASK, subjects.SCALE_BACKWARD, kernels=False)
    module = importlib.import_module(f"{made.__name__}.gpu")
    monkeypatch.setattr(module, "architecture", lambda device: "gfx942")
    monkeypatch.setattr(module, "_loaded", lambda name: str(rocm / "lib" / name))
    cpu = torch.device("cpu")
    made.KERNELS._made[cpu] = made.KERNELS._built(cpu)
    assert list((tmp_path / "cache").iterdir()), "built by the simulated hipRTC, and kept"
    x, w = torch.randn(5, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    grad = torch.randn(5, 8)
    y = torch.ops.shipped_by_hip.forward(x, w)
    torch.testing.assert_close(y, 2 * x * w)
    torch.testing.assert_close(torch.autograd.grad(y, [x, w], grad), torch.autograd.grad(2 * x * w, [x, w], grad))
