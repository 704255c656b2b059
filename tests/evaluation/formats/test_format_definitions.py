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
from hipwright.evaluation.formats.safetensors import stored
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
    norm, _, rope = FLASHINFER_TRACE.load(EXAMPLES / "flashinfer-trace")
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
    norm, _, rope = FLASHINFER_TRACE.load(folder)
    assert why in norm.problem and not rope.problem and rope.category == "rope"


def test_workloads_of_files_are_left_out_with_a_note(folder: Path) -> None:
    lines = (folder / WORKLOADS).read_text().splitlines()
    record = json.loads(lines[1])
    record["workload"]["inputs"]["x"] = {"type": "safetensors", "path": "blob/tables.safetensors", "tensor_key": "x"}
    (folder / WORKLOADS).write_text("\n".join([lines[0], json.dumps(record), lines[2]]))
    norm = next(iter(FLASHINFER_TRACE.load(folder)))
    why = "take tensors from safetensors files that are not here, or no small integer ones"
    assert norm.notes == (f"1 of 3 workloads {why}: not judged",) and "(1, 96)" not in norm.read()
    (folder / "blob" / "tables.safetensors").unlink()
    paged = list(FLASHINFER_TRACE.load(folder))[1]
    assert paged.problem.endswith(f"gather_pages_p4_d16.json: 2 of 2 workloads {why}: not judged")


def test_small_tables_are_read_from_their_file() -> None:
    paged = list(FLASHINFER_TRACE.load(EXAMPLES / "flashinfer-trace"))[1]
    names: dict[str, Any] = {}
    exec(paged.read(), names)
    pages, table, scale = names["get_inputs"]()
    assert pages.shape == (8, 4, 16) and table.tolist() == [[7, 0, 3], [2, 2, 6]] and scale == 0.5
    assert str(table.dtype) == "torch.int32" and names["get_input_groups"]()[0][1].tolist() == [[4], [0], [1]]


PAGED = "workloads/paged/gather_pages_p4_d16.jsonl"
TABLES: list[tuple[Callable[[dict[str, Any], dict[str, Any]], object], str]] = [
    (
        lambda source, header: source.update(tensor_key="z"),
        "inputs.table.tensor_key: blob/tables.safetensors has no 'z'",
    ),
    (lambda source, header: source.update(path="../far.safetensors"), "'../far.safetensors' is outside of the folder"),
    (lambda source, header: header["a"].update(dtype="F32"), "the file has F32 [2, 3], the definition int32 [2, 3]"),
    (lambda source, header: header["a"].update(shape=[3, 2]), "the file has I32 [3, 2], the definition int32 [2, 3]"),
    (lambda source, header: header["a"].update(data_offsets=[0, 8]), "the file has 8 bytes of 'a'"),
    (lambda source, header: header["a"].update(data_offsets=[8, 0]), "tables.safetensors: a: data_offsets 8 to 0"),
    (lambda source, header: header.update(a=3), "tables.safetensors: a: Expected `object`, got `int`"),
]


@pytest.mark.parametrize(("edit", "why"), TABLES, ids=[why[-40:].replace("/", " ") for _, why in TABLES])
def test_tables_that_do_not_fit(folder: Path, edit: Any, why: str) -> None:
    (folder.parent / "far.safetensors").write_bytes(b"secret")
    blob = folder / "blob" / "tables.safetensors"
    data = blob.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    first, *rest = (folder / PAGED).read_text().splitlines()
    record = json.loads(first)
    edit(record["workload"]["inputs"]["table"], header)
    (folder / PAGED).write_text("\n".join([json.dumps(record), *rest]))
    text = json.dumps(header).encode()
    blob.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    paged = list(FLASHINFER_TRACE.load(folder))[1]
    assert why in paged.problem, paged.problem


@given(st.binary(max_size=60))
def test_any_bytes_are_a_tensor_or_malformed(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    root = tmp_path_factory.mktemp("blob")
    for content in (data, len(data).to_bytes(8, "little") + data):
        (root / "t").write_bytes(content)
        with pytest.raises(Malformed, match=r"^here"):
            stored("t", "a", (2, 3), "int32", root, "here")


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
