"""`torch._scaled_mm` and dequantised products by the engine's own kernels, judged by the verifier on every side."""

from __future__ import annotations

import pytest

from hipwright.api.task_engine import task_engine
from hipwright.engine import space, write
from hipwright.events import silent
from hipwright.machine import Machine
from hipwright.records import Evaluation
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
        "        return torch._scaled_mm(x, self.w.t(), one, one, out_dtype=torch.float32).relu()",
        f"torch.randn(33, 64).to({FORM})",
    ),
    "dequantised": (
        f"{WEIGHT}; {SCALE}",
        "return x.float() @ (self.w.float().t() * self.s)",
        f"torch.randn(33, 64).to({FORM})",
    ),
}
WRONG = ("* CODE_SCALE", "* 1.001f * CODE_SCALE")


def judged_product(made: Machine, name: str, wrong: bool = False) -> Evaluation:
    """The evaluation of a program whose product is the template's; wrong: its sums are a little too large."""
    with made.open_text("scaled", task(*FAMILY[name]), seed=None, listener=silent) as bench:
        graph = task_engine(bench).graph
        calls = {k: "float8" for k, c in space(graph).items() if k.startswith("call:") and "float8" in c.options}
        assert calls
        program = write(graph, calls)
        assert WRONG[0] in program.text
        text = program.text.replace(*WRONG) if wrong else program.text
        return bench.evaluator.evaluate(type(program)(text=text, knobs=program.knobs), timed=False)


@pytest.mark.parametrize("name", FAMILY)
def test_the_template_is_right(name: str, made: Machine) -> None:
    found = judged_product(made, name)
    assert found.passed, (found.status, found.message)


@pytest.mark.parametrize("name", ["tensors", "dequantised"])
def test_a_wrong_scale_is_found(name: str, made: Machine) -> None:
    assert not judged_product(made, name, wrong=True).passed
