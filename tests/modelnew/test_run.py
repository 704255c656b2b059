"""Files run as they are, confined: state, errors, extensions through the lean headers, discovery by execution."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hipwright.audit.cases import select
from hipwright.errors import CandidateError, CompileError, InfrastructureError
from hipwright.program.modelnew.build import arguments, check_target, kind_of, prepare
from hipwright.program.modelnew.export import export
from hipwright.program.parse import parse
from hipwright.records import Program
from hipwright.sandbox import Limits, Zygote
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.extension import nvcc
from hipwright.torchio import from_torch, to_torch
from tests.modelnew.samples import PAIRS, candidate

SERVICE = Path(__file__).parent / "service.py"
LIMITS = Limits(wall_s=60, cpu_s=60, memory_mb=8192)
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
needs_nvcc = pytest.mark.skipif(nvcc.find_nvcc() is None, reason="nvcc is not installed")


@pytest.fixture(scope="module")
def zygote(cache: BuildCache) -> Iterator[Zygote]:
    cache.folder.mkdir(parents=True, exist_ok=True)
    with Zygote(("torch", "hipwright.program.modelnew.warm"), ro=[cache.folder, SERVICE], name="modelnew") as made:
        yield made


def table(params: dict[str, Any] | None = None, init_inputs: Any = (), **buffers: Any) -> Any:
    return {
        "params": {k: from_torch(v) for k, v in (params or {}).items()},
        "buffers": {k: from_torch(v) for k, v in buffers.items()},
        "attrs": {},
        "modules": {},
        "training": True,
        "init_inputs": list(init_inputs),
    }


def run(
    zygote: Zygote, text: str, state: Any, *inputs: torch.Tensor, init: Any = None, **header: Any
) -> tuple[Any, Any]:
    with zygote.session(f"{SERVICE}:Runner", init or {"text": text, "seed": 1}, state, limits=LIMITS) as session:
        return session.call("run", header, [from_torch(x) for x in inputs], timeout_s=30)


PURE = """
import torch
import torch.nn as nn
class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.lin = nn.Linear(n, m)
        self.register_buffer("scale", torch.ones(1))
    def forward(self, x):
        return torch.relu(self.lin(x)) * self.scale
