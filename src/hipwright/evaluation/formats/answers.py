"""Answers of other benchmarks as candidates: a function of theirs in a ModelNew file (docs/modelnew.md).

Text is read and joined, never run; the file goes through the static rules and the sandbox of every ModelNew file.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from hipwright import syntax
from hipwright.evaluation.formats.base import BenchTask, CandidateFile
from hipwright.evaluation.formats.portable import function_of
from hipwright.evaluation.formats.read import Malformed, python_checked

_COPIES = '''

def _copies(data):
    """The data with copies of its tensors: the answer writes into them, and a candidate's inputs must stay."""
    if isinstance(data, torch.Tensor):
        return data.clone()
    if isinstance(data, dict):
        return {key: _copies(one) for key, one in data.items()}
    return type(data)(_copies(one) for one in data) if isinstance(data, (list, tuple)) else data
'''


def model_new(task: BenchTask, answer: str, function: str, where: str, *, copies: bool = False) -> str:
    """A ModelNew file that calls an answer's function with what the task's Model gives its reference.

    copies: of the one argument, for an answer that writes into it. An answer that has a class ModelNew is one already.
    Raises Malformed.
    """
    python_checked(answer, where)
    if any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in syntax.parse(answer).body):
        return answer
    function_of(answer, function, where)
    names, call = _call(task)
    arguments = f"_copies({names[0]})" if copies else call
    return with_model(answer, names, f"{function}({arguments})", _COPIES if copies else "")


def with_model(answer: str, names: Sequence[str], value: str, more: str = "") -> str:
    """The answer's text with a class ModelNew whose forward returns `value`."""
    forward = f"    def forward(self, {', '.join(names)}):\n        return {value}\n"
    return f"{answer.rstrip()}\n\n\nimport torch\n{more}\n\nclass ModelNew(torch.nn.Module):\n{forward}"


def guarded_answer(make: Callable[[], str], task: str, path: Path) -> CandidateFile:
    """The candidate that `make` makes, or the malformed one with its problem."""
    try:
        return CandidateFile(task, path, text=make())
    except Malformed as error:
        return CandidateFile(task, path, problem=" ".join(str(error).split())[:300])


def by_last_name(tasks: Iterable[BenchTask]) -> dict[str, BenchTask]:
    """The tasks that have a text, by the last part of their name; by the whole name where several share that."""
    made = [task for task in tasks if task.text is not None]
    counts = Counter(task.name.rpartition("/")[2] for task in made)
    short = {task.name: task.name.rpartition("/")[2] for task in made}
    return {short[task.name] if counts[short[task.name]] == 1 else task.name: task for task in made}


def _call(task: BenchTask) -> tuple[list[str], str]:
    """(the parameters of the task's Model.forward, the arguments that it gives its reference)."""
    assert task.text is not None
    models = [node for node in syntax.parse(task.text).body if isinstance(node, ast.ClassDef) and node.name == "Model"]
    forward = next(node for node in models[-1].body if isinstance(node, ast.FunctionDef) and node.name == "forward")
    result = forward.body[-1]
    assert isinstance(result, ast.Return) and isinstance(result.value, ast.Call)
    given = [ast.unparse(one) for one in (*result.value.args, *result.value.keywords)]
    return [one.arg for one in forward.args.args[1:]], ", ".join(given)
