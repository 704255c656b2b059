"""What a pass rests on: trivial answers are rejected by enough judged cases, at shapes of the task's kind."""

from __future__ import annotations

import numpy as np
import pytest

from hipwright.task import open_source
from hipwright.verify.degenerate import MIN_DISCRIMINATING, TRIVIAL
from hipwright.verify.evidence import JudgedEvidence
from hipwright.verify.oracle import MUTATED, Oracle
from hipwright.verify.sensitivity import dropped_element

ROWS, LABELS = "torch.randn(9, 40)", "torch.randn(9, 40), torch.randint(0, 40, (9,))"
WHOLE = "torch.randint(0, 99, (9, 40)), torch.randint(0, 99, (9, 40))"
HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"


def task(body: str, inputs: str, init: str = "") -> str:
    made = f"    def __init__(self):\n        super().__init__()\n        {init}\n" if init else ""
    forward = f"    def forward(self, x, *more):\n        return {body}\n"
    return f"{HEAD}class Model(nn.Module):\n{made}{forward}def get_inputs():\n    return [{inputs}]\n"


@pytest.fixture
def oracle_of(task_zygote):
    opened = []

    def make(source: str) -> Oracle:
        handle = open_source("task", source, task_zygote)
        opened.append(handle)
        return Oracle(handle, seed=3)

    yield make
    for handle in opened:
        handle.close()


def test_mostly_infinite_references_are_judged_at_shapes_of_their_kind(oracle_of) -> None:
    """A cumulative sum whose given outputs are mostly Inf is not judged at width 1, where it is the identity."""
    body = "torch.where(x > 2.5, torch.full_like(x, float('inf')), x).cumsum(-1)"
    oracle = oracle_of(task(body, "torch.randn(4, 3000)"))
    main = oracle.planned()[0].workload
    assert main.specs[0].shape[-1] > 100 and oracle.of_kind(main.name)
    assert oracle.status() is None


def test_a_dimension_shrunk_to_one_is_not_of_the_tasks_kind(oracle_of) -> None:
    oracle = oracle_of(task("x.softmax(-1)", "torch.randn(6, 40)"))
    kinds = {p.workload.specs[0].shape: oracle.of_kind(p.workload.name) for p in oracle.planned()}
    assert all(of_kind == (1 not in shape) for shape, of_kind in kinds.items()) and not all(kinds.values())


def test_the_main_shapes_are_of_the_tasks_kind_where_any_are(oracle_of) -> None:
    """Sounds of one length, of which a batch can be smaller alone: those of one sound prove nothing."""
    body = "F.avg_pool1d(x.view(x.shape[0], 1, 64000), 5).view(x.shape[0], 12800).softmax(-1)"
    planned = (oracle := oracle_of(task(body, "torch.rand(2, 64000)"))).planned()
    assert [(one.role, oracle.of_kind(one.workload.name)) for one in planned] == [("families", True), ("unseen", False)]
    assert oracle.status() is None


def test_too_little_evidence_is_degenerate_for_the_task_and_for_a_program(oracle_of) -> None:
    constant = oracle_of(task("torch.ones_like(x)", "torch.randn(5, 7)"))
    assert constant.status()[0] == "degenerate"
    oracle = oracle_of(task("x.tanh()", "torch.randn(5, 7)"))
    judged = JudgedEvidence(oracle)
    name = oracle.planned()[0].workload.name
    for count, family in enumerate(("normal", "given", "uniform"), 1):
        judged.add(oracle.case(name, family))
        assert bool(judged.lacking()) == (count < MIN_DISCRIMINATING)
    assert judged.to_dict()["rejecting"] == dict.fromkeys(TRIVIAL, MIN_DISCRIMINATING)


def test_one_term_left_out_of_a_long_bfloat16_mean_is_far_outside_the_budget(oracle_of) -> None:
    oracle = oracle_of(task("x.float().mean(-1).to(torch.bfloat16)", "torch.randn(8, 16384, dtype=torch.bfloat16)"))
    case = oracle.case("given", "exact")
    assert case.counts
    rule = case.expected.tree["outputs"]
    values = case.inputs[0].to_f64()
    rng = np.random.default_rng(1)
    for column in rng.integers(0, values.shape[1], 40):
        kept = np.delete(values, column, axis=1).sum(-1) / values.shape[1]
        assert (np.abs(kept - rule.expected) > rule.element).any(), column


