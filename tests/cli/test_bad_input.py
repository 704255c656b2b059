"""Bad input: one line that names whose fault it is, the correct exit code, nothing damaged or left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_tools import FILES, hipwright, left_behind, one_object, process

TASK = FILES / "scale.py"

BAD_TASKS = [
    # file, whose fault, required part of the line
    ("missing.py", "bad input", "missing.py"),
    ("no_model.py", "task", "Model"),
    ("raises.py", "task", "the task's own code fails"),
    ("task_syntax.py", "task", "task_syntax.py:4"),
    ("forward_raises.py", "task", "mat1"),
    ("exits.py", "task", ""),
]
BAD_PROGRAMS = [
    # file, status, required part of the evidence
    ("syntax_error.py", "parse_error", "line"),
    ("no_plan.py", "parse_error", "forward"),
    ("does_not_compile.py", "compile_error", "undeclared"),
    ("wrong_value.py", "wrong_value", "expected"),
    ("out_of_bounds.py", "out_of_bounds", "scale"),
]


def error_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, text
    assert "Traceback" not in text
    return lines[0]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fault", "says"), BAD_TASKS, ids=[row[0] for row in BAD_TASKS])
def test_a_bad_task_is_one_line_and_exit_2(tmp_path: Path, name: str, fault: str, says: str) -> None:
    home = tmp_path / "home"
    done = hipwright(home, "optimize", FILES / name, "--budget", "2", "--out", tmp_path / "out", "--json")
    assert done.returncode == 2, done.stderr
    line = error_line(done.stderr)
    assert line.startswith(f"error: {fault}: ") and says in line
    result = one_object(done.stdout)
    assert result["exit_code"] == 2 and result["error"] and result["fault"] == "task"
    listed = hipwright(home, "runs", "--json")
    assert listed.returncode == 0 and one_object(listed.stdout)["runs"] == []


@pytest.mark.slow
def test_a_process_says_the_same_and_leaves_nothing_behind(tmp_path: Path) -> None:
    home = tmp_path / "home"
    args = ("optimize", FILES / "exits.py", "--budget", "2", "--json")
    done, here = process(home, *args), hipwright(home, *args)
    assert (done.returncode, done.stdout) == (here.returncode, here.stdout)
    assert error_line(done.stderr) == error_line(here.stderr)
    assert left_behind(home) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status", "says"), BAD_PROGRAMS, ids=[row[0] for row in BAD_PROGRAMS])
def test_a_bad_program_is_rejected_with_evidence(tmp_path: Path, name: str, status: str, says: str) -> None:
    home = tmp_path / "home"
    done = hipwright(home, "eval", TASK, FILES / name, "--json")
    assert done.returncode == 1, done.stderr
    result = one_object(done.stdout)
    assert (result["status"], result["fault"]) == (status, "candidate")
    assert says in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_good_program_passes_and_a_person_can_read_why_another_does_not(tmp_path: Path) -> None:
    home = tmp_path / "home"
    good = hipwright(home, "eval", TASK, FILES / "good.py")
    assert good.returncode == 0, good.stdout + good.stderr
    assert "gfx942" in good.stdout and "ESTIMATE" in good.stdout and "was not measured" in good.stdout
    wrong = hipwright(home, "eval", TASK, FILES / "wrong_value.py")
    assert wrong.returncode == 1
    for word in ("wrong_value", "workload", "index", "expected", "got", "--seed"):
        assert word in wrong.stdout + wrong.stderr, word


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), [("endless.py", "timeout")])
def test_an_endless_kernel_is_stopped(tmp_path: Path, name: str, status: str) -> None:
    home = tmp_path / "home"
    done = process(home, "eval", TASK, FILES / name, "--json")
    assert done.returncode == 1, done.stderr
    result = one_object(done.stdout)
    assert (result["status"], result["fault"]) == (status, "candidate")
    assert left_behind(home) == []


@pytest.mark.exhaustive  # a task may take two minutes
def test_an_endless_task_is_stopped(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = process(home, "eval", FILES / "endless_task.py", FILES / "good.py")
    assert done.returncode == 2, done.stderr
    assert error_line(done.stderr).startswith("error: task: ")
    assert left_behind(home) == []


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("optimize", TASK, "--target", "gfx000"), "gfx000"),
        (("optimize", TASK, "--target", "rocm"), "no AMD GPU here"),
        (("eval", TASK, FILES / "good.py", "--target", "cuda"), "no NVIDIA GPU here"),
        (("optimize", TASK, "--budget", "0"), "budget"),
        (("optimize", TASK, "--policy", "luck"), "luck"),
        (("optimize", TASK, "--no-such-option"), "no-such-option"),
        (("optimize", TASK, "--resume", "r1"), "no archive"),
        (("optimize", TASK, "--out", "/proc/nowhere"), "/proc/nowhere"),
        (("optimize",), "TASK"),
        (("eval", TASK, "nothing.py"), "nothing.py"),
        (("eval", TASK, FILES), "not a file"),
        (("show", "latest"), "no archive"),
        (("frobnicate",), "frobnicate"),
    ],
    ids=lambda value: "_".join(Path(str(a)).name for a in value) if isinstance(value, tuple) else None,
)
def test_a_wrong_command_line_is_exit_2(tmp_path: Path, args: tuple[object, ...], says: str) -> None:
    done = hipwright(tmp_path / "home", *args, "--json")
    assert done.returncode == 2, done.stderr
    line = error_line(done.stderr)
    assert line.startswith("error: bad input: ") and says in line
    assert one_object(done.stdout)["exit_code"] == 2


@pytest.mark.slow
def test_hostile_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    task = tmp_path / "evil\x1b[2J\u202e.py"
    task.write_text((FILES / "raises.py").read_text())
    done = hipwright(tmp_path / "home", "optimize", task)
    assert done.returncode == 2
    assert "\x1b" not in done.stderr and "\u202e" not in done.stderr
