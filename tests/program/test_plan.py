"""Properties of a lowered plan: packing, buffers, allocations, kernel arguments, speed, containment."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.nn as nn

from hipwright.errors import CandidateError, ProgramError
from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.program.lower.trace import NoopLauncher, OpTrace, trace
from hipwright.tensors import HostTensor
from hipwright.torchio import tree_from_torch

from .golden_case import Stack
from .support import HIP, FakeLauncher, plan_of, state_of


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(6)
        self.weight = nn.Parameter(torch.randn(6))
        self.other = nn.Parameter(torch.randn(6))


PACKED = """
def prepare(self):
    return {"w": self.weight * 2}

def forward(self, x):
    return x * self.prepared.w + self.other
"""


def test_prepare_runs_again_only_when_what_it_read_changes() -> None:
    model = Norm()
    plan, _ = plan_of(PACKED, model)
    x = torch.randn(3, 6)
    assert plan.prepare() is True and plan.prepare() is False
    plan.forward(x)
    plan.tensors["other"].add_(1)
    assert plan.prepare() is False and plan.prepare_runs == 1
    plan.tensors["weight"].mul_(3)
    torch.testing.assert_close(plan.forward(x), x * plan.tensors["weight"] * 2 + plan.tensors["other"])
    assert plan.prepare_runs == 2 and plan.prepare_seconds > 0


def test_buffers_are_updated_in_place_and_by_kernels() -> None:
    text = """
def forward(self, x):
    self.bn.running_mean.copy_(x.mean(dim=0))
    self.bn.num_batches_tracked.add_(1)
    relu[1, 64](self.bn.running_mean, self.bn.running_var, 6)
    return x * 1
"""
    plan, _ = plan_of(text, Norm())
    x = torch.randn(3, 6)
    plan.forward(x)
    plan.forward(x)
    torch.testing.assert_close(plan.tensors["bn.running_mean"], x.mean(0))
    torch.testing.assert_close(plan.tensors["bn.running_var"], x.mean(0).clamp(min=0))
    assert plan.tensors["bn.num_batches_tracked"].item() == 2


def test_batch_norm_in_training_mode_updates_its_buffers() -> None:
    text = """
def forward(self, x):
    return F.batch_norm(x, self.bn.running_mean, self.bn.running_var, self.bn.weight, self.bn.bias,
                        training=self.bn.training, momentum=self.bn.momentum, eps=self.bn.eps)
"""
    model = Norm()
    plan, _ = plan_of(
        text, {k: tree_from_torch(v) if k in ("params", "buffers") else v for k, v in state_of(model).items()}
    )
    x = torch.randn(8, 6)
    torch.testing.assert_close(plan.forward(x), model.bn(x).detach())
    torch.testing.assert_close(plan.tensors["bn.running_var"], model.bn.running_var)


EMPTIES = [
    "torch.empty(2, 3)",
    "torch.empty((2, 3), dtype=torch.int64)",
    "torch.empty(2, 3, 4, 5, memory_format=torch.channels_last)",
    "torch.empty_like(x)",
    "torch.empty_like(x, dtype=torch.float16)",
    "torch.empty_like(x.t())",
    "torch.empty_like(x.t(), memory_format=torch.contiguous_format)",
    "torch.empty_like(x[:, ::2])",
    "torch.empty_like(x[:1].expand(4, 6))",
    "torch.empty_strided((2, 3), (1, 2))",
    "torch.empty_strided((2, 0), (1, 2))",
    "x.new_empty((3, 1))",
    "x.new_empty(3, 1, dtype=torch.bool)",
    "x.new_empty_strided((2, 2), (4, 1))",
    "torch.empty((), dtype=x.dtype)",
    "torch.empty(x.shape[0], 0)",
]


@pytest.mark.parametrize("text", EMPTIES)
def test_allocations_look_like_torchs_and_come_from_the_launcher(text: str) -> None:
    x = torch.randn(4, 6)
    plan, launcher = plan_of(f"def forward(self, x):\n    return {text}\n")
    got, want = plan.forward(x), eval(text, {"torch": torch, "x": x})
    assert (got.shape, got.dtype, got.stride()) == (want.shape, want.dtype, want.stride())
    assert got.untyped_storage().data_ptr() == launcher.allocated[0].untyped_storage().data_ptr()


MANY = '''HIP = r"""
extern "C" __global__ void k(const float* f, const __half* h, const hip_bfloat16* b, const long* l, const int* i,
    const bool* t, const unsigned char* u, const void* v, const char* c, const float4* q, const unsigned* m,
    float sf, double sd, __half sh, bool sb, signed char sc, unsigned char su, int si, unsigned sm, long long sl,
    size_t sz) {}
