"""standalone-hip: built by the simulated ROCm's hipcc, run on its GPU, compared with the reference by main() itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hipwright
from tests import warm
from tests.rocm import simulated
from tests.ship import subjects
from tests.ship.formats.made import exported, refused

STEPS_TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([0.5, 2.0, 3.0], dtype=torch.float16))

    def forward(self, x, n):
        y = x.t().half() * self.scale
        return {"y": y, "total": y.float().sum(), "count": torch.full((1,), n, dtype=torch.int64)}

def get_inputs():
    return [torch.rand(3, 70), 5]
"""
STEPS = """HIP = r'''
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
extern "C" __global__ void scaled(const float* x, const __half* w, __half* y, int rows) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < rows * 3) y[i] = __float2half(x[i]) * w[i % 3];
}
extern "C" __global__ void total(const __half* y, float* sum, long* count, int n, long value, float none) {
    float s = none;
    for (int i = threadIdx.x; i < n; i += 64) s += __half2float(y[i]);
    atomicAdd(sum, s);
    if (threadIdx.x == 0) *count = value;
}
'''

def forward(self, x, n):
    x = x.t().contiguous()
    y = torch.empty(x.shape, dtype=torch.float16)
    scaled[cdiv(x.numel(), 64), 64](x, self.scale, y, x.shape[0])
    whole = torch.zeros(())
    count = torch.empty((1,), dtype=torch.int64)
    total[1, 64](y, whole, count, y.numel(), n, 0.0)
    return {"y": y, "total": whole, "count": count}
"""
LARGE_TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.rand(4096, 4096)]
"""
LARGE = """HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void twice(const float* x, float* y, long n) {
    long i = blockIdx.x * 256L + threadIdx.x;
    if (i < n) y[i] = 2.f * x[i];
}
'''

def forward(self, x):
%s    y = torch.empty_like(x)
    twice[cdiv(x.numel(), 256), 256](x, y, x.numel())
    return y
"""


@pytest.fixture(scope="module")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated.made(tmp_path_factory.mktemp("rocm"))


def make(folder: Path, rocm: Path) -> subprocess.CompletedProcess[str]:
    command = ["make", "check", f"HIPCC={rocm}/bin/hipcc", "ARCH=gfx942"]
    env = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}  # of `make test`
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_it_builds_runs_and_is_right(tmp_path: Path, rocm: Path) -> None:
    folder = exported(tmp_path, "standalone-hip", subjects.SCALE_TASK, subjects.SCALE)
    done = make(folder, rocm)
    assert done.returncode == 0, done.stderr
    assert "output 0: 40 elements of float32" in done.stdout and done.stdout.rstrip().endswith("right")
    expected = folder / "data/expected_0.bin"
    values = np.fromfile(expected, np.float64)
    values[17] *= 1.001
    values.tofile(expected)
    done = subprocess.run(["./run"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "WRONG" in done.stdout
    done = subprocess.run(["./run", "/nowhere"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "cannot be read" in done.stderr


def test_a_wrong_program_is_found_wrong(tmp_path: Path, rocm: Path) -> None:
    wrong = subjects.SCALE.replace("* a *", "* a * 1.001f *")
    done = make(exported(tmp_path, "standalone-hip", subjects.SCALE_TASK, wrong), rocm)
    assert done.returncode != 0 and "WRONG" in done.stdout


def test_layouts_fills_half_types_scalars_and_nests(tmp_path: Path, rocm: Path) -> None:
    folder = exported(tmp_path, "standalone-hip", STEPS_TASK, STEPS)
    done = make(folder, rocm)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split(", largest")[0] for line in done.stdout.splitlines()[-3:]] == [
        "output 0: 210 elements of float16",
        "output 1: 1 elements of float32",
        "output 2: 1 elements of int64",
    ]


def test_a_large_task_is_stored_at_a_smaller_size(tmp_path: Path, rocm: Path) -> None:
    folder = exported(tmp_path, "standalone-hip", LARGE_TASK, LARGE % "")
    assert sum(path.stat().st_size for path in (folder / "data").iterdir()) < 32 << 20
    done = make(folder, rocm)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_has_no_place_without_torch_is_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, "standalone-hip", subjects.NORM_TASK, subjects.NORM)
    assert "leaves mean to torch" in said and "--format torch-op" in said
    assert "leaves mm to torch" in refused(tmp_path, "standalone-hip", subjects.LAYERS_TASK, subjects.LAYERS)
    guarded = LARGE % "    assert x.shape[0] == 4096\n"
    assert "declines what is smaller" in refused(tmp_path, "standalone-hip", LARGE_TASK, guarded)


def test_cmake_builds_it_too(tmp_path: Path, rocm: Path) -> None:
    folder = exported(tmp_path, "standalone-hip", subjects.SCALE_TASK, subjects.SCALE)
    env = {**os.environ, "ROCM_PATH": str(rocm)}
    for command in (
        ["cmake", "-B", "build", "-DARCH=gfx942", f"-DHIPCC={rocm}/bin/hipcc"],
        ["cmake", "--build", "build"],
        ["ctest", "--test-dir", "build"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "100% tests passed" in done.stdout


@pytest.mark.slow
def test_an_engines_program_of_an_archived_run(tmp_path: Path, rocm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "archive"))
    root = Path(__file__).parents[3]
    with warm.zygotes():
        result = hipwright.optimize(root / "examples/layernorm_residual.py", budget=1, target="cpu")
    done = warm.hipwright(tmp_path, "export", result.program_key, "--format", "standalone-hip", "--out", "alone")
    assert done.returncode == 0, done.stderr
    made = make(tmp_path / "alone", rocm)
    assert made.returncode == 0, made.stdout + made.stderr
