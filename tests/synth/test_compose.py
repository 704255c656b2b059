"""Compositions: every draft runs and gives finite, varying outputs; what the drafts contain."""

from __future__ import annotations

import ast
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.errors import BadInput
from hipwright.synth.check import check_text
from hipwright.synth.compose import compose, lead_operator
from hipwright.synth.constrain import TaskConstraints
from hipwright.synth.library import BY_NAME, LIBRARY
from hipwright.synth.records import Draft
from tests.synth.drafts import namespace, outputs

VARIES = {"torch.float32": 2e-4, "torch.bfloat16": 0.02, "torch.float16": 0.005}


def compose_many(count: int, seed: str = "test") -> list[Draft]:
    return [compose(random.Random(f"{seed} {number}"), lead=lead_operator(number)) for number in range(count)]


@pytest.fixture(scope="module")
def drafts() -> list[Draft]:
    return compose_many(500)


def dtype_of(draft: Draft) -> str:
    return (ast.get_docstring(ast.parse(draft.source)) or "").rsplit(" in ", 1)[1].rstrip(".")


def test_drafts_run_and_give_varying_outputs(drafts: list[Draft]) -> None:
    assert not _faulty(drafts[:60])


@pytest.mark.slow
def test_many_drafts_run_and_give_varying_outputs(drafts: list[Draft]) -> None:
    assert not _faulty(drafts[60:360])


def _faulty(drafts: list[Draft]) -> dict[str, str]:
    return {draft.name: why for draft in drafts if (why := _fault(draft))}


def _fault(draft: Draft) -> str:
    import torch

    check_text(draft.source)
    dtype = dtype_of(draft)
    for number, found in enumerate(outputs(draft)):
        if found.dtype == torch.int64:
            if found.numel() > 16 and len(found.unique()) < 2:
                return f"output {number} is one number everywhere"
            continue
        if str(found.dtype) != f"torch.{dtype}":
            return f"output {number} is {found.dtype}, not {dtype}"
        if not torch.isfinite(found).all():
            return f"output {number} is not finite"
        values = found.double()
        if found.numel() > 1 and values.std() <= VARIES[str(found.dtype)] * values.mean().abs():
            return f"output {number} is nearly a constant"
        if not values.any():
            return f"output {number} is zero"
    return ""


def test_other_inputs_give_other_outputs(drafts: list[Draft]) -> None:
    import torch

    for draft in drafts[400:440]:
        made = namespace(draft)
        model = made["Model"](*made["get_init_inputs"]())
        with torch.no_grad():
            first, second = (model(*made["get_inputs"]()) for _ in range(2))
        pairs = zip(first, second, strict=True) if isinstance(first, tuple) else [(first, second)]
        assert not all(torch.equal(a, b) for a, b in pairs), draft.name


def test_the_distribution_of_drafts(drafts: list[Draft]) -> None:
    used = Counter(name for draft in drafts for name in draft.operators)
    assert set(used) == set(BY_NAME)
    dtypes = Counter(map(dtype_of, drafts))
    assert 200 <= dtypes["float32"] <= 300
    assert min(dtypes["float16"], dtypes["bfloat16"]) >= 90
    fused = [sum(not (BY_NAME[name].library or BY_NAME[name].view) for name in draft.operators) for draft in drafts]
    assert sum(count >= 3 for count in fused) >= 0.4 * len(drafts)
    assert max(fused) <= 12
    library = sum(any(BY_NAME[name].library for name in draft.operators) for draft in drafts)
    assert 0.08 * len(drafts) <= library <= 0.22 * len(drafts)
    several = sum("return" in line and "," in line for draft in drafts for line in _forward(draft)[-1:])
    assert several >= 0.15 * len(drafts)
    assert len({draft.source for draft in drafts}) == len({draft.name for draft in drafts}) == len(drafts)


def _forward(draft: Draft) -> list[str]:
    lines = draft.source.splitlines()
    start = next(number for number, line in enumerate(lines) if "def forward" in line)
    return [line for line in lines[start : lines.index("def get_inputs():")] if line.strip()]


def test_every_name_input_and_parameter_is_used(drafts: list[Draft]) -> None:
    """Each name that forward assigns, each input and each parameter is read."""
    for draft in drafts:
        body = "\n".join(_forward(draft)[1:])
        tree = ast.parse(draft.source)
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        written = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        assert written <= read, (draft.name, written - read)
        arguments = next(
            node.args.args for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "forward"
        )
        assert {one.arg for one in arguments[1:]} <= read, draft.name
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                assert f"self.{node.attr}" in body, (draft.name, node.attr)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**64))
def test_equal_seeds_give_equal_drafts(seed: int) -> None:
    assert compose(random.Random(seed)) == compose(random.Random(seed))


def test_the_lead_operator_is_in_the_draft() -> None:
    for number in range(len(LIBRARY)):
        assert lead_operator(number) in compose(random.Random(number), lead=lead_operator(number)).operators


def test_constraints_are_met() -> None:
    constraints = TaskConstraints(dtype="bfloat16", outputs=3, operators=("softmax", "pooling"), ndim=3, fused=(3, 6))
    for number in range(8):
        draft = compose(random.Random(number), constraints=constraints)
        assert draft.mode == "constraint"
        assert dtype_of(draft) == "bfloat16"
        assert "softmax" in {BY_NAME[name].family for name in draft.operators}
        assert "pooling" in {BY_NAME[name].family for name in draft.operators}
        assert len(outputs(draft)) == 3


def test_at_most_so_many_elements_has_no_lower_bound() -> None:
    draft = compose(random.Random(1), constraints=TaskConstraints(elements=(0, 4000)))
    assert draft.mode == "constraint"


def test_impossible_constraints_are_bad_input() -> None:
    with pytest.raises(BadInput, match="no operator or family"):
        compose(random.Random(0), constraints=TaskConstraints(operators=("teleport",)))
    with pytest.raises(BadInput, match="no composition"):
        compose(random.Random(0), constraints=TaskConstraints(operators=("max_pool2d",), ndim=2))