"""
def forward(self, f, h, b, l, i, t, u, v, c, q, m, sf, sd, sh, sb, sc, su, si, sm, sl, sz):
    k[1, 1](f, h, b, l, i, t, u, v, c, q, m, sf, sd, sh, sb, sc, su, si, sm, sl, sz)
    return f
'''


def arguments(**changed: Any) -> list[Any]:
    given: dict[str, Any] = {
        "f": torch.zeros(8),
        "h": torch.zeros(1, dtype=torch.half),
        "b": torch.zeros(1, dtype=torch.bfloat16),
        "l": torch.zeros(1, dtype=torch.int64),
        "i": torch.zeros(1, dtype=torch.int32),
        "t": torch.zeros(1, dtype=torch.bool),
        "u": torch.zeros(1, dtype=torch.uint8),
        "v": torch.zeros(1),
        "c": torch.zeros(1, dtype=torch.int8),
        "q": torch.zeros(8),
        "m": torch.zeros(1, dtype=torch.int32),
        "sf": 1,
        "sd": 1.5,
        "sh": 2.0,
        "sb": True,
        "sc": -128,
        "su": 255,
        "si": -(2**31),
        "sm": 2**32 - 1,
        "sl": 2**63 - 1,
        "sz": 2**64 - 1,
    }
    return list((given | changed).values())


def test_arguments_of_every_type_are_passed() -> None:
    plan, launcher = plan_of(MANY)
    plan.forward(*arguments(h=None, sf=float("inf")))
    args = launcher.launches[0][4]
    assert args[1] is None and args[11] == float("inf") and args[12:] == arguments()[12:]
    assert [type(a) for a in args[11:16]] == [float, float, float, bool, int]
    assert launcher.launches[0][1:4] == ((1, 1, 1), (1, 1, 1), 0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("f", torch.zeros(1, dtype=torch.double), "takes a float32 tensor, not a float64"),
        ("h", torch.zeros(1, dtype=torch.bfloat16), "takes a float16 tensor"),
        ("l", torch.zeros(1, dtype=torch.int32), "takes a int64 tensor"),
        ("u", torch.zeros(1, dtype=torch.int8), "takes a uint8 or bool tensor"),
        ("q", torch.zeros(8)[1:], "multiple of 16 bytes"),
        ("v", 3, "takes a tensor, not int 3"),
        ("sf", 1e39, "does not fit in float"),
        ("sh", 1e5, "does not fit in __half"),
        ("sf", None, "takes a number, not None"),
        ("sb", 2, "does not fit in bool"),
        ("sc", 128, "does not fit in signed char"),
        ("su", -1, "does not fit in unsigned char"),
        ("si", 2**31, "does not fit in int"),
        ("sz", -1, "does not fit in size_t"),
        ("sl", torch.zeros(()), "takes an integer, not a float32 tensor"),
    ],
)
def test_arguments_that_do_not_fit(name: str, value: Any, message: str) -> None:
    plan, _ = plan_of(MANY)
    with pytest.raises(CandidateError, match=message) as caught:
        plan.forward(*arguments(**{name: value}))
    assert caught.value.status == "launch_error" and caught.value.evidence["line"] == 8


def test_gradients() -> None:
    text = """
