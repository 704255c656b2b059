"""Malformed files of each format: one line that names the file and the field, and the other tasks are kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from format_contract import EXAMPLES

from hipwright.evaluation.formats.kernelbench_x import BORDER
from hipwright.evaluation.suite import find_tasks

SOFT, SPREAD = "kernelbench-x/Activation/soft_step.py", "kernelbench-x/Reduction/spread.py"
FUNC, CONFIG = "robust-kbench/tasks/row_gate/func_forward.py", "robust-kbench/tasks/row_gate/config_forward.json"
SUM = "gpu-mode/first_set/shifted_sum/"
TRACE = "backendbench/pointwise.txt"
CASES = [
    (SOFT, BORDER, "# ---", "Activation/soft_step.py: no line of 146 # between the reference and its test"),
    (SOFT, "def test_soft_step", "def check", "soft_step.py: no function test..."),
    (SOFT, "def soft_step(x", "def soft_step(*x", "soft_step.py line 4: no Python"),
    (SOFT, "x: torch.Tensor, sharpness: float = 4.0, *, shift", "*x, shift", "soft_step takes *args or **kwargs"),
    (SPREAD, "def spread(", "def width(", "Reduction/spread.py: the test calls no function of the reference"),
    (SPREAD, "for rows in", "for rows on", "Reduction/spread.py line 14: no Python"),
    (CONFIG, '"single_input_configs"', '"inputs"', "config_forward.json: single_input...: missing"),
    (CONFIG, '[{"batch_size": 32}]', "[32]", "config_forward.json: single_input_configs: no object of arguments"),
    (CONFIG, '[{"batch_size": 32}]', '[{"batch size": 3}]', "single_input_configs: 'batch size' is no argument's name"),
    (CONFIG, "{\n", "{,\n", "config_forward.json: no JSON"),
    (FUNC, "class Model", "class Net", "func_forward.py: no class Model"),
    (FUNC, "fn=forward_fn", "fn", "func_forward.py: Model.forward: fn has no default"),
    (FUNC, "def get_inputs", "def inputs", "func_forward.py: no function get_inputs"),
    (f"{SUM}task.yml", 'lang: "py"', 'lang: "cu"', "shifted_sum/task.yml: lang: cu; only py is read"),
    (f"{SUM}task.yml", 'lang: "py"', "multi_gpu: true\nlang: py", "multi_gpu: a problem of several GPUs"),
    (f"{SUM}task.yml", 'lang: "py"\n', "", "shifted_sum/task.yml: lang: missing"),
    (f"{SUM}task.yml", '"rows": 16', '"rows": .nan', "task.yml: tests[0].rows: no number, text or list of them"),
    (f"{SUM}task.yml", '"rows": 16', '"ro ws": 16', "task.yml: tests[0]: 'ro ws' is no argument's name"),
    (
        f"{SUM}task.yml",
        "../../utils.py",
        "../../../../../utils.py",
        "'../../../../../utils.py' is outside of the folder",
    ),
    (f"{SUM}task.yml", "../../utils.py", "a\\0b", "task.yml: files: utils.py: embedded null"),
    (f"{SUM}task.yml", "../../utils.py", "utils.py", "first_set/shifted_sum/utils.py: No such file"),
    (f"{SUM}task.yml", '"name": "reference.py"', '"name": "ref.py"', "task.yml: files: reference.py: missing"),
    (f"{SUM}reference.py", "def ref_kernel", "def kernel", "shifted_sum/task.yml: files: no function ref_kernel"),
    (f"{SUM}reference.py", "from task import input_t", "import task, input_t", "reference.py line 2: `import`"),
    (TRACE, "aten.addcmul.default", "addcmul", "pointwise.txt: Operator: 'addcmul' is not aten.NAME.OVERLOAD"),
    (TRACE, "[5, 7], f32", "[5, n], f32", "pointwise.txt line 3: arguments: a size of T(...) is no whole number"),
    (TRACE, "[5, 7], f32", "[5, 7], f4", "pointwise.txt line 3: arguments: f4 is no dtype"),
    (TRACE, "{'value': 0.5}", "{'value': open('x')}", "pointwise.txt line 2: arguments: open('x') is not read"),
    (TRACE, "{'value': 0.5})", "{'value': 0.5}", "pointwise.txt line 2: arguments: "),
]


@pytest.mark.parametrize(("file", "old", "new", "why"), CASES, ids=[f"{case[0]}: {case[2]}"[:80] for case in CASES])
def test_a_malformed_one_is_named_and_the_others_are_kept(
    file: str, old: str, new: str, why: str, tmp_path: Path
) -> None:
    name, _, inside = file.partition("/")
    shutil.copytree(EXAMPLES / name, tmp_path / "here" / name)
    folder = tmp_path / "here" / name
    text = (folder / inside).read_text()
    assert old in text
    (folder / inside).write_text(text.replace(old, new))
    tasks = find_tasks(folder, None, name)
    broken = [one.problem for one in tasks if one.problem]
    assert len(broken) == 1 and why in broken[0], broken
    assert len(tasks) - 1 >= 1 and all(one.read() for one in tasks if not one.problem)
