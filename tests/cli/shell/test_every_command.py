"""Every command: a short help with an example, the common options in it, and one line for a wrong input."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer

from hipwright.cli.main import app
from hipwright.cli.shell.command import option_name
from hipwright.cli.shell.examples import COMMON, EXAMPLES
from tests import warm
from tests.cli.cli_tools import EXAMPLES as TASKS
from tests.cli.cli_tools import REPO, hipwright, one_object
from tests.rocm import simulated

LINES, WIDTH = 25, 80
ROOT = typer.main.get_command(app)


def contexts(command: Any, name: str, parent: Any = None) -> Iterator[tuple[str, Any]]:
    """(name, context) of the command and of all below it."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    yield " ".join(context.command_path.split()[1:]), context
    for child, one in getattr(command, "commands", {}).items():
        yield from contexts(one, child, context)


EVERY = dict(contexts(ROOT, "hipwright"))
GROUPS = {name for name, one in EVERY.items() if hasattr(one.command, "commands")}
COMMANDS = sorted(set(EVERY) - GROUPS | {"runs"})

WRONG = {
    "doctor": ("--jsn",),
    "config": ("optimise",),
    "contact": ("--programs", "0"),
    "optimize": ("no_such_task.py",),
    "resume": ("nothing",),
    "model": ("no_such_model.py",),
    "eval": ("no_such_task.py", "program.py"),
    "score": ("task.py", "program.py", "--seed", "no-such-seed"),
    "profile": ("no_such_task.py", "program.py", "--target", "gfx942@sim"),
    "backward": ("no_such_task.py", "--out", "g"),
    "combine": ("no_such_task.py", "p.py", "--out", "both.py"),
    "export": ("nothing", "--format", "torch-op", "--out", "p"),
    "runs": ("--chek",),
    "runs faults": ("--chek",),
    "show": ("nothing",),
    "compare": ("nothing", "nothing"),
    "archive copy": ("no_such_archive", "x"),
    "archive check": ("no_such_archive",),
    "archive migrate": ("no_such_archive",),
    "view": ("--port", "99999"),
    "bench": ("no_such_folder",),
    "ablate": ("no_such_task.py",),
    "audit": ("--gate", "no-such-gate"),
    "fleet up": ("--port", "0"),
    "fleet status": ("--address", "nonsense"),
    "fleet drain": ("node", "--address", "nonsense"),
    "synth": ("--count", "0", "--out", "x"),
    "dataset build": ("no_such_folder", "--out", "d"),
    "dataset check": ("no_such_data",),
    "dataset rejudge": ("no_such_data", "--out", "d"),
    "dataset overlap": ("no_such_data",),
    "dataset stats": ("no_such_data",),
    "dataset export": ("no_such_data", "--out", "d"),
    "train sft": ("--recipe", "no-such-recipe", "--data", "d", "--out", "o"),
    "train dpo": ("--recipe", "no-such-recipe", "--data", "d", "--out", "o"),
    "train rl": ("--recipe", "no-such-recipe", "--data", "d", "--out", "o"),
    "train rft": ("--recipe", "no-such-recipe", "--data", "d", "--out", "o"),
    "train mini": ("--out", "m", "--set", "nonsense"),
    "train report": ("no_such_training",),
    "train serve": ("--data", "no_such_data"),
    "serve": ("--data", "no_such_data"),
    "mcp": ("--root", "no_such_folder"),
}
NEEDS_GPU = {"contact", "score"}  # a simulated one here
ENDLESS = {"serve", "train serve"}
NEEDS_NODES = {"fleet up", "fleet status", "fleet drain"}  # tests/fleet runs them


@pytest.fixture(autouse=True)
def _narrow() -> Iterator[None]:
    with mock.patch.dict("os.environ", {"COLUMNS": str(WIDTH)}):
        yield