def forward(self, x, y):
    return x * y, (x, y)

def backward(self, grads, saved):
    x, y = saved
    return grads * y, grads * x
"""
    plan, _ = plan_of(text)
    x, y, g = torch.randn(3), torch.randn(3), torch.randn(3)
    out, saved = plan.forward_saved(x, y)
    torch.testing.assert_close(plan.forward(x, y), out)
    for got, want in zip(plan.backward(g, saved), (g * y, g * x), strict=True):
        torch.testing.assert_close(got, want)
    with pytest.raises(ProgramError, match="no backward"):
        plan_of("def forward(self, x):\n    return x\n")[0].backward(g, ())


def test_random_operators_need_the_tasks_leave() -> None:
    text = "def forward(self, x):\n    return F.dropout(x, 0.5, self.training)\n"
    quiet = {"training": False}
    assert torch.equal(plan_of(text, quiet)[0].forward(torch.ones(9)), torch.ones(9))
    with pytest.raises(CandidateError, match="would draw random numbers"):
        plan_of(text, {"training": True})[0].forward(torch.ones(9))
    assert plan_of(text, {"training": True}, allow_random=True)[0].forward(torch.ones(900)).max() == 2


def test_launcher_errors_keep_their_class_and_gain_the_line() -> None:
    class Failing(FakeLauncher):
        def launch(self, *args: Any) -> None:
            raise CandidateError("read past x", status="out_of_bounds", evidence={"thread": 3})

    plan, _ = plan_of("def forward(self, x):\n    relu[1, 64](x, x, 1)\n    return x\n", launcher=Failing())
    with pytest.raises(CandidateError, match="read past x") as caught:
        plan.forward(torch.zeros(3))
    line = HIP.count("\n") + 2
    assert caught.value.status == "out_of_bounds" and caught.value.evidence == {"thread": 3, "line": line}
    assert str(caught.value) == f"line {line}: read past x"


def test_a_call_costs_microseconds() -> None:
    body = "".join(f"    n{i} = x.shape[0] * {i} + cdiv(x.numel(), {i + 1})\n" for i in range(100))
    plan, _ = plan_of(f"def forward(self, x):\n{body}    return n99\n")
    x = torch.zeros(4, 6)
    best = min(timed(plan, x) for _ in range(20))
    assert best < 100 * 10e-6  # seconds; 10 microseconds a statement would be far too slow


def timed(plan: Any, x: torch.Tensor) -> float:
    started = time.perf_counter()
    plan.forward(x)
    return time.perf_counter() - started


@pytest.mark.parametrize("name", ["__import__", "__builtins__", "__hw_host", "__hw_t_0", "print", "exec", "parse"])
def test_lowered_code_reaches_nothing_but_its_locals(name: str) -> None:
    with pytest.raises(ProgramError):
        plan_of(f"def forward(self, x):\n    y = {name}\n    return y\n")
    with pytest.raises(ProgramError):
        plan_of(f"def forward(self, x):\n    y = [{name} for {name} in (1, 2)]\n    return {name}(x)\n")


def test_attributes_of_model_parts_cannot_reach_pythons_own() -> None:
    for attribute in ("data", "grad", "_version", "__class__", "storage"):
        with pytest.raises(ProgramError):
            plan_of(f"def forward(self, x):\n    w = self.weight\n    return w.{attribute}\n", Norm())


def test_host_tensors_and_tied_parameters() -> None:
    shared = torch.randn(2, 3)
    table = {"params": tree_from_torch({"a": shared, "b": shared.t()}), "buffers": {}, "attrs": {}, "modules": {}}
    assert isinstance(table["params"]["a"], HostTensor)
    plan, _ = plan_of("def forward(self, x):\n    return self.a + self.b.t() + x\n", table)
    torch.testing.assert_close(plan.forward(0.0), 2 * shared)
    plan.tensors["a"].zero_()
    assert plan.tensors["b"].abs().max() == 0


# ---------------------------------------------------------------- trace

TRACED = """
def prepare(self):
    return {"w": self.layers[0].weight.t().contiguous()}

