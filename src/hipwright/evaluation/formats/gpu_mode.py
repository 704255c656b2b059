"""GPU MODE's layout: a folder a problem, with task.yml, task.py, reference.py and the files that task.yml lists.

`generate_input(**spec)` makes a problem's data and `ref_kernel(data)` its result. The first of `benchmarks` is the
task's `get_inputs` (where there is none, of `tests`), and `tests` are its `get_input_groups`. A reference that writes
into its data is given copies of what it writes.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from hipwright import syntax
from hipwright.evaluation.formats.answers import by_last_name, guarded_answer, model_new
from hipwright.evaluation.formats.base import BenchTask, CandidateFile, FormatRule, TaskFormat
from hipwright.evaluation.formats.kernelbench import natural, python_files
from hipwright.evaluation.formats.portable import dependencies_first, function_of, joined, on_default_device
from hipwright.evaluation.formats.read import Malformed, below, guarded, inside, text_of, yaml_record

GROUPS, DEPTH = 8, 3
SUBMISSION = "@SUBMISSION@"
_LEFT_OUT = ("eval", "submission")
_OTHER_FILES = ("task", "reference", "utils", "eval")


class ListedFile(msgspec.Struct):
    """A file of a problem. source: its path from task.yml, or @SUBMISSION@."""

    name: str
    source: str


class GpuModeTask(msgspec.Struct):
    """What a task file needs of task.yml."""

    files: list[ListedFile]
    lang: str
    tests: list[dict[str, Any]] = []
    benchmarks: list[dict[str, Any]] = []
    multi_gpu: bool = False


_HARNESS = """
import torch


class Model(torch.nn.Module):
    def forward(self, data):
        return ref_kernel(data)


def get_inputs():
    return [generate_input(**{first!r})]
"""
_WRITING = '''
import torch


def _leaves(data):
    if isinstance(data, torch.Tensor):
        return [data]
    if isinstance(data, dict):
        data = list(data.values())
    return [leaf for one in data for leaf in _leaves(one)] if isinstance(data, (list, tuple)) else []


def _copied(data, written, at):
    """The data with copies of the leaves that the reference writes; at: [the number of the next leaf]."""
    if isinstance(data, torch.Tensor):
        at[0] += 1
        return data.clone() if at[0] - 1 in written else data
    if isinstance(data, dict):
        return {{key: _copied(one, written, at) for key, one in data.items()}}
    return type(data)(_copied(one, written, at) for one in data) if isinstance(data, (list, tuple)) else data


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        data = generate_input(**{smallest!r})
        leaves = _leaves(data)
        before = [leaf._version for leaf in leaves]
        ref_kernel(data)
        self.written = tuple(at for at, leaf in enumerate(leaves) if leaf._version != before[at])

    def forward(self, data):
        return ref_kernel(_copied(data, self.written, [0]))


def get_inputs():
    return [generate_input(**{first!r})]
'''
_GROUPS = """

def get_input_groups():
    return [[generate_input(**spec)] for spec in {specs!r}]
