"""Functions of kernels whose results are half types (fast_math.h), and quotients that are not rounded as divisions are
(divide_approx, divide_closely): errors, and the ends of ranges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from hipwright.engine import space
from hipwright.records import Program
from tests.engine.harness import Op, captured, check, run

INFINITY = float("inf")
LOG2E = np.log2(np.e)
TEXT = """HIP = r'''
#include <hip/hip_runtime.h>
#include <hipwright/arithmetic.h>
#include <hipwright/fast_math.h>
#include <hipwright/shared_division.h>

extern "C" __global__ void apply(const float* a, const float* b, float* __restrict__ out, int n) {
    const int i = blockIdx.x * (int)blockDim.x + threadIdx.x;
    if (i < n) out[i] = CALL;
}
'''


def forward(self, a, b):
    out = torch.empty((a.shape[0],), dtype=torch.float32)
    apply[cdiv(a.shape[0], 256), 256](a, b, out, a.shape[0])
    return out
"""
Wanted = Callable[[np.ndarray], np.ndarray]


def computed(call: str, a: np.ndarray, b: np.ndarray, target: str) -> np.ndarray:
    """A device expression of a[i] and b[i], on the processor or by an AMD GPU's machine code."""
    program = Program(text=TEXT.replace("CALL", call))
    given = [torch.from_numpy(x.astype(np.float32)) for x in (a, b)]
    got, _ = run(program, torch.nn.Module(), given, simulated=target)
    return np.asarray(got.numpy())


SCALE = "divisor_scale(b[i])"
CLOSE = f"divide_closely(a[i], {SCALE}, b[i] * {SCALE}, 1.0f / (b[i] * {SCALE}))"


@pytest.mark.parametrize("target", ["", "gfx942"])
@pytest.mark.parametrize(
    ("call", "most"), [("divide_approx(a[i], b[i])", 2.5), (CLOSE, 1.6)], ids=["approx", "closely"]
)
def test_quotients_of_the_full_range(call: str, most: float, target: str) -> None:
    """Zeros, infinities and NaN as IEEE 754 has them; divisors beyond 2^126 and subnormal ones; subnormal quotients."""
    ends = [
        0.0,
        -0.0,
        INFINITY,
        -INFINITY,
        np.nan,
        1.0,
        -3.0,
        2.0**127,
        -(2.0**127) * 1.7,
        3.4e38,
        2.0**-126,
        1e-40,
        -3e-45,
    ]
    rng = np.random.default_rng(0)
    wide = np.exp2(rng.uniform(-148, 127.9, 2000)) * rng.choice([-1.0, 1.0], 2000)
    a, b = np.concatenate([np.repeat(ends, len(ends)), wide]), np.concatenate([ends * len(ends), rng.permutation(wide)])
    a, b = (x.astype(np.float32) for x in (a, b))
    with np.errstate(all="ignore"):
        exact = a.astype(np.float64) / b.astype(np.float64)
        nearest = exact.astype(np.float32)
    got = computed(call, a, b, target)
    special = ~np.isfinite(nearest) | (exact == 0)
    assert np.array_equal(got[special], nearest[special], equal_nan=True)
    assert np.array_equal(np.signbit(got[exact == 0]), np.signbit(nearest[exact == 0]))
    step = np.spacing(np.abs(nearest[~special])).astype(np.float64)
    assert (np.abs(got[~special] - exact[~special]) / step).max() < most


@pytest.mark.parametrize("target", ["", "gfx942"])
def test_close_quotients_are_nearly_rounded(target: str) -> None:
    """Exact ones are exact."""
    rng = np.random.default_rng(1)
    a, b = (np.exp2(rng.uniform(-40, 40, 20000)).astype(np.float32) for _ in range(2))
    a[:5000], b[:5000] = rng.integers(1, 1 << 12, 5000), rng.integers(1, 1 << 12, 5000)
    a[:2500] *= b[:2500]
    exact = a.astype(np.float64) / b.astype(np.float64)
    got = computed(CLOSE, a, b, target)
    assert np.array_equal(got[:2500], exact[:2500])
    assert (np.abs(got - exact) / np.spacing(exact.astype(np.float32))).max() < 0.51


FUNCTIONS: dict[str, tuple[str, Wanted]] = {
    "expm1": ("expm1_fast(a[i])", np.expm1),
    "sigmoid": ("sigmoid_fast(a[i])", lambda x: 1 / (1 + np.exp(-x))),
    "silu": ("silu_fast(a[i])", lambda x: x / (1 + np.exp(-x))),
    "mish": ("mish_fast(a[i])", lambda x: x * np.tanh(np.log1p(np.exp(np.minimum(x, 80))))),
    "elu": (
        "elu_fast(a[i], 0.7f, 1.5f, 2.0f)",
        lambda x: 1.5 * np.where(x > 0, x, 0.7 * np.expm1(2 * np.minimum(x, 0))),
    ),
    "selu": (
        "selu_fast(a[i])",
        lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    ),
    "celu": ("celu_fast(a[i], 0.7f)", lambda x: np.where(x > 0, x, 0.7 * np.expm1(np.minimum(x, 0) / 0.7))),
    "softplus": (
        "softplus_fast(a[i], 2.0f, 20.0f)",
        lambda x: np.where(2 * x > 20, x, np.log1p(np.exp(np.minimum(2 * x, 20))) / 2),
    ),
}


@pytest.mark.parametrize("target", ["", "gfx942"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_relative_errors(name: str, target: str) -> None:
    """Below 1/64 of a unit of float16; exponentials below 2^-126 are 0."""
    call, wanted = FUNCTIONS[name]
    size = np.concatenate([np.exp2(np.linspace(-30, 4, 3000)), np.linspace(0.1, 0.5, 1000), np.linspace(16, 80, 500)])
    x = np.concatenate([size, -size]).astype(np.float32)
    exact = wanted(x.astype(np.float64))
    found = computed(call, x, x, target)
    assert (np.abs(found - exact) / np.maximum(np.abs(exact), 1e-32)).max() < 2.0**-17


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ends(name: str) -> None:
    module = {"expm1": torch.expm1, "sigmoid": torch.sigmoid}.get(name) or getattr(torch.nn.functional, name)
    x = torch.linspace(-100, 100, 1016).bfloat16()
    x[:6] = torch.tensor([INFINITY, -INFINITY, float("nan"), 0.0, -0.0, 3e38])
    assert f"{name}_fast(" in check(Op(lambda v: module(v)), [x], choices={f"map:{name}_kernel": "vector"})


def test_sides_of_a_choice_are_computed_before_it() -> None:
    """A call in one side alone would be a branch for every element."""
    x, model = torch.linspace(-10, 10, 1016).bfloat16(), Op(lambda v: torch.where(v > 0, v, torch.expm1(v) * 0.1))
    names = [key for key in space(captured(model, [x])) if key.startswith("map:")]
    text = check(model, [x], choices=dict.fromkeys(names, "vector"))
    assert "expm1_fast(" in text and not [line for line in text.splitlines() if "? " in line and "_fast(" in line]


def test_operands_and_epilogues_of_calls() -> None:
    """A pool of quotients, and an activation behind it; float results keep exact functions."""
    model = Op(lambda v: torch.nn.functional.silu(torch.nn.functional.avg_pool2d(v / (1 + v.abs()), 3, 2)))
    x = torch.randn(2, 4, 17, 30)
    for given, fast in ((x.half(), True), (x, False)):
        text = check(model, [given])
        assert ("divide_approx(" in text, "silu_fast(" in text) == (fast, fast)