def forward(self, x):
    y = x @ self.prepared.w
    out = torch.empty_like(y)
    relu[cdiv(y.numel(), BLOCK), BLOCK, 64](y, out, y.numel())
    return torch.softmax(out.view(-1, 3), dim=-1)
"""


@pytest.mark.parametrize("meta", [True, False])
def test_trace_lists_operators_and_launches(meta: bool) -> None:
    found = trace(parse(HIP + TRACED), {"BLOCK": 64}, state_of(Stack()), [torch.randn(4, 6)], meta=meta)
    names = [op["op"] for op in found["ops"]]
    assert [n for n in names if not any(free in n for free in ("empty", "view", "detach"))] == [
        "aten.mm.default",
        "aten._softmax.default",
    ]
    mm = next(op for op in found["ops"] if op["op"] == "aten.mm.default")
    assert mm["in"][0] == {"dtype": "float32", "shape": [4, 6], "stride": [6, 1]} and mm["out"][0]["shape"] == [4, 6]
    y = {"dtype": "float32", "shape": [4, 6], "stride": [6, 1]}
    assert found["launches"] == [
        {"kernel": "relu", "grid": [1, 1, 1], "block": [64, 1, 1], "lds": 64, "args": [y, y, 24]}
    ]
    assert any(op["op"] == "aten.clone.default" for op in found["prepare"]["ops"])


def test_meta_trace_takes_host_tensors_and_moves_no_data() -> None:
    huge = torch.empty(1 << 20, 1 << 20, device="meta")
    found = trace(parse(HIP + "def forward(self, x):\n    return x.t() @ x\n"), {}, {}, [huge], meta=True)
    assert found["ops"][-1]["out"][0]["shape"] == [1 << 20, 1 << 20]
    small = tree_from_torch([torch.zeros(2, 3)])
    found = trace(parse(HIP + "def forward(self, x):\n    return x + torch.ones(3)\n"), {}, {}, small, meta=True)
    assert [op["op"] for op in found["ops"]] == ["aten.ones.default", "aten.add.Tensor"]


def test_noop_launcher_poisons() -> None:
    launcher = NoopLauncher()
    plan = lower(parse(HIP + "def forward(self, x):\n    return torch.empty(3, dtype=torch.uint8)\n"), {}, {}, launcher)
    assert plan.forward(torch.zeros(1)).tolist() == [0xA5] * 3


def test_op_trace_alone() -> None:
    with OpTrace() as seen:
        torch.cat([torch.zeros(2), torch.ones(3)])
    assert [len(op["in"]) for op in seen.ops if op["op"] == "aten.cat.default"] == [2]


def test_an_empty_grid_launches_nothing() -> None:
    text = """
def forward(self, x):
    y = torch.empty_like(x)
    relu[cdiv(x.shape[0], 64), 64](x, y, x.shape[0])
    return y
"""
    plan, launcher = plan_of(text, nn.Module())
    assert plan.forward(torch.zeros(0)).shape == (0,) and launcher.launches == []
    plan.forward(torch.zeros(3))
    assert [launch[0] for launch in launcher.launches] == ["relu"]


def test_a_trace_names_the_calls_that_the_plan_makes() -> None:
    text = (
        HIP
        + """
def forward(self, x):
    y = torch.nn.functional.silu(x).t()
    return torch.matmul(y, x)
"""
    )
    table = state_of(nn.Module())
    found = trace(parse(text), {}, tree_from_torch(table), [torch.zeros(4, 5)])
    assert [call["name"] for call in found["calls"]] == ["silu", "t", "matmul"]
    assert [op["op"] for op in found["calls"][2]["ops"]] == ["aten.mm.default"]
