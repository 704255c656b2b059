"""Files that are no tasks: one line says what they are and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipwright.errors import BadInput, HipwrightError, TaskError
from hipwright.sandbox import Zygote
from hipwright.task import open_task
from hipwright.task.kinds import check_kind, with_sibling

TASK = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
INPUTS = "def get_inputs():\n    return [torch.ones(3)]\n"
NEW = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"


@pytest.mark.parametrize("suffix", [".cu", ".hip", ".CPP", ".h"])
def test_kernel_source_is_no_task(suffix: str) -> None:
    with pytest.raises(BadInput, match="kernel source, not a task") as caught:
        check_kind(f"axpb{suffix}", "__global__ void k() {}")
    assert "docs/program.md" in caught.value.hint


@pytest.mark.parametrize(
    ("source", "kind"),
    [(NEW, "a candidate"), ("import triton\n" + NEW, "a Triton"), ("from triton import language\n" + NEW, "a Triton")],
)
def test_a_candidate_without_its_model_is_no_task(source: str, kind: str) -> None:
    with pytest.raises(BadInput, match=kind) as caught:
        check_kind("new.py", source)
    assert "hipwright eval TASK new.py" in caught.value.hint


@pytest.mark.parametrize(
    "source",
    [
        TASK,
        NEW + TASK,
        NEW + "from models import Model",
        NEW + "from models import *",
        NEW + "Model = ModelNew",
        NEW + "if True:\n    Model = ModelNew",
        "class Other: pass",
        "not python",
        "x = '\0'",
    ],
)
def test_what_may_be_a_task_is_left_to_the_host(source: str) -> None:
    check_kind("task.py", source)


@pytest.mark.parametrize("place", ["layers.py", "layers/__init__.py", "layers/scale.py"])
def test_a_file_beside_the_task_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("")
    missing = TaskError("t.py:2: ModuleNotFoundError: No module named 'layers'", hint="usual")
    assert "copy what it uses of layers" in with_sibling(missing, tmp_path / "t.py").hint
    other = TaskError("t.py:2: ModuleNotFoundError: No module named 'einops'", hint="usual")
    assert with_sibling(other, tmp_path / "t.py") is other


def hint_of(text: str, folder: Path) -> str:
    path = folder / "task.py"
    path.write_text(text)
    with (
        Zygote(("torch", "hipwright.task.host.warm"), name="task host") as zygote,
        pytest.raises(HipwrightError) as caught,
    ):
        open_task(path, zygote).close()
    return caught.value.hint


def test_a_training_step_says_how_gradients_are_returned(tmp_path: Path) -> None:
    body = "self.w = torch.nn.Parameter(torch.ones(3))"
    step = (
        f"import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__(); {body}\n"
        "    def forward(self, x):\n        loss = (self.w * x).sum()\n        loss.backward()\n        return loss\n"
    )
    assert "torch.autograd.grad" in hint_of(step + INPUTS, tmp_path)


def test_the_hint_about_a_file_beside_it_arrives(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text("")
    assert "is one file, which is stored" in hint_of("import torch, layers\n" + TASK + INPUTS, tmp_path)
