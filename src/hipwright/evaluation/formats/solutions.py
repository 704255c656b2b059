"""Solutions of flashinfer-trace and SOL-ExecBench as candidates, where their language is Python or Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from hipwright.evaluation.formats.answers import guarded_answer, model_new, with_model
from hipwright.evaluation.formats.base import BenchTask, CandidateFile
from hipwright.evaluation.formats.definitions import AxisConst, AxisExpr, Definition
from hipwright.evaluation.formats.portable import dependencies_first, function_of, joined
from hipwright.evaluation.formats.read import Malformed, below, json_record

LANGUAGES = frozenset({"python", "triton", "pytorch"})


class SourceText(msgspec.Struct):
    """A file of a solution."""

    path: str
    content: str


class SolutionSpec(msgspec.Struct):
    """How a solution is called. languages: SOL-ExecBench's list."""

    entry_point: str
    language: str = ""
    languages: list[str] = []
    destination_passing_style: bool = True


class Solution(msgspec.Struct):
    """A solution; fields that a candidate does not need are left out."""

    name: str
    definition: str
    spec: SolutionSpec
    sources: list[SourceText]


def solutions(
    folder: Path, paths: Iterable[Path], tasks: Mapping[str, BenchTask], definition: Callable[[BenchTask], Definition]
) -> Iterable[CandidateFile]:
    """The candidates of solution files. tasks: by the name of their definition; definition: a task's."""
    for path in paths:
        try:
            found = json_record(path, folder, Solution)
        except Malformed:
            try:  # a file that names a known task is an answer to it, however broken
                named = json_record(path, folder, dict[str, Any]).get("definition")
            except Malformed:
                named = None
            if isinstance(named, str) and named in tasks:
                yield guarded_answer(partial(_again, path, folder), tasks[named].name, path)
            else:
                yield CandidateFile("", path)
            continue
        task = tasks.get(found.definition)
        if task is None:
            yield CandidateFile("", path)
        else:
            yield guarded_answer(partial(_text, found, task, definition, below(path, folder)), task.name, path)


def _again(path: Path, folder: Path) -> str:
    """Raises what is wrong with the file."""
    return json_record(path, folder, Solution).name


def _text(found: Solution, task: BenchTask, definition: Callable[[BenchTask], Definition], where: str) -> str:
    """The ModelNew file. Raises Malformed."""
    languages = {one for one in (found.spec.language, *found.spec.languages) if one}
    if not languages or not languages <= LANGUAGES:
        raise Malformed(f"{where}: spec.language: {', '.join(sorted(languages))}; only python and triton are read")
    file, separator, function = found.spec.entry_point.partition("::")
    modules = {Path(one.path).stem: one.content for one in found.sources if one.path.endswith(".py")}
    entry = Path(file).stem
    if not separator or entry not in modules:
        raise Malformed(f"{where}: spec.entry_point: {found.spec.entry_point[:80]!r} is no file::function of sources")
    text = joined(dependencies_first(modules, entry), f"{where}: sources")
    function_of(text, function, f"{where}: spec.entry_point")
    if not found.spec.destination_passing_style:
        return model_new(task, text, function, f"{where}: sources")
    return _with_destinations(text, function, definition(task), where)


def _with_destinations(text: str, function: str, found: Definition, where: str) -> str:
    """The ModelNew file of a function that writes into outputs, its last arguments."""
    names, made = list(found.inputs), []
    device = next((name for name, one in found.inputs.items() if one.shape is not None), "")
    for name, tensor in found.outputs.items():
        if tensor.shape is None or not device:
            raise Malformed(f"{where}: spec.destination_passing_style: output {name} is a plain number")
        sizes = "".join(f"{_size(axis, found, where)}, " for axis in tensor.shape)
        made.append(f"torch.empty(({sizes}), dtype=torch.{tensor.dtype}, device={device}.device)")
    helper = (
        "\n\ndef _filled(inputs, outputs):\n"
        f"    {function}(*inputs, *outputs)\n"
        "    return outputs[0] if len(outputs) == 1 else outputs\n"
    )
    value = f"_filled(({''.join(f'{name}, ' for name in names)}), ({', '.join(made)},))"
    return with_model(text, names, value, helper)


def _size(axis: str, found: Definition, where: str) -> str:
    """An axis's size as Python text of the inputs."""
    described = found.axes.get(axis)
    if isinstance(described, AxisConst):
        return str(described.value)
    for name, tensor in found.inputs.items():
        if tensor.shape is not None and axis in tensor.shape:
            return f"{name}.shape[{tensor.shape.index(axis)}]"
    kind = "an expression" if isinstance(described, AxisExpr) else "of no input"
    raise Malformed(f"{where}: spec.destination_passing_style: axis {axis} of an output is {kind}")
