"""Loading: the errors of broken files, and what a handle survives."""

import os
import subprocess
import sys

import pytest
from task_files import BAD, FILES

from hipwright.errors import BadInput, TaskError
from hipwright.sandbox import Limits, Zygote
from hipwright.task import open_task


@pytest.mark.parametrize(
    "name, message",
    [
        ("no_model", r"^task_no_model\.py: no class Model$"),
        ("model_not_module", "Model is not a torch.nn.Module"),
        ("no_inputs", r"no get_inputs\(\)"),
        ("inputs_raise", r"^task_inputs_raise\.py:11: get_inputs\(\) raises RuntimeError: .*view|shape"),
        ("inputs_bare", r"get_inputs\(\) returns a Tensor, not a list"),
        ("forward_raises", r"^task_forward_raises\.py:6: forward raises RuntimeError: mat1 and mat2"),
        ("init_raises", r"Model\(\.\.\.\) raises TypeError: .*'width'"),
        ("odd_output", "an output is not supported: a set"),
        ("half_complex", "an output is not supported: tensors of torch.complex32"),
        ("returns_none", "forward returns nothing that can be compared"),
        ("syntax", r"^task_syntax\.py:4: SyntaxError"),
        ("crash", r"task_crash\.py: forward: the worker process was killed by SIGSEGV"),
        ("exits", r"^task_exits\.py:3: SystemExit"),
        ("network", r"^task_network\.py:5: PermissionError"),
        ("not_text", "not UTF-8"),
    ],
)
def test_a_broken_file_is_explained_in_one_line(zygote, name, message):
    with pytest.raises(TaskError, match=message) as caught:
        open_task(BAD / f"task_{name}.py", zygote)
    error = caught.value
    assert "\n" not in error.message and error.exit_code == 2 and error.verdict().fault == "task"


def test_supported_types_are_listed(zygote):
    with pytest.raises(TaskError) as caught:
        open_task(BAD / "task_odd_output.py", zygote)
    assert "bfloat16" in caught.value.hint and "dicts" in caught.value.hint


def test_a_slow_forward_is_named(zygote):
    with pytest.raises(TaskError, match=r"task_slow\.py: forward took longer than 1 s"):
        open_task(BAD / "task_slow.py", zygote, limits=Limits(wall_s=1))


def test_a_missing_file_is_bad_input(zygote, tmp_path):
    for path in (tmp_path / "none.py", tmp_path):
        with pytest.raises(BadInput, match="cannot read the task"):
            open_task(path, zygote)


def test_the_handle_survives_its_host(load):
    handle = load("linear_gelu")
    before = handle.inputs("given", 3)
    handle._host._session.close()
    after = handle.inputs("given", 3)
    assert before[0].storage.tobytes() == after[0].storage.tobytes()


def test_unsafe_loads_the_same():
    with Zygote(unsafe=True) as zygote, open_task(FILES / "dropout.py", zygote) as handle:
        assert handle.task.workloads[0].specs[0].shape == (64,)


def test_the_parent_stays_free_of_torch():
    script = (
        "import sys; from pathlib import Path\n"
        "from hipwright.sandbox import Zygote; from hipwright.task import open_task\n"
        f"with Zygote() as z, open_task(Path({str(FILES / 'conv.py')!r}), z) as h:\n"
        "    h.reference(h.inputs('given', 0), h.init_state(0))\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ}, check=True
    )
    assert done.stdout == "False\n"


def test_compiled_parts_are_taken_apart(load):
    graph = load("compiled").capture("given")
    assert [node["op"].split(".")[1] for node in graph["nodes"]] == ["linear", "silu", "mul", "softmax"]


def test_lazy_modules_get_their_sizes(load):
    handle = load("lazy")
    first, again, other = handle.init_state(1), handle.init_state(1), handle.init_state(2)
    assert first["params"]["net.0.weight"].shape == (6, 3)
    weights = [state["params"]["net.0.weight"].to_f64() for state in (first, again, other)]
    assert (weights[0] == weights[1]).all() and (weights[0] != weights[2]).any()
    assert (first["buffers"]["net.1.running_mean"].to_f64() == 0).all()
    assert first["buffers"]["net.1.num_batches_tracked"].to_f64() == 0
    assert handle.task.workloads[0].specs[0].shape == (5, 3)
    modes = {name: child for name, child in first["attrs"].items() if name.endswith("training")}
    assert modes["training"] and modes["net.0.training"] and not modes["net.2.training"]


ABORTS = """import os, sys, torch


class Model(torch.nn.Module):
    def forward(self, x):
        if x.device.type == 'cpu':
            os.write(2, b"terminate called after an exception\\n  what():  no thread\\nframe #0: run(int)\\n")
            os.abort()
        return x + 1


def get_inputs():
    return [torch.randn(4)]
"""


def test_what_an_aborted_process_threw_is_told(zygote, tmp_path):
    (tmp_path / "always.py").write_text(ABORTS)
    said = r"always\.py: forward: the worker process was killed by SIGABRT: no thread$"
    with pytest.raises(TaskError, match=said):
        open_task(tmp_path / "always.py", zygote)
