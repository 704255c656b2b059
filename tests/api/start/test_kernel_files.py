"""Kernel files of every form: which are judged, which are text for a model, and which end the command with a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipwright.api.inputs import program_from, task_source
from hipwright.api.start.reading import read_candidate, read_start
from hipwright.errors import BadInput, CandidateError, ProgramError
from tests.modelnew.samples import PAIRS, candidate, task
from tests.starts import ROOT, TASKS

TASK = TASKS["softmax"].read_text()
PROGRAM = """HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void k(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
'''


def forward(self, x):
    y = torch.empty_like(x)
    k[1, 64](x, y)
    return y
"""
TRITON = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef k(x, n: tl.constexpr):\n    pass\n"
PURE = """import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_program_is_read_as_it_is(tmp_path: Path) -> None:
    found = read_start(written(tmp_path, "p.py", PROGRAM), TASK, ["cpu"], model=False)
    assert found.form == "program" and found.program is not None and found.program.text == PROGRAM
    assert found.setting() == {"name": "p.py", "form": "program", "program": found.program.key, "notes": []}


def test_a_source_is_converted_and_its_assumptions_are_told() -> None:
    found = read_start(ROOT / "cuda" / "softmax.cu", TASK, ["cpu"], model=False)
    assert found.form == "cuda" and found.program is not None and found.program.form == "program"
    assert "assumed: `rows` is x.numel() // x.shape[-1]" in found.notes
    assert any(note.startswith("line 7: ") for note in found.notes)


def test_a_model_new_is_converted_where_that_works() -> None:
    name = next(iter(PAIRS))
    path = Path(__file__).parents[2] / "modelnew" / "candidates" / f"{name}.py"
    assert path.read_text() == candidate(name)
    found = read_start(path, task(name), ["cpu"], model=False)
    assert found.form == "modelnew" and found.program is not None and found.program.form == "program"


def test_a_model_new_that_does_not_convert_is_judged_on_a_gpu_alone(tmp_path: Path) -> None:
    path = written(tmp_path, "pure.py", PURE)
    on_gpu = read_start(path, TASK, ["cuda", "cpu"], model=False)
    assert on_gpu.program is not None and on_gpu.program.form == "modelnew" and "no kernels" in on_gpu.notes[0]
    with pytest.raises(BadInput, match=r"pure\.py: without a GPU target .* no kernels of its own"):
        read_start(path, TASK, ["gfx942", "cpu"], model=False)
    assert read_start(path, TASK, ["cpu"], model=True).program is None


def test_a_model_new_that_breaks_a_rule_is_refused_by_line(tmp_path: Path) -> None:
    path = written(tmp_path, "hostile.py", PURE.replace("import torch\n", "import torch\nimport ctypes\n", 1))
    with pytest.raises(CandidateError, match=r"hostile\.py: line 2: "):
        read_start(path, TASK, ["cpu"], model=True)


def test_a_triton_kernel_alone_is_text_for_a_model(tmp_path: Path) -> None:
    path = written(tmp_path, "t.py", TRITON)
    found = read_start(path, TASK, ["cpu"], model=True)
    assert found.form == "triton" and found.program is None and found.setting()["text"] == TRITON
    with pytest.raises(BadInput, match="without a class ModelNew"):
        read_start(path, TASK, ["cpu"], model=False)
    with pytest.raises(BadInput, match="without a class ModelNew"):
        program_from(path, task_source(TASK))


def test_a_source_that_is_refused_is_text_for_a_model_or_an_error() -> None:
    path = ROOT / "refused" / "dot_cub.cu"
    dot = TASKS["dot"].read_text()
    with pytest.raises(ProgramError, match=r"dot_cub\.cu: line 8: .* CUB"):
        read_start(path, dot, ["cpu"], model=False)
    found = read_start(path, dot, ["cpu"], model=True)
    assert found.program is None and "CUB" in found.why and found.setting()["text"] == path.read_text()


def test_a_program_with_a_mistake_names_file_and_line(tmp_path: Path) -> None:
    path = written(tmp_path, "p.py", PROGRAM.replace("return y", "return z"))
    with pytest.raises(ProgramError, match=r"p\.py: line 10: "):
        read_start(path, TASK, ["cpu"], model=False)


def test_a_source_without_a_task_and_under_another_name_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"is CUDA source, and is read for a task"):
        read_candidate(ROOT / "cuda" / "softmax.cu", None)
    text = (ROOT / "cuda" / "softmax.cu").read_text()
    with pytest.raises(BadInput, match="is it a CUDA or HIP source"):
        read_candidate(written(tmp_path, "softmax.txt", text), TASK)
