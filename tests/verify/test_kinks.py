"""Budgets where a sum is clipped, compared or rounded to whole numbers: the error is the sum's, not the result's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.sandbox import Zygote
from hipwright.task import open_source
from hipwright.task.nudges import NUDGES
from hipwright.tensors import HostTensor
from hipwright.verify import Oracle
from hipwright.verify.compare import compare
from hipwright.verify.expected import Expected, Rule
from hipwright.verify.inputs import nudge
from hipwright.verify.tolerance import strict_rule

Function = Callable[[np.ndarray], np.ndarray]
KINKS: dict[str, Function] = {
    "relu": lambda y: np.maximum(y, 0),
    "sparse relu": lambda y: np.maximum((y - 1.5) * 1.5, 0),
    "clamp": lambda y: np.clip(y, -0.5, 0.5),
    "leaky relu": lambda y: np.where(y > 0, y, y * 1e-4),
    "shrink": lambda y: np.sign(y) * np.maximum(np.abs(y) - 1.5, 0),
    "floor": lambda y: np.floor(y * 64),
    "where": lambda y: np.where(y > 0.25, y * 2, -y),
    "remainder": lambda y: np.mod(y, 0.125),
    "sign": np.sign,
}


def host(values: np.ndarray, dtype: str = "float32") -> HostTensor:
    return HostTensor.from_f64(np.asarray(values, np.float64), HostTensor.of(np.zeros(np.shape(values)), dtype))


def drawn(seed: int, terms: int, rows: int, spread: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs whose rows have magnitudes of 10 to the power of -spread to 1, and weights of unit results."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((rows, terms)) * 10.0 ** rng.uniform(-spread, 0, (rows, 1))).astype(np.float32)
    return x, (rng.standard_normal((terms, 40)) / np.sqrt(terms)).astype(np.float32)


def rule_of(function: Function, x: np.ndarray, w: np.ndarray) -> Rule:
    def run(way: int) -> HostTensor:
        a, b = (nudge([host(v)], 10 * (way > 0) + n, way=NUDGES[way])[0].to_f64() for n, v in enumerate((x, w)))
        return HostTensor.of(function(a @ b))

    native, exact = host(function(x @ w)), HostTensor.of(function(x.astype(np.float64) @ w.astype(np.float64)))
    return strict_rule("output", native, exact, [run(n) for n in range(len(NUDGES))], c=4.0, reduction=x.shape[1])


def in_blocks(x: np.ndarray, w: np.ndarray, length: int) -> np.ndarray:
    total = np.zeros((x.shape[0], w.shape[1]), np.float32)
    for start in range(0, x.shape[1], length):
        total += x[:, start : start + length] @ w[start : start + length]
    return total


@pytest.mark.parametrize("name", KINKS)
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    terms=st.sampled_from([64, 700, 2048]),
    rows=st.sampled_from([2, 12]),
    back=st.booleans(),
)
def test_other_orders_of_a_sum_pass_at_a_kink(name: str, seed: int, terms: int, rows: int, back: bool) -> None:
    x, w = drawn(seed, terms, rows, spread=3.0)
    rule = rule_of(KINKS[name], x, w)
    way = slice(None, None, -1 if back else 1)
    for length in (16, 37, terms // 2):
        honest = KINKS[name](in_blocks(x[:, way], w[way], length))
        found = compare(host(honest), Expected(rule))
        assert found.ok, found.message


@given(seed=st.integers(0, 2**32), times=st.sampled_from([60.0, 1e3]))
def test_small_positive_numbers_for_zeros_are_refused(seed: int, times: float) -> None:
    """A ReLU that gives more than an honest kernel's rounding of the sum where it should give 0."""
    x, w = drawn(seed, 256, 12)
    want = np.maximum(x.astype(np.float64) @ w, 0)
    rounding = np.abs((x @ w) - (x.astype(np.float64) @ w)).max(1, keepdims=True)
    rule = Expected(rule_of(KINKS["relu"], x, w))
    assert compare(host(want), rule).ok
    assert not compare(host(np.where(want == 0, times * rounding, want)), rule).ok
    one = np.zeros(want.shape, bool)
    one[tuple(np.argwhere(want == 0)[seed % (want == 0).sum()])] = True
    row = np.broadcast_to(rounding, want.shape)
    assert not compare(host(np.where(one, times * row, want)), rule).ok, "in one element alone"


@pytest.mark.parametrize("name", KINKS)
@given(seed=st.integers(0, 2**32))
def test_a_shorter_mantissa_and_a_shifted_threshold_are_refused(name: str, seed: int) -> None:
    x, w = drawn(seed, 256, 12)
    rule = Expected(rule_of(KINKS[name], x, w))
    shifted = KINKS[name](x.astype(np.float64) @ w + 0.1)
    assert not compare(host(shifted), rule).ok
    if name in ("relu", "leaky relu", "where"):
        half = x.astype(np.float16).astype(np.float64) @ w.astype(np.float16).astype(np.float64)
        assert not compare(host(KINKS[name](half)), rule).ok


TASK = """import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(48, 40)
    def forward(self, x):
        return {body}
def get_inputs():
    return [torch.randn(24, 48)]
def get_init_inputs():
    return []
"""


def test_an_input_at_a_named_threshold_is_judged(task_zygote: Zygote) -> None:
    """Inputs have not been rounded, so > and >= differ, however far a nudge moves them."""
    with open_source("threshold", TASK.format(body="torch.where(x > 0.5, x * 2, -x) + 0.0"), task_zygote) as handle:
        case = Oracle(handle, seed=3).case("given", "named_values")
    x = case.inputs[0].to_f64()
    assert (x == 0.5).any()
    right, other = (np.where(mask, x * 2, -x) for mask in (x > 0.5, x >= 0.5))
    got = {"outputs": host(right), "buffers": {}}
    assert compare(got, case.expected).ok
    assert not compare({**got, "outputs": host(other)}, case.expected).ok


def test_a_decision_on_a_rounded_sum_is_not_exact(task_zygote: Zygote) -> None:
    """The floor of a product with fractional weights is whole, and still no honest program's to the bit."""
    long = TASK.replace("48", "2048").format(body="torch.floor(self.linear(x) * 1024)")
    with open_source("floor", long, task_zygote) as handle:
        assert "rounds" in Oracle(handle, seed=3).case("given", "exact").rejected
    with open_source("plain", TASK.format(body="torch.relu(x.sum(-1))"), task_zygote) as handle:
        assert not Oracle(handle, seed=3).case("given", "exact").rejected


def test_whole_sums_beyond_the_accumulator_are_not_exact(task_zygote: Zygote) -> None:
    with open_source("far", TASK.format(body="(x * 4096).pow(2).sum()"), task_zygote) as handle:
        assert "rounds" in Oracle(handle, seed=3).case("given", "exact").rejected
