"""The tools as functions: the source of counters, the replacement without them, and which files count as tasks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hipwright.errors import BadInput, HipwrightError, TaskError, ToolchainError
from hipwright.events import Listener, silent
from hipwright.machine import Machine
from hipwright.mcp import files, texts
from hipwright.mcp.registry import TOOLS
from hipwright.mcp.tools import OneProgram, ToolContext, profile_program
from hipwright.mcp.warm_machine import JudgedProgram, WarmMachine, digest
from hipwright.measure.profiling.bottleneck import diagnose
from hipwright.measure.profiling.profile import Profile
from hipwright.measure.profiling.profiler import ProfileReport
from hipwright.records import Build, Evaluation, KernelResources, Program, TargetResult, Verdict

TASK = "class Model: ...\ndef get_inputs(): ...\n"


def no_machine() -> AbstractContextManager[Machine]:
    raise AssertionError("no machine may be started")


def counters(path: Path, program: Program, listener: Listener) -> ProfileReport:
    if "broken" in program.text:
        raise ToolchainError("no ncu on this machine", hint="install Nsight Compute")
    launch = Profile(kernel="scale", target="cuda", duration_us=3.5, dram_throughput_pct=float("nan"))
    return ProfileReport(
        target="cuda",
        profiles=(replace(launch, bottleneck=diagnose(launch)),),
        tool="/opt/ncu",
        contained=True,
        notes=("a note",),
    )


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    (tmp_path / "task.py").write_text(TASK)
    return ToolContext(tmp_path.resolve(), tmp_path, ("gfx942", "cuda"), WarmMachine(no_machine), counters)


def remembered(context: ToolContext, text: str) -> None:
    """As if the program had been evaluated in this session."""
    build = Build(target="gfx942", ok=True, kernels=(KernelResources(name="scale", vgpr=7, lds_bytes=64),))
    verdict = Verdict(status="wrong_value", fault="candidate", message="output[0] is 1, expected 2")
    evaluation = Evaluation(
        task="t",
        program="p",
        status="wrong_value",
        fault="candidate",
        message=verdict.message,
        targets={"gfx942": TargetResult(target="gfx942", build=build, verdict=verdict)},
    )
    path = context.root / "task.py"
    context.judged["e1"] = JudgedProgram("e1", path, Program(text=text), evaluation, digest(path))


def test_counters_are_read_where_a_gpu_is(context: ToolContext) -> None:
    reply = profile_program(context, OneProgram(task="task.py", program="x"), silent)
    assert reply.data["kind"] == "counters" and reply.data["profiles"][0]["duration_us"] == 3.5
    assert reply.data["profiles"][0]["dram_throughput_pct"] is None  # JSON has no NaN
    assert "0 scale: 3.5 us; " in reply.text and "note: a note" in reply.text


def test_without_a_profiler_the_build_speaks(context: ToolContext) -> None:
    remembered(context, "broken")
    reply = profile_program(context, OneProgram(task="task.py", program="broken"), silent)
    assert reply.data["kind"] == "build" and reply.data["evaluation"] == "e1"
    assert reply.data["targets"]["gfx942"]["build"][0]["vgpr"] == 7
    assert (
        "no ncu on this machine" in reply.text
        and "7 VGPRs" in reply.text
        and "not verified (wrong_value)" in reply.text
    )


def test_a_task_that_changed_is_evaluated_anew(context: ToolContext) -> None:
    remembered(context, "broken")
    (context.root / "task.py").write_text(TASK + "# changed\n")
    with pytest.raises(AssertionError, match="no machine may be started"):
        profile_program(context, OneProgram(task="task.py", program="broken"), silent)


def test_a_fault_of_hipwright_is_not_the_programs() -> None:
    evaluation = Evaluation(task="t", program="p", status="unscorable", fault="service", message="a worker died")
    found = texts.explained(JudgedProgram("e1", Path("t.py"), Program(text="x = 1"), evaluation), ("gfx942",))
    assert found["fix"] == [texts.NOT_THE_PROGRAM["service"]] and "was not judged" in found["text"]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (BadInput("no such file\nTraceback (most recent call last)", hint="look"), "no such file"),
        (TaskError("t.py:3: boom", evidence={"line": 3, "traceback": "Traceback ..."}), "t.py:3: boom"),
    ],
)
def test_an_error_is_one_line_without_a_traceback(error: HipwrightError, line: str) -> None:
    found = texts.error_reply(error)
    assert found["error"] == line and "Traceback" not in str(found)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"task": "t"}, "required field `program`"),
        ({"task": "t", "program": 3}, "Expected `str`"),
        ({"task": "t", "program": "p", "knobs": {"A": "x"}}, "Expected `int`"),
        ({"task": "t", "program": "p", "seed": 1}, "unknown field `seed`"),
    ],
)
def test_arguments_are_checked_against_the_schema(given: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=why) as caught:
        TOOLS["evaluate_program"].read(given)
    assert caught.value.hint == "arguments: task, program, knobs"


def test_only_what_defines_a_task_is_listed(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "suite" / "level1").mkdir(parents=True)
    (root / "suite" / "level1" / "1_a.py").write_text('"""First."""\n' + TASK)
    (root / "b.py").write_text(TASK.replace("...", '"""Of the\n    model.\n\n    More."""', 1))
    (root / "_hidden.py").write_text(TASK)
    (root / "broken.py").write_text("class Model(:\n")
    (root / "deep.py").write_text("x = " + "(" * 5000 + ")" * 5000)
    (root / "large.py").write_text(TASK + "#" * files.MOST_BYTES)
    (root / "helper.py").write_text("class Model: ...\n")
    (root / "loop.py").symlink_to(root / "loop.py")
    assert list(files.tasks(root, root)) == [("b.py", "Of the model."), ("suite/level1/1_a.py", "First.")]
    with pytest.raises(BadInput, match="is no path"):
        files.task_file(root, "loop.py")
    with pytest.raises(BadInput, match="larger than 1 MiB"):
        files.task_file(root, "large.py")
