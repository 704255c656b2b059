"""Cases made from real tasks in a real task host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hipwright.errors import TaskError
from hipwright.program import parse
from hipwright.records import Program, TolerancePolicy
from hipwright.sandbox import Zygote
from hipwright.task import open_task
from hipwright.tensors import tensor_leaves
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.verify import Oracle, verify_cpu
from hipwright.verify.compare import compare
from hipwright.verify.expected import rules
from hipwright.verify.oracle import MUTATED


def write(folder: Path, body: str, inputs: str, init: str = "[]", setup: str = "pass") -> Path:
    path = folder / "task.py"
    path.write_text(
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
        "class Model(nn.Module):\n"
        f"    def __init__(self, *args):\n        super().__init__()\n        {setup}\n\n"
        f"    def forward(self, *args):\n        {body}\n\n\n"
        f"def get_inputs():\n    return {inputs}\n\n\ndef get_init_inputs():\n    return {init}\n"
    )
    return path


@pytest.fixture
def oracle(tmp_path: Path, task_zygote: Zygote) -> Any:
    handles = []

    def make(body: str, inputs: str, setup: str = "pass", **options: Any) -> Oracle:
        handles.append(open_task(write(tmp_path, body, inputs, setup=setup), task_zygote))
        return Oracle(handles[-1], seed=options.pop("seed", 5), **options)

    yield make
    for handle in handles:
        handle.close()


def main(oracle: Oracle) -> str:
    return oracle.planned()[0].workload.name


def outcomes(oracle: Oracle) -> dict[str, str]:
    name = main(oracle)
    return {f: (c := oracle.case(name, f)).rejected or c.degenerate for f in oracle.families(name)}


@pytest.mark.slow
def test_the_honest_baseline_passes_every_family(tasks: Any) -> None:
    for name in ("linear", "layer_norm", "half_residual", "batch_norm", "row_max", "masked_fill"):
        oracle = tasks.oracle(name)
        workload = main(oracle)
        for family in (*oracle.families(workload), MUTATED):
            case = oracle.case(workload, family)
            if case.rejected:
                continue
            outputs, buffers, _ = oracle.handle.reference(case.inputs, case.state, dtype="native")
            found = compare({"outputs": outputs, "buffers": buffers}, case.expected)
            assert found.ok and found.worst_error < 0.6, f"{name} {case.name}: {found.message or found.worst_error}"


def test_a_case_is_made_once_and_again_from_its_seed(tasks: Any) -> None:
    first = tasks.oracle("linear")
    case = first.case(main(first), "normal")
    assert first.case(main(first), "normal") is case
    again = Oracle(first.handle, seed=first.seed).case(main(first), "normal")
    other = Oracle(first.handle, seed=first.seed + 1).case(main(first), "normal")
    values = [tensor_leaves(c.inputs)[0].to_f64() for c in (case, again, other)]
    assert np.array_equal(values[0], values[1]) and not np.array_equal(values[0], values[2])


def test_seeds_are_secret_unless_given(tasks: Any) -> None:
    handle = tasks.oracle("linear").handle
    assert Oracle(handle).seed != Oracle(handle).seed


def test_parameters_are_not_inert(tasks: Any) -> None:
    oracle = tasks.oracle("batch_norm")
    state = oracle.case(main(oracle), "given").state
    for leaf in tensor_leaves((state["params"], state["buffers"])):
        if leaf.is_float:
            assert not np.isin(leaf.to_f64(), (0.0, 1.0)).any()


def test_the_budget_knows_how_inputs_condition_the_result(tasks: Any) -> None:
    """A mean of 30 standard deviations costs a layer norm 30 times the rounding, and the budget follows."""
    oracle = tasks.oracle("layer_norm")
    usual, shifted = (
        np.median(rules(oracle.case(main(oracle), family).expected.tree)[0].row) for family in ("normal", "shifted")
    )
    assert 5 < shifted / usual < 60


def test_positive_domains_are_kept(oracle: Any) -> None:
    made = oracle(
        "return F.binary_cross_entropy(args[0], args[1], reduction='none')", "[torch.rand(16, 33), torch.rand(16, 33)]"
    )
    found = outcomes(made)
    assert [f for f in ("normal", "outliers", "uniform", "mantissa") if found[f]] == []
    values = tensor_leaves(made.case(main(made), "normal").inputs)[0].to_f64()
    assert values.min() >= 0 and values.max() <= 1


def test_signed_inputs_reach_a_relu_that_was_given_positive_ones(oracle: Any) -> None:
    made = oracle("return torch.relu(args[0])", "[torch.rand(16, 33)]")
    found = outcomes(made)
    assert "input" in found["given"] and found["normal"] == ""
    assert made.status() is None


def test_overflowing_families_are_rejected_and_large_is_tried_smaller(oracle: Any) -> None:
    made = oracle("return args[0] ** 4", "[torch.randn(16, 33).half()]")
    found = outcomes(made)
    assert found["outliers"] and found["normal"] == ""
    wide = oracle("return torch.exp(args[0] / 50)", "[torch.randn(16, 33)]")
    assert outcomes(wide)["large"] == ""


@pytest.mark.slow
def test_a_task_that_proves_nothing_is_degenerate(oracle: Any) -> None:
    for body in ("return args[0] * 0.0", "return args[0].clone()", "return torch.zeros(3, 0)"):
        status = oracle(body, "[torch.randn(8, 40)]").status()
        assert status is not None and status[0] == "degenerate", body


def test_a_task_that_draws_by_torch_is_judged(oracle: Any) -> None:
    drawn = oracle("return F.dropout(args[0], 0.5, training=True)", "[torch.randn(8, 40)]")
    assert drawn.status() is None and drawn.side_effects.draws


def test_an_input_that_the_reference_writes_is_an_output(oracle: Any) -> None:
    made = oracle("return args[0].mul_(2.0) + args[1]", "[torch.randn(8, 40), torch.randn(8, 40)]")
    assert made.status() is None and made.side_effects.written == ("inputs[0]",)
    case = made.case(made.first_workload(), "normal")
    assert case.written == ("inputs[0]",) and case.settings == {"written": ["inputs[0]"]}


def test_without_float64_c_is_twice_as_large(oracle: Any) -> None:
    body = "return torch.exp(args[0] * 9.0)"
    usual = oracle(body, "[torch.randn(8, 40)]")
    narrow = oracle(f"assert args[0].dtype != torch.float64\n        {body}", "[torch.randn(8, 40)]")
    halved = Oracle(narrow.handle, seed=narrow.seed, policy=TolerancePolicy(c=2.0))
    expected = [o.case(main(o), "uniform").expected for o in (usual, narrow, halved)]
    assert [e.reference_dtype for e in expected] == ["float64", "native", "native"]
    whole, half = (np.median(rules(e.tree)[0].row) for e in expected[1:])
    assert 1.9 < whole / half < 2.1
    assert rules(expected[1].tree)[0].row.max() > rules(expected[0].tree)[0].row.max()


def test_an_input_handed_on_by_the_reference_may_be_handed_on(oracle: Any) -> None:
    made = oracle("return args[0], args[0] * 2", "[torch.randn(8, 40)]")
    assert ("output[0]", "inputs[0]") in made.case(main(made), "normal").expected.aliases


def test_buffers_that_change_are_outputs(tasks: Any) -> None:
    oracle = tasks.oracle("batch_norm")
    found = {rule.path: rule for rule in rules(oracle.case(main(oracle), "normal").expected.tree)}
    assert found["buffer bn.running_var"].element is not None and found["buffer bn.running_var"].evidence
    assert found["buffer bn.num_batches_tracked"].element is None


def test_kernelbench_mode_has_five_trials_and_initial_parameters(tasks: Any) -> None:
    handle = tasks.oracle("scale_bias").handle
    made = Oracle(handle, seed=3, policy=TolerancePolicy(mode="kernelbench"))
    name = main(made)
    assert len(made.families(name)) == 5
    case = made.case(name, "trial1")
    assert (tensor_leaves(case.state["params"])[1].to_f64() == 0).all()
    assert rules(case.expected.tree)[0].element.max() >= 1e-4


FIXED = "assert args[0].shape == (100, 50)\n        return torch.relu(args[0] * self.scale)"
SCALE = "self.scale = nn.Parameter(torch.rand(50))"


def test_a_task_of_one_shape_is_judged_there_although_it_is_large(oracle: Any) -> None:
    made = oracle(FIXED, "[torch.randn(100, 50)]", SCALE, full_elements=10)
    assert [(planned.workload.name, planned.role) for planned in made.planned()] == [("given", "full")]
    assert made.skipped == {} and made.last == {"given"}
    case = made.case("given", "normal")
    assert "other_inputs" in case.rejects and not case.degenerate


def test_a_task_that_is_too_large_everywhere_says_so(oracle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipwright.verify.oracle.LAST_ELEMENTS", 20)
    made = oracle(FIXED, "[torch.randn(100, 50)]", SCALE, full_elements=10)
    with pytest.raises(TaskError, match="too large for the cpu target and no smaller shapes"):
        made.planned()


STATIC = """
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
'''


def forward(self, x):
    assert x.shape[0] == 600 and x.shape[1] == 7, "the kernels are written for these sizes"
    x = x.contiguous()
    y = torch.empty_like(x)
    relu[cdiv(x.numel(), 64), 64](x, y, x.numel())
    return y
"""


def test_a_program_of_one_shape_is_judged_there(oracle: Any, candidates: Zygote, cache: BuildCache) -> None:
    """Its guard refuses every smaller shape; few families run at the task's own."""
    made = oracle("return torch.relu(args[0])", "[torch.randn(600, 7)]", full_elements=100)
    parsed = parse(STATIC)
    kinds = [(64, True), (64, False)]
    builds = {k: cpu.build(parsed.hip, parsed.defines(), wave=k[0], checked=k[1], cache=cache) for k in kinds}
    for _ in range(2):
        verdict = verify_cpu(parsed, Program(text=STATIC), builds, made, candidates, waves=(64,), cache=cache)
        assert verdict.passed, verdict.message
        assert verdict.workloads == ("given",) and "given" not in verdict.skipped
        assert "few families" in verdict.skipped["given/tiny"]
        assert any("does not claim this shape" in why for why in verdict.skipped.values())
