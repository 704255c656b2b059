# ruff: noqa: E501 - forms stand on a line each
"""Many ways to write the same host function: all convert, and to the same thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hipwright.program.convert.modelnew import from_modelnew
from hipwright.sandbox import Zygote
from hipwright.toolchain.cache import BuildCache
from tests.modelnew.test_convert import verified

KERNELS = """
__global__ void k(const float* x, float* y, int n, float a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * a;
}
template <typename T, int V>
__global__ void kt(const T* x, T* y, int n, float a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * (T)a;
}
"""
TASK = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
    def forward(self, x):
        return %s
def get_inputs():
    return [torch.randn(4, 5)]
def get_init_inputs():
    return [2.0]
"""
L = "k<<<(n+255)/256,256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, (float)a); return y;"


class Form(NamedTuple):
    name: str
    host: str
    fwd: str
    sig: str
    pre: str
    meaning: str

    def text(self) -> str:
        return f"""import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
src = r'''
#include <torch/extension.h>
{self.pre}
{KERNELS}
{self.sig} {{
{self.host}
}}
'''
ext = load_inline(name="e", cpp_sources="{self.sig};", cuda_sources=src, functions=["f"])
class ModelNew(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
    def forward(self, x):
        x = x.contiguous()
        {self.fwd}
"""


def form(
    name: str,
    host: str,
    fwd: str = "return ext.f(x, self.a)",
    sig: str = "torch::Tensor f(torch::Tensor x, double a)",
    pre: str = "",
    meaning: str = "x * self.a",
) -> Form:
    return Form(name, host, fwd, sig, pre, meaning)


