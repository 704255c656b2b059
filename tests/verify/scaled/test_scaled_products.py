"""`torch._scaled_mm` and dequantised products by the engine's own kernels, judged by the verifier on every side."""

from __future__ import annotations

import pytest
import torch

from hipwright.api.task_engine import task_engine
from hipwright.engine import space, write
from hipwright.events import silent
from hipwright.machine import Machine
from hipwright.records import Evaluation
from hipwright.task.host.double_precision import float64, widen
from tests.verify.written_tasks import task

FORM = "torch.float8_e4m3fn"
WEIGHT = f"self.register_buffer('w', torch.randn(40, 64).to({FORM}))"
SCALE = "self.register_buffer('s', torch.rand(1, 40) + 0.5)"
FAMILY = {
    "rows": (
        f"{WEIGHT}; {SCALE}",
        "s = x.abs().amax(-1, keepdim=True) / 448\n"
        f"        return torch._scaled_mm((x / s).to({FORM}), self.w.t(), s, self.s, out_dtype=torch.bfloat16)",
        "torch.randn(33, 64)",
    ),
    "tensors": (
        WEIGHT,
        "one = torch.full((), 0.25)\n"
        f"        return torch._scaled_mm(x.to({FORM}), self.w.t(), one, one, out_dtype=torch.float32).relu()",
        "torch.randn(33, 64)",
    ),
    "dequantised": (
        f"{WEIGHT}; {SCALE}",
        "return x.float() @ (self.w.float().t() * self.s)",
        f"torch.randn(33, 64).to({FORM})",
    ),
}
SCALED, NOT_SCALED = "* CODE_SCALE", "* 1.0f"
"""Where MFMA reads e4m3fn as halves, as on gfx942, each sum is a quarter of the product."""


def judged_product(made: Machine, name: str, wrong: str = "") -> Evaluation:
    """The evaluation of a program whose product is the template's; wrong: by what its sums are scaled instead."""
    with made.open_text("scaled", task(*FAMILY[name]), seed=None, listener=silent) as bench:
        graph = task_engine(bench).graph
        calls = {k: "float8" for k, c in space(graph).items() if k.startswith("call:") and "float8" in c.options}
        assert calls
        program = write(graph, calls)
        assert SCALED in program.text
        text = program.text.replace(SCALED, wrong or SCALED)
        return bench.evaluator.evaluate(type(program)(text=text, knobs=program.knobs), timed=False)


@pytest.mark.parametrize("name", FAMILY)
def test_the_template_is_right(name: str, made: Machine) -> None:
    found = judged_product(made, name)
    assert found.passed, (found.status, found.message)


@pytest.mark.parametrize("name", ["tensors", "dequantised"])
def test_a_sum_that_is_wrong_on_one_side_is_found(name: str, made: Machine) -> None:
    found = judged_product(made, name, wrong=NOT_SCALED)
    assert found.status == "wrong_value", (found.status, found.message)


@pytest.mark.parametrize("factor", [1.02, 0.98])
def test_8_bit_operands_are_exact_so_that_a_sum_that_is_a_little_off_is_found(factor: float, made: Machine) -> None:
    found = judged_product(made, "dequantised", wrong=f"{SCALED} * {factor}f")
    assert found.status == "wrong_value", (found.status, found.message)


@pytest.mark.parametrize("rows", [False, True])
def test_the_operator_has_a_float64_form(rows: bool) -> None:
    """What the reference computes in float64, where torch has 8-bit operands only."""
    a, b = (torch.randn(size, 24).to(torch.float8_e4m3fn) for size in (6, 9))
    scales = [torch.rand(6, 1), torch.rand(1, 9)] if rows else [torch.rand(()), torch.rand(1)]
    given = [widen(t, {}) for t in (a, b.t(), *scales, torch.randn(9).bfloat16())]
    with float64():
        made = torch._scaled_mm(*given, out_dtype=torch.bfloat16)
    x, y, s, t, bias = given
    assert made.dtype == torch.float64
    assert torch.allclose(made, (x @ y) * s * t + bias, rtol=1e-14)