"""


class GpuModeFormat(TaskFormat):
    """The loader of GPU MODE's problem folders. A task's category is the folder of its problem."""

    name = "gpu-mode"
    title = "GPU MODE"
    layout = "PROBLEM/task.yml, PROBLEM/reference.py"
    no_training = ""
    rule = FormatRule(
        tolerance="check_implementation of the problem's reference.py, on each of its tests",
        timing="mean time of each benchmark, its inputs drawn anew; ranked by last, mean or geometric mean",
        source="https://github.com/gpu-mode/reference-kernels",
    )

    def detect(self, folder: Path) -> bool:
        """Whether there is a task.yml."""
        return bool(_problems(folder))

    def load(self, folder: Path) -> Iterable[BenchTask]:
        """The problems, named by their folders."""
        for path in _problems(folder):
            problem = path.parent
            name = below(problem, folder) if problem != folder else folder.resolve().name
            category = problem.parent.name if problem != folder and problem.parent != folder else folder.resolve().name
            made = partial(self._task, folder, path, name, category)
            yield guarded(made, name, path, category=category, rule=self.rule)

    def answers(self, folder: Path, tasks: Sequence[BenchTask]) -> Iterable[CandidateFile]:
        """PROBLEM.py, PROBLEM/submission.py or PROBLEM/*.py with `custom_kernel`, below the folder."""
        for name, task in by_last_name(tasks).items():
            places = [folder / f"{name}.py", *python_files(folder / name), *python_files(folder / task.name)]
            for path in dict.fromkeys(one for one in places if one.is_file()):
                if path.stem not in _OTHER_FILES and _has_kernel(path):
                    yield guarded_answer(partial(_submission, task, path, folder), task.name, path)

    def _task(self, root: Path, path: Path, name: str, category: str) -> BenchTask:
        where = below(path, root)
        found = yaml_record(path, root, GpuModeTask)
        if found.lang != "py":
            raise Malformed(f"{where}: lang: {found.lang}; only py is read, whose reference is PyTorch")
        if found.multi_gpu:
            raise Malformed(f"{where}: multi_gpu: a problem of several GPUs is not judged")
        specs = _specs(found, where)
        modules = _modules(found, path, root)
        if "reference" not in modules:
            raise Malformed(f"{where}: files: reference.py: missing")
        text = joined(dependencies_first(modules, "reference"), below(path.parent, root))
        for function in ("generate_input", "ref_kernel"):
            function_of(text, function, f"{where}: files")
        rule = _rule(self.rule, modules["reference"])
        return BenchTask(name, path, category=category, text=on_default_device(text + _harness(text, specs)), rule=rule)


GPU_MODE = GpuModeFormat()


def _submission(task: BenchTask, path: Path, folder: Path) -> str:
    """The ModelNew file of a submission, with the problem's modules that it imports. Raises Malformed."""
    where = below(path, folder)
    found = yaml_record(task.path, task.path.parent, GpuModeTask)
    modules = _modules(found, task.path, task.path.parent.parent)
    modules = {name: text for name, text in modules.items() if name != "reference"}
    text = joined(dependencies_first({**modules, "submission": text_of(path, folder)}, "submission"), where)
    return model_new(task, text, "custom_kernel", where, copies="self.written" in (task.text or ""))


def _has_kernel(path: Path) -> bool:
    try:
        return "custom_kernel" in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _harness(text: str, specs: list[dict[str, Any]]) -> str:
    """What makes the joined modules a task file. specs: the measured one first."""
    writes = _writes(function_of(text, "ref_kernel", ""))
    harness = (_WRITING if writes else _HARNESS).format(first=specs[0], smallest=specs[-1])
    return harness + (_GROUPS.format(specs=specs[1 : GROUPS + 1]) if len(specs) > 1 else "")


def _specs(found: GpuModeTask, where: str) -> list[dict[str, Any]]:
    """The measured case, then the tests. Raises Malformed."""
    for kind, cases in (("tests", found.tests), ("benchmarks", found.benchmarks)):
        for index, case in enumerate(cases):
            for key, value in case.items():
                if not key.isidentifier():
                    raise Malformed(f"{where}: {kind}[{index}]: {key!r} is no argument's name")
                if not _plain(value):
                    raise Malformed(f"{where}: {kind}[{index}].{key}: no number, text or list of them")
    specs = [*found.benchmarks[:1], *found.tests] or found.benchmarks
    if not specs:
        raise Malformed(f"{where}: tests: there are none, and no benchmarks")
    return specs


def _plain(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_plain, value))
    return isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value))


def _modules(found: GpuModeTask, path: Path, root: Path) -> dict[str, str]:
    """{name: text} of the Python files that the reference may import. Raises Malformed."""
    modules = {}
    allowed = root.resolve().parent
    for one in found.files:
        name = one.name.removesuffix(".py")
        if one.source == SUBMISSION or name in _LEFT_OUT or not one.name.endswith(".py"):
            continue
        place = inside(allowed, path.parent, one.source, f"{below(path, root)}: files: {one.name}")
        modules[name] = text_of(place, root.resolve())
    return modules


def _writes(function: ast.FunctionDef) -> bool:
    """Whether a function may write into its argument: assigned elements, methods that end with "_", out=."""
    for node in ast.walk(function):
        if isinstance(node, ast.AugAssign):
            return True
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Subscript) for target in node.targets):
            return True
        if isinstance(node, ast.Call):
            in_place = isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_")
            if in_place or any(one.arg == "out" for one in node.keywords):
                return True
    return False


def _rule(rule: FormatRule, reference: str) -> FormatRule:
    """The rule with the numbers that the reference's file names as rtol and atol."""
    numbers: dict[str, float] = {}
    for node in ast.walk(syntax.parse(reference)):
        if isinstance(node, ast.keyword) and node.arg in ("rtol", "atol") and isinstance(node.value, ast.Constant):
            value = node.value.value
            if isinstance(value, (int, float)):
                numbers[node.arg] = max(numbers.get(node.arg, 0.0), float(value))
    if len(numbers) < 2:
        return rule
    words = f"{rule.tolerance}: rtol {numbers['rtol']:g}, atol {numbers['atol']:g}"
    return msgspec.structs.replace(rule, tolerance=words, **numbers)


def _problems(folder: Path) -> list[Path]:
    places = ["/".join(["*"] * depth + ["task.yml"]) for depth in range(DEPTH + 1)]
    found = [path for place in places for path in folder.glob(place) if path.is_file()]
    return sorted(found, key=lambda path: natural(path.as_posix()))
