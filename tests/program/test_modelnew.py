"""The exported ModelNew file: its Python runs the plan, and both native sources compile."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from hipwright.errors import BadInput, ProgramError
from hipwright.program import parse
from hipwright.program.modelnew.export import export
from hipwright.program.modelnew.native_source import binding_source, kernel_source
from hipwright.records import Program

TASK = '''
"""A task."""
import torch
import torch.nn as nn
import torch.nn.functional as F

HIDDEN = 5

class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, HIDDEN)

    def forward(self, x):
        return F.relu(self.fc(x))

class Model(nn.Module):
    gain = 3.0

    def __init__(self, n, scale=2.0):
        super(Model, self).__init__()
        self.blocks = nn.ModuleList([Block(n), Block(HIDDEN)])
        self.scale = scale
        self.register_buffer("shift", torch.ones(HIDDEN))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x * self.scale * self.gain + self.shift

def get_inputs():
    return [torch.randn(4, 6)]

def get_init_inputs():
    return [6]
'''

PLAN = '''HIP = r"""
#include <hip/hip_runtime.h>
extern "C" __global__ void __launch_bounds__(BLOCK) affine(
    const float* x, const float* shift, float* y, float k, long n, int c, bool last, unsigned char* flags) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * k + shift[i % c];
}
extern "C" __global__ void unused(float** nothing, int a);
"""
BLOCK = knob(128, choices=[64, 128])

def prepare(self):
    return {"first": self.blocks[0].fc.weight.t().contiguous()}

def forward(self, x):
    n: int = 0
    ones = torch.ones(x.shape[0])
    for i, block in enumerate(self.blocks):
        w = self.prepared.first if i == 0 else block.fc.weight.t()
        x = F.relu(x @ w + block.fc.bias)
        n += x.numel()
    x *= ones[:, None]
    y = torch.empty_like(x)
    affine[cdiv(y.numel(), BLOCK), (BLOCK, 1), 16](x, self.shift, y, self.scale * self.gain, y.numel(), x.shape[1],
                                                   True, None)
    return y
'''.replace('extern "C" __global__ void unused(float** nothing, int a);\n', "")


def affine(grid: Any, block: Any, lds: int, stream: int, x: Any, shift: Any, y: Any, k: float, *rest: Any) -> None:
    y.copy_(x * k + shift)


@pytest.fixture
def exported() -> str:
    return export(Program(text=PLAN, knobs={"BLOCK": 64}), parse(PLAN), TASK)


@pytest.fixture
def built(exported: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], list[dict[str, Any]], list[Any]]:
    """The file's namespace with load_inline replaced: (names, the arguments of load_inline, launches)."""
    asked: list[dict[str, Any]] = []
    launches: list[Any] = []

    def launch(*args: Any) -> None:
        launches.append(args)
        affine(*args)

    def load_inline(
        name: str, cpp_sources: Any, cuda_sources: Any, no_implicit_headers: bool = False, **kw: Any
    ) -> Any:
        asked.append({"name": name, "cpp": cpp_sources, "hip": cuda_sources, "bare": no_implicit_headers, **kw})
        return types.SimpleNamespace(launch_affine=launch)

    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", load_inline)
    names: dict[str, Any] = {"__name__": "model_new"}
    exec(compile(exported, "model_new.py", "exec"), names)
    return names, asked, launches


def reference() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(TASK, names)
    return names


def test_same_parameters_and_same_outputs(built: Any) -> None:
    names, _, launches = built
    task = reference()
    torch.manual_seed(3)
    model = task["Model"](*task["get_init_inputs"]())
    torch.manual_seed(3)
    new = names["ModelNew"](*task["get_init_inputs"]())
    assert list(new.state_dict()) == list(model.state_dict())
    for name, value in new.state_dict().items():
        torch.testing.assert_close(value, model.state_dict()[name])
    (x,) = task["get_inputs"]()
    kept = x.clone()
    torch.testing.assert_close(new(x), model(x))
    assert torch.equal(x, kept)
    grid, block, lds, stream, *args = launches[0]
    assert (grid, block, lds, stream) == ([1], [64, 1], 16, 0)
    assert args[3:] == [6.0, 20, 5, True, None]


def test_packed_weights_follow_the_parameters(built: Any) -> None:
    new = built[0]["ModelNew"](6, scale=1.0)
    model = reference()["Model"](6, scale=1.0)
    x = torch.randn(4, 6)
    new(x)
    new.load_state_dict(model.state_dict())
    torch.testing.assert_close(new(x), model(x))


def by_step(new: torch.nn.Module) -> None:
    for parameter in new.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(new.parameters(), lr=0.5).step()


def by_data(new: Any) -> None:
    for tensor in (*new.parameters(), *new.buffers()):
        tensor.data.add_(0.25) if tensor.is_floating_point() else None
    new.repack()


def by_another_tensor(new: torch.nn.Module) -> None:
    for name, parameter in list(new.named_parameters()):
        owner = new.get_submodule(name.rpartition(".")[0])
        setattr(owner, name.rpartition(".")[2], torch.nn.Parameter(parameter.detach() * 2))