"""


def test_pure_torch_with_the_tasks_own_state(zygote: Zygote) -> None:
    w, b, x, scale = torch.randn(3, 4), torch.randn(3), torch.randn(5, 4), torch.tensor([2.5])
    state = table({"lin.weight": w, "lin.bias": b}, [4, 3], scale=scale)
    info, out = run(zygote, PURE, state, x, trace=True)
    torch.testing.assert_close(to_torch(out), torch.relu(x @ w.t() + b) * scale)
    assert "aten.addmm.default" in info["ops"]


def test_state_by_order_under_the_tasks_names(zygote: Zygote) -> None:
    w, b, x = torch.randn(3, 4), torch.randn(3), torch.randn(5, 4)
    info, out = run(zygote, PURE, table({"fc.weight": w, "fc.bias": b}, [4, 3]), x)
    torch.testing.assert_close(to_torch(out), torch.relu(x @ w.t() + b))
    assert info["params"] == ["fc.weight", "fc.bias"]


@pytest.mark.parametrize("shape", [(4, 3), (3, 5)])
def test_parameters_that_do_not_match_are_refused(zygote: Zygote, shape: tuple[int, int]) -> None:
    state = table({"fc.weight": torch.randn(*shape), "fc.bias": torch.randn(3)}, [4, 3])
    with pytest.raises(CandidateError) as raised:
        run(zygote, PURE, state, torch.randn(5, 4))
    assert raised.value.status == "bad_output_spec" and "lin.weight (3, 4)" in raised.value.message


def test_what_the_file_raises_names_its_line(zygote: Zygote) -> None:
    text = PURE.replace("return torch.relu", "raise ValueError('odd'); return torch.relu")
    with pytest.raises(CandidateError, match="line 10: ValueError: odd"):
        run(
            zygote,
            text,
            table({"lin.weight": torch.randn(3, 4), "lin.bias": torch.randn(3)}, [4, 3]),
            torch.randn(5, 4),
        )
    with pytest.raises(CandidateError, match="line 2: ModuleNotFoundError"):
        run(zygote, "\nimport no_such_module\nclass ModelNew: pass\n", table(), torch.randn(1))


@pytest.mark.parametrize(
    "attack",
    [
        "open('/tmp/x', 'w')",
        "__import__('os').fork()",
        "__import__('socket').socket()",
        "__import__('subprocess').run(['/bin/true'])",
    ],
)
def test_the_process_can_do_nothing_but_compute(zygote: Zygote, attack: str) -> None:
    """Even where a static rule would miss it."""
    text = PURE.replace("return torch.relu", f"{attack}; return torch.relu")
    with pytest.raises(CandidateError, match=r"PermissionError|Operation not permitted"):
        run(
            zygote,
            text,
            table({"lin.weight": torch.randn(3, 4), "lin.bias": torch.randn(3)}, [4, 3]),
            torch.randn(5, 4),
        )


# ---------------------------------------------------------------- extensions

CPP = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
source = """
#include <torch/extension.h>
#include <vector>
torch::Tensor scaled(const torch::Tensor& x, double a, c10::optional<torch::Tensor> bias) {
    TORCH_CHECK(x.dim() == 2, "x has ", x.dim(), " dimensions, sizes ", x.sizes());
    auto out = torch::empty({x.size(0), x.size(1)}, x.options());
    auto c = x.contiguous();
    AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "scaled", [&] {
        auto* p = c.data_ptr<scalar_t>();
        auto* q = out.data_ptr<scalar_t>();
        for (int64_t i = 0; i < x.numel(); ++i) q[i] = static_cast<scalar_t>(static_cast<float>(p[i]) * a);
    });
    return bias.has_value() ? out + bias.value() : out;
}
std::vector<torch::Tensor> parts(std::vector<torch::Tensor> given, int64_t n) {
    auto all = torch::cat(given, 0);
    return {all.sum(1), torch::matmul(all, all.t()), all.view({-1}).to(torch::kFloat64), at::zeros({n}, torch::kInt64)};
}
std::tuple<int64_t, double, bool> numbers(at::IntArrayRef sizes, std::string word) {
    int64_t total = 1;
    for (auto s : sizes) total *= s;
    return {total, total / 2.0, word == "yes"};
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("scaled", &scaled, "scales", py::arg("x"), py::arg("a") = 2.0, py::arg("bias") = py::none());
    m.def("parts", &parts);
    m.def("numbers", &numbers);
    m.def("count", [](const torch::Tensor& t) { return t.numel(); });
}
"""
ext = load_inline(name="host_only", cpp_sources=source, extra_cflags=["-O2"])
class ModelNew(nn.Module):
    def forward(self, x, b):
        y = ext.scaled(x, bias=b)
        sums, product, flat, zeros = ext.parts([x, y], 3)
        total, half, yes = ext.numbers([2, 3, 5], "yes")
        assert (total, half, yes, ext.count(x)) == (30, 15.0, True, x.numel()), (total, half, yes)
        return y, sums, product, flat, zeros
'''


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_host_extensions_run_through_the_lean_headers(zygote: Zygote, cache: BuildCache, dtype: torch.dtype) -> None:
    made = prepare(CPP, target="cpu", arch="", cache=cache, ways=("lean",))
    assert made.checks["discovery"] == "static" and made.checks["extensions"][0]["how"] == "lean"
    x, b = torch.randn(4, 6).to(dtype), torch.randn(6).to(dtype)
    info, out = run(zygote, CPP, table(), x.t().contiguous().t(), b, init=arguments(made, CPP, 1), trace=True)
    y = (x.float() * 2).to(dtype) + b
    both = torch.cat([x, y])
    for got, want in zip(
        out, (y, both.sum(1), both @ both.t(), both.reshape(-1).double(), torch.zeros(3)), strict=True
    ):
        torch.testing.assert_close(to_torch(got), want.to(to_torch(got).dtype))
    assert to_torch(out[0]).dtype == dtype and to_torch(out[4]).dtype == torch.int64
    assert "aten.mm.default" in info["ops"], "operators of host code are seen by the trace"


@needs_compiler
def test_a_failed_check_of_host_code_is_told(zygote: Zygote, cache: BuildCache) -> None:
    made = prepare(CPP, target="cpu", arch="", cache=cache, ways=("lean",))
    with pytest.raises(CandidateError, match=r"x has 1 dimensions, sizes \[3\]"):
        run(zygote, CPP, table(), torch.randn(3), torch.randn(3), init=arguments(made, CPP, 1))


@needs_compiler
def test_tensors_are_given_back(cache: BuildCache) -> None:
    from hipwright.program.modelnew.torchlite_bind import LeanModule

    made = prepare(CPP, target="cpu", arch="", cache=cache, ways=("lean",))
    module: Any = LeanModule(made.extensions[0]["so"])
    for _ in range(3):
        module.parts([torch.randn(2, 2), torch.randn(2, 2)], 3)
        module.scaled(torch.randn(2, 2), a=1, bias=None)
    with pytest.raises(RuntimeError, match=r"expected scalar type|not implemented"):
        module.scaled(torch.ones(2, 2, dtype=torch.int32))
    with pytest.raises(TypeError, match="x is missing"):
        module.scaled()
    with pytest.raises(TypeError, match="arguments are expected"):
        module.scaled(torch.ones(2, 2), 1.0, None, 5)
    assert len(module._handles) == 0


KERNEL_SOURCE = """
#include <torch/extension.h>
void convert(torch::Tensor x, torch::Tensor h, torch::Tensor b, torch::Tensor back) {
    for (int64_t i = 0; i < x.numel(); ++i) {
        h.data_ptr<at::Half>()[i] = at::Half(x.data_ptr<float>()[i]);
        b.data_ptr<at::BFloat16>()[i] = at::BFloat16(x.data_ptr<float>()[i]);
        back.data_ptr<float>()[i] = (float)h.data_ptr<at::Half>()[i];
    }
}
"""


@needs_compiler
def test_half_conversions_are_those_of_torch_bit_for_bit(cache: BuildCache) -> None:
    from hipwright.program.modelnew.torchlite_bind import LeanModule

    text = f"from torch.utils.cpp_extension import load_inline\nsource = '''{KERNEL_SOURCE}'''\n"
    text += "e = load_inline('h', [source], functions=['convert'])\nclass ModelNew: pass\n"
    module: Any = LeanModule(prepare(text, target="cpu", arch="", cache=cache, ways=("lean",)).extensions[0]["so"])
    every = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
    bits = np.random.default_rng(5).integers(0, 2**32, 200_000, dtype=np.uint32)
    near = every[every.isfinite()] * (1 + torch.tensor([-(2.0**-12), 0, 2.0**-12, 2.0**-11])[:, None])
    x = torch.cat([every, torch.from_numpy(bits.view(np.float32).copy()), near.reshape(-1)])
    h, b, back = torch.empty(len(x)).half(), torch.empty(len(x)).bfloat16(), torch.empty(len(x))
    module.convert(x, h, b, back)
    number = ~x.isnan()
    assert torch.equal(h.view(torch.int16)[number], x.half().view(torch.int16)[number])
    assert torch.equal(b.view(torch.int16)[number], x.bfloat16().view(torch.int16)[number])
    assert torch.equal(back[number], x.half().float()[number])
    assert h[~number].isnan().all() and b[~number].isnan().all() and back[~number].isnan().all()


EXECUTED = '''
import os, tempfile
import torch
from torch.utils.cpp_extension import load, load_inline
path = os.path.join(tempfile.gettempdir(), "ext.cpp")
with open(path, "w") as f:
    f.write("""
