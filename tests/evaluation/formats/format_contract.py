"""What every loader of a task format does, as one function a promise; `test_format_contract.py` calls them for each."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterable
from pathlib import Path

from hipwright.errors import BadInput
from hipwright.evaluation.formats.base import BenchTask, TaskFormat, kept_out
from hipwright.evaluation.formats.registry import FORMATS, format_of
from hipwright.evaluation.suite import find_tasks
from hipwright.program.modelnew.check import form_of

EXAMPLES = Path(__file__).parents[3] / "examples" / "formats"
ENTRY_POINTS = {"get_inputs", "get_input_groups"}


def example(form: TaskFormat) -> Path:
    """The format's example folder."""
    return EXAMPLES / form.name


def finds_its_own(form: TaskFormat) -> None:
    """The folder's layout is found, and is no other format's."""
    assert form.detect(example(form)) and format_of(example(form)) is form
    others = [one for one in FORMATS if one is not form and one.name != "kernelbench"]
    assert [one.name for one in others if one.detect(example(form))] == []


def finds_nothing_in(form: TaskFormat, empty: Path) -> None:
    """An empty folder, and one with a file of another kind, are not its."""
    assert not form.detect(empty) and list(form.load(empty)) == []
    (empty / "notes.md").write_text("# notes\n")
    assert not form.detect(empty)


def makes_task_files(form: TaskFormat) -> None:
    """Every task of the example has a name that is a path below a folder, a category, the rule, and a task's text."""
    tasks = list(form.load(example(form)))
    assert len(tasks) >= 2 and all(one.category and one.rule and not one.problem for one in tasks)
    assert len({one.name for one in tasks}) == len(tasks)
    for task in tasks:
        assert not Path(task.name).is_absolute() and ".." not in Path(task.name).parts and task.path.is_file()
        defined = top_level(task.read())
        assert "Model" in defined and ENTRY_POINTS & defined, task.name
        assert kept_out(task.read()) == form.no_training


def is_repeatable(form: TaskFormat, place: Path) -> None:
    """The same folder elsewhere gives the same texts, in the same order."""
    copy = place / example(form).name
    shutil.copytree(example(form), copy)
    there = [(one.name, one.read(), one.category) for one in form.load(copy)]
    assert there == [(one.name, one.read(), one.category) for one in form.load(example(form))]


def runs_nothing(form: TaskFormat, place: Path) -> None:
    """Python of the folder is read, not run."""
    copy, ran = place / example(form).name, place / "ran"
    shutil.copytree(example(form), copy)
    for path in copy.rglob("*.py"):
        path.write_text(path.read_text() + f"\n\nopen({str(ran)!r}, 'w').close()\n")
    tasks = find_tasks(copy)
    assert tasks and not ran.exists()
    list(form.answers(copy, tasks))
    assert not ran.exists()


def survives(form: TaskFormat, folder: Path) -> list[BenchTask]:
    """Whatever a damaged folder holds, there is a list of tasks, each with a text or a problem of one line."""
    try:
        tasks = find_tasks(folder, None, form.name)
    except BadInput as error:
        assert "\n" not in error.message
        return []
    for task in tasks:
        assert "\n" not in task.problem and len(task.problem) <= 300
        if task.text is not None:
            ast.parse(task.text)
    try:
        answers = list(form.answers(folder, tasks))
    except BadInput as error:
        assert "\n" not in error.message
        return tasks
    for answer in answers:
        assert "\n" not in answer.problem and len(answer.problem) <= 300
    return tasks


def answers_are_candidates(form: TaskFormat) -> None:
    """Each answer of the example belongs to a known task or to none, and is a ModelNew file or has a problem."""
    tasks = find_tasks(example(form))
    for answer in form.answers(example(form), tasks):
        assert answer.task in {task.name for task in tasks} | {""}
        if answer.task and not answer.problem:
            assert answer.text is not None and form_of(answer.text) == "modelnew"


def top_level(text: str) -> set[str]:
    """Functions and classes that a text defines."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.parse(text).body if isinstance(node, kinds)}


def data_files(folder: Path) -> Iterable[Path]:
    """The files that a loader reads."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