def in_place(new: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.mul_(1.5)


@pytest.mark.parametrize("change", [by_step, by_data, by_another_tensor, in_place])
def test_calls_on_one_state_follow_every_change(built: Any, change: Any) -> None:
    new, model = built[0]["ModelNew"](6, scale=1.0), reference()["Model"](6, scale=1.0)
    for strided in (False, True, False):
        x = torch.randn(12, 4).t()[:, ::2] if strided else torch.randn(4, 6)
        model.load_state_dict(new.state_dict())
        torch.testing.assert_close(new(x), model(x))
        change(new)


def test_what_the_build_is_asked_for(built: Any) -> None:
    (asked,) = built[1]
    assert asked["functions"] == ["launch_affine"] and asked["bare"] is True
    assert "-DBLOCK=64" in asked["extra_cuda_cflags"]
    assert not any("-DBLOCK" in flag for flag in asked["extra_cflags"])
    assert "torch" not in re.sub(r"//.*", "", asked["hip"][0])
    assert "hip/" not in asked["cpp"][0]


def test_the_reference_computation_is_not_in_the_file(exported: str) -> None:
    assert exported.count("def forward") == 1
    assert "get_inputs" not in exported and "class Model(" not in exported


def test_a_program_without_kernels_builds_nothing() -> None:
    text = "HIP = r'''\n'''\ndef forward(self, x):\n    return torch.relu(x)\n"
    out = export(Program(text=text), parse(text), TASK)
    assert "load_inline" not in out
    names: dict[str, Any] = {}
    exec(out, names)
    assert names["ModelNew"](6)(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]


def test_what_cannot_be_exported() -> None:
    text = (
        "HIP = r'''\n'''\ndef forward(self, x):\n    return x, x\ndef backward(self, grads, saved):\n    return grads\n"
    )
    with pytest.raises(ProgramError, match="line 5: a program with backward"):
        export(Program(text=text), parse(text), TASK)
    with pytest.raises(BadInput, match="no class Model"):
        export(Program(text=PLAN), parse(PLAN), "import torch\n")
    with pytest.raises(BadInput, match="not Python"):
        export(Program(text=PLAN), parse(PLAN), "class Model(\n")


# ---------------------------------------------------------------- native halves

ALL_TYPES = """
#include <hip/hip_fp16.h>
#include <hip/hip_bf16.h>
extern "C" __global__ void many(double a, float b, __half c, hip_bfloat16 d, bool e, char f, unsigned char g, short h,
    unsigned short i, int j, unsigned k, long long l, size_t m, const void* n, char* o, const float4* p,
    unsigned long long* q, uint32_t* r, int8_t* s, bool* t, double* u, short* v, __half* w,
    const Float8E4M3FN* x8, Float8E5M2* y8, Float8E4M3FNUZ* z8, const Float8E5M2FNUZ* w8) {}
extern "C" __global__ void none() {}
"""


def many() -> list[Any]:
    text = f"HIP = r'''{ALL_TYPES}'''\ndef forward(self, x):\n    return x\n"
    return list(parse(text).signatures.values())


def test_pointers_to_every_type_take_tensors_of_it() -> None:
    text = binding_source(many())
    for name in ("kFloat8_e4m3fn", "kFloat8_e5m2", "kFloat8_e4m3fnuz", "kFloat8_e5m2fnuz"):
        assert f"{{at::{name}}}" in text


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_torch_half_compiles_against_torch(tmp_path: Path) -> None:
    from torch.utils.cpp_extension import include_paths

    # what load_inline appends for functions=[...]
    module = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {" + "".join(
        f'm.def("launch_{k.name}", torch::wrap_pybind_function(launch_{k.name}), "");' for k in many()
    )
    source = tmp_path / "main.cpp"
    source.write_text(binding_source(many()) + module + "}\n")
    paths = [f"-I{p}" for p in (*include_paths(), sysconfig.get_paths()["include"])]
    argv = ["g++", "-std=c++20", "-Wall", "-DTORCH_EXTENSION_NAME=ext", "-fsyntax-only", *paths, str(source)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "main.cpp" not in done.stderr, done.stderr[-3000:]


HOST_HEADER = """#pragma once
typedef struct ihipStream_t* hipStream_t;
typedef __SIZE_TYPE__ size_t;
typedef int hipError_t;
#define __global__ __attribute__((global))
#define __launch_bounds__(n)
struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {} };
extern __attribute__((device)) const uint3 blockIdx, blockDim, threadIdx;
extern "C" hipError_t hipLaunchKernel(const void*, dim3, dim3, void**, size_t, hipStream_t);
extern "C" hipError_t __hipPushCallConfiguration(dim3, dim3, size_t, hipStream_t);
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["--cuda-host-only", "--cuda-device-only"])
def test_the_hip_half_parses_in_both_passes(tmp_path: Path, where: str) -> None:
    """With a substitute for HIP's own header: the host pass sees the launchers, the device pass does not."""
    (tmp_path / "hip").mkdir()
    (tmp_path / "hip" / "hip_runtime.h").write_text(HOST_HEADER)
    parsed = parse(PLAN)
    source = tmp_path / "k.hip"
    source.write_text(kernel_source(parsed.hip, parsed.signatures.values()))
    argv = [
        sys.executable,
        "-m",
        "ziglang",
        "clang",
        "-x",
        "hip",
        "--offload-arch=gfx942",
        where,
        "-nogpuinc",
        "-nogpulib",
        "-nostdinc",
        "-nostdinc++",
        "-std=c++17",
        "-DBLOCK=64",
        f"-I{tmp_path}",
        "-S",
        "-emit-llvm",
        "-o",
        "-",
        str(source),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert ("hipwright_launch_affine" in done.stdout) is (where == "--cuda-host-only")


@pytest.mark.slow
def test_the_hip_half_compiles_for_an_amd_gpu(tmp_path: Path) -> None:
    amdgpu = pytest.importorskip("hipwright.toolchain.amd.offline")
    cache = pytest.importorskip("hipwright.toolchain.cache")
    parsed = parse(PLAN)
    source = kernel_source(parsed.hip, parsed.signatures.values())
    build = amdgpu.build(source, "gfx942", parsed.defines(), cache=cache.BuildCache(tmp_path))
    assert build.ok, build.log
    assert [k.name for k in build.kernels] == ["affine"]