#include <torch/extension.h>
torch::Tensor twice(torch::Tensor x) { return x * 2; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }
""")
class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a = load(name="a", sources=[path])
        body = "".join(f"x = x + {i};" for i in range(n))
        source = "torch::Tensor more(torch::Tensor x) { " + body + " return x; }"
        self.b = load_inline("b" + str(id(self)), [source], functions=["more"])
    def forward(self, x):
        return self.b.more(self.a.twice(x))
'''


@needs_compiler
def test_sources_that_are_not_constants_are_learnt_by_running(zygote: Zygote, cache: BuildCache) -> None:
    with pytest.raises(CompileError, match="without running"):
        prepare(EXECUTED, target="cpu", arch="", cache=cache, ways=("lean",))
    made = prepare(EXECUTED, target="cpu", arch="", cache=cache, ways=("lean",), zygote=zygote, init_inputs=[3])
    assert made.checks["discovery"] == "executed" and len(made.extensions) == 2
    only = EXECUTED.replace('self.a = load(name="a", sources=[path])\n', "\n").replace("self.a.twice(x)", "x")
    only = only[: only.index("path =")] + only[only.index("class ModelNew") :]
    made = prepare(only, target="cpu", arch="", cache=cache, ways=("lean",), zygote=zygote, init_inputs=[3])
    _, out = run(zygote, only, table(init_inputs=[3]), torch.ones(2), init=arguments(made, only, 1))
    assert to_torch(out).tolist() == [4.0, 4.0]


@needs_compiler
def test_what_does_not_compile_says_why(cache: BuildCache) -> None:
    text = CPP.replace("int64_t total = 1;", "int64_t total = one;")
    with pytest.raises(CompileError, match=r"one.* was not declared") as raised:
        prepare(text, target="cpu", arch="", cache=cache, ways=("lean",))
    assert "[lean]" in raised.value.evidence["log"]


@needs_compiler
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_torchs_own_headers_are_the_last_resort(zygote: Zygote, cache: BuildCache) -> None:
    text = CPP.replace("return bias", "auto odd = at::_unique2(x); return bias")  # not among the lean names
    text = text.replace('"-O2"', '"-O0"')  # optimising torch's headers takes longer than reading them
    made = prepare(text, target="cpu", arch="", cache=cache)
    (used,) = made.checks["extensions"]
    assert used["how"] == "real" and "_unique2" in used["note"]
    x, b = torch.randn(4, 6), torch.randn(6)
    _, out = run(zygote, text, table(), x, b, init=arguments(made, text, 1))
    torch.testing.assert_close(to_torch(out[0]), x * 2 + b)


@needs_nvcc
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.matrix(keep=5)
def test_cuda_candidates_compile_against_the_lean_headers(name: str, cache: BuildCache) -> None:
    made = prepare(candidate(name), target="cuda", arch="sm_90", cache=cache, ways=("lean",))
    assert [e["how"] for e in made.checks["extensions"]] == ["lean"]


@needs_nvcc
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["softmax_online", "half_residual_half2", "mean_square_atomic"])
def test_our_own_exports_compile_against_the_lean_headers(name: str, cache: BuildCache) -> None:
    (case,) = select([name], form="program", kind="honest")
    exported = export(Program(text=case.text), parse(case.text), case.task_path.read_text())
    made = prepare(exported, target="cuda", arch="sm_90", cache=cache, ways=("lean",))
    assert [e["how"] for e in made.checks["extensions"]] == ["lean"]


# ---------------------------------------------------------------- targets


def test_what_the_cpu_target_cannot_run_is_nobodys_fault() -> None:
    triton = "import torch\nimport triton\nimport triton.language as tl\nclass ModelNew(torch.nn.Module): pass\n"
    assert kind_of(triton) == "triton" and kind_of(PURE) == "torch" and kind_of(CPP) == "extension"
    for text in (triton, candidate("softmax")):
        with pytest.raises(InfrastructureError) as raised:
            check_target(text, "cpu")
        verdict = raised.value.verdict()
        assert (verdict.status, verdict.fault) == ("unscorable", "service") and "GPU" in verdict.message
        assert check_target(text, "cuda") in ("triton", "extension")
    with pytest.raises(InfrastructureError, match="converted"):
        check_target(candidate("softmax"), "rocm")


def test_triton_may_start_its_assembler_and_nothing_else_may(cache: BuildCache) -> None:
    triton = "import triton\nimport torch\nclass ModelNew(torch.nn.Module): pass\n"
    assert prepare(triton, target="cuda", arch="sm_90", cache=cache).profile == "tools"
    assert prepare(PURE, target="cuda", arch="sm_90", cache=cache).profile == "gpu"
