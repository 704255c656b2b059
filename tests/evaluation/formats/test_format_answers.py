"""Answers in other formats' own layouts: which task each belongs to, and what is wrong with one that is none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from format_contract import EXAMPLES

from hipwright.errors import BadInput
from hipwright.evaluation.suite import Matched, find_tasks, match_candidates

MINE = {
    "backendbench": {"pointwise/hardswish__default": 1, "reduction/mean__dim": 1},
    "flashinfer-trace": {"norm/rms_rows_h96": 1, "rope/turn_halves_d32": 2},
    "gpu-mode": {"first_set/shifted_sum": 1, "second_set/in_place_scale": 1},
    "kernelbench-x": {"Activation/soft_step": 1, "Reduction/spread": 1},
    "sol-execbench": {"L1/scaled_residual": 1},
}


def matched(folder: Path) -> Matched:
    return match_candidates(folder, find_tasks(folder))


def ran(text: str | None, *inputs: object) -> Any:
    """What a ModelNew file of the examples gives."""
    names: dict[str, Any] = {}
    exec(text or "", names)
    return names["ModelNew"]()(*inputs)


@pytest.mark.parametrize("name", MINE)
def test_each_belongs_to_its_task(name: str) -> None:
    found = matched(EXAMPLES / name)
    assert {task: len(mine) for task, mine in found.candidates.items()} == MINE[name]
    for mine in found.candidates.values():
        assert [one.sample for one in mine] == list(range(len(mine)))


def test_strangers_are_named() -> None:
    assert [str(path) for path in matched(EXAMPLES / "kernelbench-x").strangers] == ["answers.jsonl: unknown.py"]


def test_solutions_return_or_fill_their_outputs() -> None:
    found = matched(EXAMPLES / "flashinfer-trace").candidates
    x, weight = torch.randn(5, 96).half(), torch.randn(96)
    want = torch.nn.functional.rms_norm(x.float(), (96,), weight, 1e-6)
    (norm,) = found["norm/rms_rows_h96"]
    assert torch.allclose(ran(norm.text, x, weight, 1e-6).float(), want, atol=1e-2)
    cuda, rope = found["rope/turn_halves_d32"]
    assert cuda.problem.endswith("turn_halves_cuda.json: spec.language: cuda; only python and triton are read")
    q, k = ran(rope.text, torch.ones(3, 32), torch.zeros(3, 32), torch.zeros(3, 16))
    assert torch.equal(q, torch.ones(3, 32)) and torch.equal(k, torch.zeros(3, 32))


def test_a_submission_that_writes_gets_copies() -> None:
    (answer,) = matched(EXAMPLES / "gpu-mode").candidates["second_set/in_place_scale"]
    x, out = torch.arange(4.0), torch.zeros(4)
    assert ran(answer.text, (x, out)).tolist() == [0, 3, 6, 9] and not out.any()


def test_a_file_that_is_a_candidate_already_stays_one(tmp_path: Path) -> None:
    text = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    line = {"file": "spread.py", "predict": text}
    (tmp_path / "a.jsonl").write_text(json.dumps(line))
    (answer,) = match_candidates(tmp_path, find_tasks(EXAMPLES / "kernelbench-x")).candidates["Reduction/spread"]
    assert answer.text == text


Edit = Callable[[dict[str, Any]], object]
NORM = "solutions/example/norm/rms_rows_torch.json"
BROKEN: list[tuple[Edit, str]] = [
    (lambda one: one.pop("spec"), f"{NORM}: spec: missing"),
    (lambda one: one["spec"].update(entry_point="main.py"), "spec.entry_point: 'main.py' is no file::function"),
    (lambda one: one["spec"].update(entry_point="main.py::go"), "spec.entry_point: no function go"),
    (lambda one: one["sources"][0].update(content="def run(:"), "sources main.py line 1: no Python"),
    (lambda one: one["sources"][1].update(content="def run(x): pass"), "sources: scale.py and main.py both define run"),
    (lambda one: one["spec"].update(language="cpp"), "spec.language: cpp; only python and triton are read"),
    (lambda one: one["spec"].pop("language"), "spec.language: ; only python and triton are read"),
]


@pytest.mark.parametrize(("edit", "why"), BROKEN, ids=[why[:40].replace("/", " ") for _, why in BROKEN])
def test_a_broken_solution_is_named(edit: Edit, why: str, tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    shutil.copytree(EXAMPLES / "flashinfer-trace", folder)
    record = json.loads((folder / NORM).read_text())
    edit(record)
    (folder / NORM).write_text(json.dumps(record))
    found = matched(folder).candidates
    (broken,) = found["norm/rms_rows_h96"]
    assert why in broken.problem and broken.text is None
    assert len([one for one in found["rope/turn_halves_d32"] if not one.problem]) == 1


def test_lines_that_cannot_be_read_are_bad_input(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"file": "spread.py"}\n')
    with pytest.raises(BadInput, match=r"no answers: a.jsonl line 1: predict: missing"):
        match_candidates(tmp_path, find_tasks(EXAMPLES / "kernelbench-x"))


def test_an_implementation_without_its_function(tmp_path: Path) -> None:
    (tmp_path / "mean__dim").mkdir()
    (tmp_path / "mean__dim" / "mean__dim_implementation_v1.py").write_text("def mean(x):\n    return x\n")
    (broken,) = match_candidates(tmp_path, find_tasks(EXAMPLES / "backendbench")).candidates["reduction/mean__dim"]
    assert broken.problem.endswith("mean__dim_implementation_v1.py: no function mean__dim_kernel_impl")
