"""Definitions and workloads (flashinfer-trace, SOL-ExecBench): axes, inputs, and what is wrong with malformed ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from format_contract import EXAMPLES
from hypothesis import given
from hypothesis import strategies as st

from hipwright.evaluation.formats.definitions import MAX_GROUPS, evaluated
from hipwright.evaluation.formats.flashinfer_trace import FLASHINFER_TRACE
from hipwright.evaluation.formats.read import Malformed
from hipwright.evaluation.formats.sol_execbench import SOL_EXECBENCH

AXES = {"a": 12, "b": 5, "c_2": 7}
TERMS = st.recursive(
    st.sampled_from([*AXES, "1", "3", "40"]),
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner),
    max_leaves=8,
)


@given(TERMS)
def test_an_axis_expression_is_pythons_arithmetic(text: str) -> None:
    try:
        want = eval(text, {}, AXES)
    except ZeroDivisionError:
        with pytest.raises(Malformed):
            evaluated(text, AXES, "here")
        return
    assert evaluated(text, AXES, "here") == want


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a / b", "2.4 is no whole number"),
        ("heads * a", "no axis heads"),
        ("__import__('os')", "is no arithmetic of axes"),
        ("a ** 4000", "its power is too large"),
        ("9 ** 64 ** 2", "its power is too large"),
        ("(-8) ** (1 / 2)", "its value is no size"),
        ("a if b else 1", "is no arithmetic"),
        ("True + a", "is no arithmetic"),
        ("a +", "invalid syntax"),
    ],
)
def test_other_expressions_are_refused(text: str, why: str) -> None:
    with pytest.raises(Malformed, match=r"^here: ") as caught:
        evaluated(text, AXES, "here")
    assert why in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_is_a_number_or_malformed(text: str) -> None:
    try:
        assert isinstance(evaluated(text, AXES, "here"), int)
    except Malformed as error:
        assert str(error).startswith("here")


def test_workloads_become_inputs_and_groups() -> None:
    norm, rope = FLASHINFER_TRACE.load(EXAMPLES / "flashinfer-trace")
    assert (norm.name, norm.category, rope.category) == ("norm/rms_rows_h96", "norm", "rope")
    text = norm.read()
    assert "return [torch.randn((48, 96)).to(torch.float16), torch.randn((96,)), 1e-06]" in text
    assert "[torch.randn((17, 96)).to(torch.float16), torch.randn((96,)), 1e-05]," in text
    assert "def forward(self, x, weight, eps):\n        assert (x.shape[1], weight.shape[0], ) == (96, 96, )" in text
    assert text.count("        return run(x, weight, eps)") == 1


def test_expressions_custom_inputs_and_tolerances() -> None:
    scaled, ragged = SOL_EXECBENCH.load(EXAMPLES / "sol-execbench")
    assert "torch.randn((64, 4, 24)).to(torch.bfloat16)" in scaled.read()
    assert scaled.rule is not None and (scaled.rule.atol, scaled.rule.matched) == (0.02, 0.99)
    assert "ragged({'rows': 60, 'groups': 6, 'width': 48}, torch.get_default_device())" in ragged.read()
    assert scaled.read().startswith("# not for training: its problems are under NVIDIA's")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES / "flashinfer-trace", tmp_path / "trace")
    return tmp_path / "trace"


DEFINITION = "definitions/norm/rms_rows_h96.json"
WORKLOADS = "workloads/norm/rms_rows_h96.jsonl"
Edit = Callable[[dict[str, Any]], object]
MALFORMED: list[tuple[str, Edit, str]] = [
    (DEFINITION, lambda one: one.pop("axes"), f"{DEFINITION}: axes: missing"),
    (DEFINITION, lambda one: one.pop("op_type"), f"{DEFINITION}: op_type: missing"),
    (DEFINITION, lambda one: one["inputs"]["x"].pop("dtype"), "inputs[...].dtype: missing"),
    (DEFINITION, lambda one: one["axes"].update(rows={"type": "free"}), "axes[...].type: Invalid value 'free'"),
    (DEFINITION, lambda one: one["axes"].update(hidden={"type": "const", "value": "wide"}), "axes[...].value: "),
    (DEFINITION, lambda one: one["inputs"]["x"].update(dtype="float4_e2m1"), "inputs.x.dtype: float4_e2m1"),
    (DEFINITION, lambda one: one["inputs"]["x"].update(shape=["rows", "width"]), "inputs.x.shape: no axis width"),
    (DEFINITION, lambda one: one["inputs"].update({"a b": one["inputs"]["x"]}), 'inputs: "a b" is no name'),
    (DEFINITION, lambda one: one.update(reference="def run(:\n"), "reference line 1: no Python"),
    (DEFINITION, lambda one: one.update(reference="import torch\n"), "reference: no function run"),
    (DEFINITION, lambda one: one.update(name="../../secret"), 'name: "../../secret" is no name'),
    (DEFINITION, lambda one: one.update(name="other"), f"{DEFINITION}: it has no workload"),
    (WORKLOADS, lambda one: one.pop("workload"), f"{WORKLOADS} line 1: workload: missing"),
    (WORKLOADS, lambda one: one["workload"]["axes"].clear(), "workload rows-48: axes.rows: missing"),
    (WORKLOADS, lambda one: one["workload"]["axes"].update(rows=-3), "axes.rows: -3 is no size"),
    (WORKLOADS, lambda one: one["workload"]["inputs"].pop("weight"), "inputs.weight: missing"),
    (WORKLOADS, lambda one: one["workload"]["inputs"]["eps"].pop("value"), "inputs.eps.value: missing"),
    (WORKLOADS, lambda one: one["workload"]["inputs"].update(eps={"type": "random"}), "inputs.eps: a plain number"),
    (WORKLOADS, lambda one: one["workload"]["inputs"].update(eps={"type": "custom"}), "no custom_inputs_entrypoint"),
]


@pytest.mark.parametrize(("file", "edit", "why"), MALFORMED, ids=[why.replace("/", " ") for *_, why in MALFORMED])
def test_a_malformed_one_is_named_and_the_other_is_kept(folder: Path, file: str, edit: Edit, why: str) -> None:
    first, *rest = (folder / file).read_text().splitlines() if file == WORKLOADS else [(folder / file).read_text()]
    record = json.loads(first)
    edit(record)
    (folder / file).write_text("\n".join([json.dumps(record), *rest]) + "\n")
    norm, rope = FLASHINFER_TRACE.load(folder)
    assert why in norm.problem and not rope.problem and rope.category == "rope"


def test_workloads_of_files_are_left_out_with_a_note(folder: Path) -> None:
    lines = (folder / WORKLOADS).read_text().splitlines()
    record = json.loads(lines[1])
    record["workload"]["inputs"]["x"] = {"type": "safetensors", "path": "blob/x.safetensors", "tensor_key": "x"}
    (folder / WORKLOADS).write_text("\n".join([lines[0], json.dumps(record), lines[2]]))
    norm = next(iter(FLASHINFER_TRACE.load(folder)))
    assert norm.notes == ("1 of 3 workloads take tensors from safetensors files: not judged",)
    assert "(1, 96)" not in norm.read()


def test_of_many_workloads_some_are_judged(folder: Path) -> None:
    record = json.loads((folder / WORKLOADS).read_text().splitlines()[0])
    lines = []
    for rows in range(1, 101):
        record["workload"]["axes"]["rows"] = rows
        lines.append(json.dumps(record))
    (folder / WORKLOADS).write_text("\n".join(lines))
    norm = next(iter(FLASHINFER_TRACE.load(folder)))
    assert norm.notes == (f"{MAX_GROUPS} of 100 workloads are judged, at even distances",)
    assert norm.read().count("torch.randn((") == 2 * MAX_GROUPS and "(100, 96)" in norm.read()