def test_no_command_is_left_out() -> None:
    assert set(EXAMPLES) == set(COMMANDS) == set(WRONG)
    assert {name.split()[0] for name in COMMANDS} | {""} == {name.split()[0] if name else "" for name in EVERY}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_fits_a_screen_and_has_an_example(name: str) -> None:
    context = EVERY[name]
    lines = context.command.get_help(context).splitlines()
    assert len(lines) <= LINES, "\n".join(lines)
    assert all(len(line) <= WIDTH for line in lines)
    assert f"Example: {EXAMPLES[name]}" in " ".join("\n".join(lines).replace("\\\n", "").split())
    assert shlex.split(EXAMPLES[name])[: 1 + len(name.split())] == ["hipwright", *name.split()]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_lost(name: str) -> None:
    """--help-all shows every option of the command; each common one exists; help names how many are left out."""
    context = EVERY[name]
    own = {option_name(p) for p in context.command.params if p.param_type_name == "option"}
    assert set(COMMON.get(name, ())) <= own
    context.meta["hipwright.help_all"] = True
    try:
        everything = context.command.get_help(context)
    finally:
        context.meta.clear()
    for param in context.command.get_params(context):
        if param.param_type_name == "option":
            assert any(opt in everything for opt in param.opts), param.opts
    for word in ("--quiet", "--verbose"):
        assert word in everything


def says_one_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and "Traceback" not in text, text
    assert lines[0].startswith("error: bad input: ") and len(lines[0]) < 300, lines[0]
    return lines[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_input_is_one_line(name: str, tmp_path: Path) -> None:
    done = hipwright(tmp_path / "home", *name.split(), *WRONG[name])
    assert done.returncode == 2, done.stdout + done.stderr
    line = says_one_line(done.stderr)
    assert any(word in line for word in (*WRONG[name], "no archive in")), line
    if any(option_name(p) == "json" for p in EVERY[name].command.params):
        done = hipwright(tmp_path / "home", *name.split(), *WRONG[name], "--json")
        found = one_object(done.stdout)
        assert (done.returncode, found["exit_code"], found["fault"]) == (2, 2, "task")


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"mcp", *ENDLESS}))
def test_a_wrong_option_is_blamed_in_json_too(name: str, tmp_path: Path) -> None:
    found = one_object(hipwright(tmp_path / "home", *name.split(), "--jsn", "--json").stdout)
    assert found["evidence"]["option"] == "--jsn" and found["error"].endswith("did you mean --json?")
    assert found["evidence"]["command"] == f"hipwright {name}"


def run_examples(folder: Path, names: list[str]) -> None:
    (folder / "examples").symlink_to(TASKS)
    (folder / ".hipwright").symlink_to(folder / "home")
    for name in names:
        words = shlex.split(EXAMPLES[name])[1:]
        if name in NEEDS_GPU:
            env = {"ROCM_PATH": str(simulated.made(folder / "rocm")), "HIPWRIGHT_HOME": str(folder / "home")}
            done = warm.hipwright(folder, *words, env=env)
        else:
            done = hipwright(folder / "home", *words)
        assert done.returncode == 0, (name, done.stdout[-1500:], done.stderr[-1500:])


def from_to(first: str, last: str) -> list[str]:
    names = list(EXAMPLES)
    return [name for name in names[names.index(first) : names.index(last) + 1] if name not in ENDLESS | NEEDS_NODES]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_examples_of_programs_work(tmp_path: Path) -> None:
    run_examples(tmp_path, from_to("doctor", "view"))


@pytest.mark.slow
def test_the_examples_of_many_tasks_work(tmp_path: Path) -> None:
    run_examples(tmp_path, from_to("bench", "audit"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_examples_of_data_work(tmp_path: Path) -> None:
    run_examples(tmp_path, from_to("synth", "dataset export"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_examples_of_learning_work(tmp_path: Path) -> None:
    (tmp_path / "pairs").symlink_to(REPO / "data" / "sample")
    run_examples(tmp_path, from_to("train sft", "mcp"))