FORMS = [
    form(
        "options cuda",
        "auto o = torch::TensorOptions().dtype(torch::kFloat32).device(torch::kCUDA); auto y = torch::empty({x.size(0), x.size(1)}, o); int n = y.numel(); "
        + L,
    ),
    form("sizes idx", "const auto s = x.sizes(); const int n = s[0]*s[1]; auto y = torch::empty_like(x); " + L),
    form("sizes vec", "auto s = x.sizes().vec(); int n = x.numel(); auto y = torch::zeros(s, x.options()); " + L),
    form(
        "device check",
        'TORCH_CHECK(x.device().type() == torch::kCUDA, "no"); TORCH_CHECK(x.dtype() == torch::kFloat32); int n = x.numel(); auto y = torch::empty_like(x); '
        + L,
    ),
    form("guard", "c10::cuda::CUDAGuard guard(x.device()); int n = x.numel(); auto y = torch::empty_like(x); " + L),
    form(
        "func attr",
        "cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536); int n = x.numel(); auto y = torch::empty_like(x); "
        + L,
    ),
    form(
        "dispatch type",
        'int n = x.numel(); auto y = torch::empty_like(x); AT_DISPATCH_FLOATING_TYPES(x.type(), "f", [&] { kt<scalar_t, 4><<<(n+255)/256,256>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n, (float)a); }); return y;',
    ),
    form(
        "dispatch ([&])",
        'int n = x.numel(); auto y = torch::empty_like(x); AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "f", ([&] { const int t = 128; kt<scalar_t, 4><<<(n+t-1)/t,t>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n, static_cast<float>(a)); })); return y;',
    ),
    form(
        "loop launches",
        "int n = x.numel(); auto y = torch::empty_like(x); for (int i = 0; i < 3; ++i) { k<<<(n+255)/256,256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, (float)a); } return y;",
    ),
    form(
        "ternary block",
        "int n = x.numel(); auto y = torch::empty_like(x); int t = n > 1024 ? 256 : 64; dim3 b(t); dim3 g((n + b.x - 1) / b.x); k<<<g, b>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, (float)a); return y;",
    ),
    form(
        "ptr vars",
        "int n = x.numel(); auto y = torch::empty_like(x); const float* xp = x.data_ptr<float>(); float* yp = y.data_ptr<float>(); k<<<(n+255)/256,256,0,at::cuda::getCurrentCUDAStream()>>>(xp, yp, n, (float)a); return y;",
    ),
    form(
        "cast ptr",
        "int n = x.numel(); auto y = torch::empty_like(x); k<<<(n+255)/256,256>>>((const float*)x.data_ptr(), (float*)y.data_ptr(), n, (float)a); return y;",
    ),
    form(
        "contig ptr",
        "auto xc = x.contiguous(); int n = xc.numel(); auto y = torch::empty_like(xc); k<<<(n+255)/256,256>>>(xc.data_ptr<float>(), y.data_ptr<float>(), n, float(a)); return y;",
    ),
    form(
        "err fmt",
        'int n = x.numel(); auto y = torch::empty_like(x); k<<<(n+255)/256,256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, (float)a); cudaError_t err = cudaGetLastError(); if (err != cudaSuccess) { printf("x %s\\n", cudaGetErrorString(err)); } cudaDeviceSynchronize(); return y;',
    ),
    form(
        "AT_ASSERTM",
        'AT_ASSERTM(x.is_cuda(), "c"); int n = x.numel(); auto y = at::empty(x.sizes(), x.options()); ' + L,
    ),
    form(
        "view",
        "auto f = x.view({-1}); int n = f.size(0); auto y = torch::empty_like(f); k<<<(n+255)/256,256>>>(f.data_ptr<float>(), y.data_ptr<float>(), n, (float)a); return y.view(x.sizes());",
    ),
    form(
        "std::max",
        "int n = x.numel(); auto y = torch::empty_like(x); int g = std::max(1, (n + 255) / 256); k<<<g,256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, (float)a); return y;",
    ),
    form(
        "ceil",
        "int n = x.numel(); auto y = torch::empty_like(x); int g = std::ceil((float)n / 256); int h = ceil(n / 256.0); k<<<h,256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, (float)a); return y;",
    ),
    form("py kwargs", "int n = x.numel(); auto y = torch::empty_like(x); " + L, fwd="return ext.f(x=x, a=self.a)"),
    form(
        "py if",
        "int n = x.numel(); auto y = torch::empty_like(x); " + L,
        fwd="if x.dim() > 1:\n            y = ext.f(x, self.a)\n        else:\n            y = x\n        return y",
    ),
    form(
        "py early",
        "int n = x.numel(); auto y = torch::empty_like(x); " + L,
        fwd="if x.numel() == 0:\n            return x\n        return ext.f(x, self.a)",
    ),
    form(
        "py is_cuda if",
        "int n = x.numel(); auto y = torch::empty_like(x); " + L,
        fwd="if x.is_cuda:\n            return ext.f(x, self.a)\n        return x * self.a",
    ),
    form(
        "py nested",
        "int n = x.numel(); auto y = torch::empty_like(x); " + L,
        fwd="return torch.relu(ext.f(ext.f(x, 2.0), self.a)) + 1",
    ),
    form(
        "py view",
        "int n = x.numel(); auto y = torch::empty_like(x); " + L,
        fwd="b, c = x.shape\n        y = ext.f(x.view(-1), self.a)\n        return y.view(b, c)",
    ),
    form(
        "const T",
        "int n = x.numel(); auto y = torch::empty_like(x); kt<float, V4><<<(n+255)/256,256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, (float)a); return y;",
        pre="constexpr int V4 = 4;",
    ),
    form(
        "define T",
        "int n = x.numel(); auto y = torch::empty_like(x); const int threads = BS; kt<float, BS><<<(n+BS-1)/BS,threads>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, (float)a); return y;",
        pre="#define BS 128",
    ),
    form(
        "local constexpr T",
        "int n = x.numel(); auto y = torch::empty_like(x); constexpr int V = 4; const int BS = 128; kt<float, V><<<(n+BS-1)/BS,BS>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, (float)a); return y;",
    ),
    form(
        "out args",
        "int n = x.numel(); k<<<(n+255)/256,256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, (float)a);",
        sig="void f(torch::Tensor x, torch::Tensor y, float a)",
        fwd="y = torch.empty_like(x)\n        ext.f(x, y, self.a)\n        return y",
    ),
    form(
        "helper lambda",
        "auto cdiv = [](int a, int b) { return (a + b - 1) / b; }; int n = x.numel(); auto y = torch::empty_like(x); k<<<cdiv(n,256),256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, (float)a); return y;",
    ),
    form(
        "int64 cast",
        "const int64_t n = x.numel(); auto y = torch::empty_like(x); k<<<static_cast<unsigned int>((n+255)/256),256>>>(x.data_ptr<float>(), y.data_ptr<float>(), static_cast<int>(n), static_cast<float>(a)); return y;",
    ),
]
MEANINGS = {"loop launches": "x * self.a", "py nested": "torch.relu(x * 2.0 * self.a) + 1"}


@pytest.mark.slow
@pytest.mark.parametrize("one", FORMS, ids=lambda one: one.name)
@pytest.mark.matrix(keep=12)
def test_forms_convert_and_verify(one: Form, tmp_path: Path, tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    source = TASK % MEANINGS.get(one.name, one.meaning)
    program = from_modelnew(one.text(), source)
    name = "".join(c if c.isalnum() else "_" for c in MEANINGS.get(one.name, one.meaning))
    path = tmp_path.parent / f"task_{name}.py"
    path.write_text(source)
    verdict = verified(program, path, tasks, candidates, cache)
    assert verdict.passed, f"{verdict.message}\n{program.text}"


@pytest.mark.parametrize("one", FORMS, ids=lambda one: one.name)
def test_forms_convert(one: Form) -> None:
    assert from_modelnew(one.text(), TASK % one.meaning).text
