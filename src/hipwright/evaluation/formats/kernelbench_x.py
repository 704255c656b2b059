"""KernelBench-X's layout: CATEGORY/TASK.py, a reference function, a line of 146 "#", and a function that tests it.

The test's calls of the reference function are the inputs: the task file runs the test with a function in the
reference's place that keeps the arguments. The first call is the task's `get_inputs`; calls with the same plain
arguments (numbers, strings, None) are its `get_input_groups`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from hipwright import syntax
from hipwright.errors import BadInput
from hipwright.evaluation.formats.answers import by_last_name, guarded_answer, model_new
from hipwright.evaluation.formats.base import BenchTask, CandidateFile, FormatRule, TaskFormat
from hipwright.evaluation.formats.kernelbench import python_files, subfolders
from hipwright.evaluation.formats.portable import function_of, on_default_device, parameters
from hipwright.evaluation.formats.read import Malformed, below, guarded, json_lines, python_checked, text_of

BORDER = "#" * 146
PLACES = ("data/kernelbenchx", "kernelbenchx", ".")
"""Where the categories are, below a checkout or in the folder itself."""
_HARNESS = '''

class _Calls:
    """The reference function during its own test: keeps the arguments of each call."""

    def __init__(self, function):
        self.function, self.kept = function, []

    def __call__(self, *args, **kwargs):
        import inspect

        bound = inspect.signature(self.function).bind(*args, **kwargs)
        bound.apply_defaults()
        self.kept.append([_own(bound.arguments[name]) for name in _NAMES])
        return self.function(*args, **kwargs)


def _own(value):
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _recorded():
    calls, reference = _Calls({entry}), {entry}
    globals()["{entry}"] = calls
    try:
        {test}()
    finally:
        globals()["{entry}"] = reference
    return calls.kept


def _plain(call):
    return [repr(value) for value in call if not isinstance(value, torch.Tensor)]


_NAMES = {names!r}


class Model(torch.nn.Module):
    def forward(self, {parameters}):
        return {entry}({arguments})


def get_inputs():
    return _recorded()[0]


def get_input_groups():
    first, *others = _recorded()
    return [call for call in others if _plain(call) == _plain(first)][:{groups}]
'''
GROUPS, ENTRY = 8, "kernel_function"


class Prediction(msgspec.Struct):
    """A line of answers."""

    predict: str
    file: str


class KernelBenchXFormat(TaskFormat):
    """The loader of KernelBench-X's folders of categories."""

    name = "kernelbench-x"
    title = "KernelBench-X"
    layout = "CATEGORY/TASK.py with a line of 146 #"
    no_training = ""
    rule = FormatRule(
        tolerance="each value of the test function's results close to the reference's, by allclose",
        timing="speedup over the reference on the test's own shapes",
        source="https://huggingface.co/datasets/BonnieWang/KernelBenchX",
    )

    def detect(self, folder: Path) -> bool:
        """Whether a file of a category has the line."""
        return any(_has_border(path) for path in _files(folder))

    def load(self, folder: Path) -> Iterable[BenchTask]:
        """The tasks, named CATEGORY/TASK."""
        for path in _files(folder):
            category = path.parent.name
            name = f"{category}/{path.stem}"
            yield guarded(partial(self._task, folder, path, name), name, path, category=category, rule=self.rule)

    def answers(self, folder: Path, tasks: Sequence[BenchTask]) -> Iterable[CandidateFile]:
        """The lines of the folder's *.jsonl: `file`, a task's, and `predict`, the text of its answer."""
        mine = by_last_name(tasks)
        for path in sorted(folder.glob("*.jsonl")):
            try:
                lines = list(json_lines(path, folder, Prediction))
            except Malformed as error:
                raise BadInput(f"no answers: {error}") from None
            for line in lines:
                task = mine.get(Path(line.file).stem)
                where = f"{below(path, folder)}: {line.file[:80]}"
                if task is None:
                    yield CandidateFile("", Path(f"{path.name}: {line.file[:80]}"))
                else:
                    yield guarded_answer(partial(_predicted, task, line.predict, where), task.name, path)

    def _task(self, root: Path, path: Path, name: str) -> BenchTask:
        where = below(path, root)
        reference, border, test = python_checked(text_of(path, root), where).partition(f"{BORDER}\n")
        if not border:
            raise Malformed(f"{where}: no line of {len(BORDER)} # between the reference and its test")
        python_checked(reference, f"{where}, the reference,")  # the border may stand in a text
        python_checked(test, f"{where}, the test,")
        text = _text(reference, test, path.stem, where)
        return BenchTask(name, path, category=path.parent.name, text=text, rule=self.rule)


KERNELBENCH_X = KernelBenchXFormat()


def _predicted(task: BenchTask, text: str, where: str) -> str:
    """The ModelNew file of an answer: its `kernel_function`, else the function named like the task."""
    python_checked(text, where)
    defined = {node.name for node in syntax.parse(text).body if isinstance(node, ast.FunctionDef)}
    return model_new(task, text, ENTRY if ENTRY in defined else task.name.rpartition("/")[2], where)


def _text(reference: str, test: str, stem: str, where: str) -> str:
    """The task file. Raises Malformed."""
    entry = _entry(reference, test, stem, where)
    function = function_of(reference, entry, where)
    positional, by_name = parameters(function, where)
    names = [*positional, *by_name]
    if not names:
        raise Malformed(f"{where}: {entry} has no parameters")
    harness = _HARNESS.format(
        entry=entry,
        test=_test(test, where),
        names=names,
        parameters=", ".join(names),
        arguments=", ".join([*positional, *(f"{name}={name}" for name in by_name)]),
        groups=GROUPS,
    )
    return on_default_device(f"{reference.rstrip()}\n\n\n{_without_run(test).rstrip()}\n\nimport torch\n{harness}")


def _entry(reference: str, test: str, stem: str, where: str) -> str:
    """The reference function: the one named like the task, else the last of which the test has a call."""
    functions = [node.name for node in syntax.parse(reference).body if isinstance(node, ast.FunctionDef)]
    called = {
        node.func.id
        for node in ast.walk(syntax.parse(test))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    if stem in functions:
        return stem
    tested = [name for name in functions if name in called]
    if not tested:
        raise Malformed(f"{where}: the test calls no function of the reference")
    return tested[-1]


def _test(test: str, where: str) -> str:
    """The name of the test function: the last one without required parameters that begins with "test"."""
    found = [
        node.name
        for node in syntax.parse(test).body
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test")
        and len(node.args.defaults) == len(node.args.args)
    ]
    if not found:
        raise Malformed(f"{where}: no function test... below the line of #")
    return found[-1]


def _without_run(test: str) -> str:
    """The test's imports, functions and constants, without the statements that run it."""
    tree = syntax.parse(test)
    kept = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    tree.body = [node for node in tree.body if isinstance(node, kept) or not _runs(node, names)]
    return ast.unparse(tree)


def _runs(node: ast.stmt, names: set[str]) -> bool:
    """Whether a statement calls a function of the test, prints, or is text."""
    if isinstance(node, ast.Expr):
        return True
    calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
    return any(isinstance(one, ast.Name) and one.id in names for one in calls)


def _files(folder: Path) -> list[Path]:
    for place in PLACES:
        if (folder / place).is_dir():
            found = [path for category in subfolders(folder / place) for path in python_files(category)]
            if found and (place != "." or any(map(_has_border, found))):
                return found
    return []


def _has_border(path: Path) -> bool:
    try:
        return f"{BORDER}\n" in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