def test_the_second_call_of_a_product_has_whole_parameters_and_no_rounding(oracle_of) -> None:
    init = "self.w = nn.Parameter(torch.randn(96, 64))"
    oracle = oracle_of(task("x @ self.w", "torch.randn(50, 96)", init))
    case = oracle.case(oracle.planned()[0].workload.name, MUTATED)
    assert not case.rejected
    rule = case.expected.tree["outputs"]
    assert np.array_equal(rule.expected, np.round(rule.expected)) and rule.element.max() < 0.5
    softmax = oracle_of(task("(x @ self.w).softmax(-1)", "torch.randn(50, 96)", init))
    assert not softmax.case(softmax.planned()[0].workload.name, MUTATED).rejected, "falls back to values that round"


@pytest.mark.parametrize(
    ("body", "inputs", "families"),
    [
        ("torch.nan_to_num(x, nan=3.0)", ROWS, {"nan_values"}),
        ("torch.where(x != x, 0.0, x)", ROWS, {"nan_values", "infinities"}),
        (
            "F.cross_entropy(x, more[0], ignore_index=-7)",
            "torch.randn(9, 40), torch.randint(0, 40, (9,))",
            {"named_values"},
        ),
        (
            "(x * more[0] + 5) % 10007",
            "torch.randint(0, 99, (9, 40)), torch.randint(0, 99, (9, 40))",
            {"wide_integers"},
        ),
        ("x.clamp(-0.25, 0.75)", "torch.rand(9, 40)", {"named_values"}),
    ],
)
def test_values_that_the_reference_names_are_tried(oracle_of, body: str, inputs: str, families: set[str]) -> None:
    oracle = oracle_of(task(body, inputs))
    name = oracle.planned()[0].workload.name
    assert families <= set(oracle.families(name))
    assert all(not oracle.case(name, family).rejected for family in families)


def test_a_default_that_the_task_does_not_write_names_nothing(oracle_of) -> None:
    oracle = oracle_of(task("F.cross_entropy(x, more[0])", LABELS))
    assert "named_values" not in oracle.families(oracle.planned()[0].workload.name)
    assert not oracle.special.nonfinite and not oracle.special.arithmetic


@pytest.mark.parametrize(
    ("body", "inputs", "least"),
    [
        ("x.sum(-1)", "torch.randn(6, 20000)", 1.0),
        ("x.float().mean(-1).to(torch.bfloat16)", "torch.randn(8, 16384, dtype=torch.bfloat16)", 1.0),
        ("x.softmax(-1)", "torch.randn(12, 700)", 1.0),
        ("x.amax(-1)", "torch.randn(400, 40)", 0.9),
    ],
)
def test_one_dropped_element_is_found_with_the_stated_probability(oracle_of, body, inputs, least) -> None:
    found = dropped_element(oracle_of(task(body, inputs)), "given")
    assert found.share >= least, found


def test_a_dropped_element_that_no_result_depends_on_is_not_counted(oracle_of) -> None:
    found = dropped_element(oracle_of(task("x[:, :4].tanh()", "torch.randn(9, 64)")), "given")
    assert found.tried < 12 and found.found == found.tried


def test_values_beyond_the_range_of_half_are_drawn_where_the_reference_keeps_them(oracle_of) -> None:
    """A float32 result that saturates at 65504 is wrong; a reference that overflows gets smaller values."""
    for body, least, most in (("x * 3", 1e6, 1e8), ("x.pow(8).mean(-1)", 0.0, 1e5)):
        oracle = oracle_of(task(body, "torch.randn(9, 40)"))
        case = oracle.case(oracle.planned()[0].workload.name, "large")
        top = np.abs(case.inputs[0].to_f64()).max()
        assert case.counts and least < top < most


def test_infinities_are_judged_where_they_become_the_largest_numbers(oracle_of) -> None:
    oracle = oracle_of(task("torch.nan_to_num(x)", "torch.randn(9, 40)"))
    case = oracle.case(oracle.planned()[0].workload.name, "infinities")
    assert case.counts, case.rejected
