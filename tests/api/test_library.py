"""hipwright as a library: import time, exported names, and the examples of its docstrings."""

from __future__ import annotations

import doctest
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import hipwright
from hipwright import Evaluation, Program, Result, Task, evaluate, optimize, records
from hipwright.api import inputs, library
from hipwright.api.dynamo import entry
from hipwright.errors import BadInput
from tests import warm

REPO = Path(__file__).parents[2]
HEAVY = ("torch", "typer", "rich", "numpy", "jinja2", "pydantic_ai")


def imported(code: str) -> set[str]:
    """The heavy modules that a process holds after `code`."""
    ask = f"{code}\nimport sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(done.stdout.replace("'", '"')))


def test_importing_hipwright_is_cheap() -> None:
    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    def process(code: str) -> float:
        before = spent()
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
        return spent() - before

    bare = min(process("pass") for _ in range(3))
    assert min(process("import hipwright") for _ in range(3)) - bare < 0.2, "seconds of the processor"
    assert not imported("import hipwright")


def test_the_api_needs_neither_torch_nor_the_command_lines_libraries() -> None:
    names = ", ".join(hipwright.__all__)
    assert not imported(f"from hipwright import {names}") & {"torch", "typer", "rich", "pydantic_ai"}


def test_every_public_name_is_there_and_keeps_its_meaning() -> None:
    import hipwright.evaluation.pipeline  # a submodule must not replace a public name

    assert {name: getattr(hipwright, name) for name in hipwright.__all__} == {
        "Evaluation": Evaluation,
        "Program": Program,
        "Result": Result,
        "Task": Task,
        "backend": entry.backend,
        "compiled_graphs": entry.compiled_graphs,
        "evaluate": evaluate,
        "kernel": library.kernel,
        "load": library.load,
        "optimize": optimize,
    }
    assert (Task, Program) == (records.Task, records.Program) and set(hipwright.__all__) <= set(dir(hipwright))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hipwright.nothing


@pytest.mark.slow
@pytest.mark.parametrize("name", ["optimize", "evaluate", "load", "kernel", "backend", "compiled_graphs"])
def test_examples_of_the_docstrings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(REPO / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "archive"))
    tests = [one for one in doctest.DocTestFinder().find(getattr(hipwright, name), name) if one.examples]
    assert tests
    with warm.zygotes():
        for one in tests:
            assert doctest.DocTestRunner().run(one).failed == 0


@pytest.mark.slow
def test_a_tasks_text_is_searched_and_what_it_found_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "archive"))
    text = (REPO / "examples/bias_gelu.py").read_text()
    heard: list[str] = []
    with warm.zygotes():
        result = optimize(text, budget=1, targets=["cpu"], out=tmp_path, listener=lambda kind, data: heard.append(kind))
        again = evaluate(text, tmp_path / "program.py", targets=["cpu"])
    assert result.passed and result.program is not None and result.evaluation is not None
    assert again.passed and again.task == result.evaluation.task
    assert heard[0] == "planned" and "decided" in heard
    assert json.loads((tmp_path / "result.json").read_text())["run"] == result.run
    assert {path.name for path in tmp_path.glob("*.*")} == {"program.py", "model_new.py", "result.json", "report.html"}
    assert result.command(resume=True) == f"hipwright resume {result.run}"
    assert Result.from_dict(result.to_dict()) == result


def test_what_is_no_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="path or source text"):
        optimize(3)
    with pytest.raises(TypeError, match="brings its own inputs"):
        optimize("task.py", [1])
    with pytest.raises(BadInput, match="no such task"):
        optimize(tmp_path / "task.py")
    with pytest.raises(TypeError, match="path or source text"):
        inputs.program_from(3)  # type: ignore[arg-type]


def test_a_programs_form_is_read_from_its_text(tmp_path: Path) -> None:
    path = tmp_path / "new.py"
    path.write_text("class ModelNew:\n    pass\n")
    assert inputs.program_from(path).form == "modelnew"
    assert inputs.program_from("HIP = r''''''\n").form == "program"
    program = Program(text="x")
    assert inputs.program_from(program) is program


HANDED_ON = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.transpose(0, 1).transpose(0, 1)

def get_inputs():
    return [torch.rand(4, 5)]
"""


@pytest.mark.slow
def test_a_module_on_which_nothing_is_proved_ends_with_its_library_calls(tmp_path: Path) -> None:
    result = optimize(HANDED_ON, budget=1, targets=["cpu"], out=tmp_path)
    summary = json.loads((tmp_path / "result.json").read_text())
    assert not result.passed and summary["status"] == "degenerate" and summary["unproven"] is True
    assert "transpose" in (tmp_path / "program.py").read_text() and "__global__" not in result.unproven.text
    assert "No program is verified" in result.note
