"""Definitions and workloads, which flashinfer-trace and SOL-ExecBench describe alike, as task files.

A definition is a function `run` with named inputs whose shapes are axes; a workload gives the axes numbers and says
where each input comes from. Its first workload is the task's `get_inputs`, the others are `get_input_groups`.
Published schemas: docs/flashinfer_trace of flashinfer-ai/flashinfer-bench, docs of NVIDIA/SOL-ExecBench.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from hipwright import syntax
from hipwright.evaluation.formats import safetensors
from hipwright.evaluation.formats.portable import function_of, on_default_device
from hipwright.evaluation.formats.read import Malformed, identifier

MAX_GROUPS = 8
"""Workloads of a definition that are judged: the first, and others at even distances, the last included."""
MAX_AXIS = 1 << 40
_ARITHMETIC: Mapping[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_INTEGERS = ("int64", "int32", "int16", "int8")


class AxisConst(msgspec.Struct, tag="const"):
    """An axis of one size."""

    value: int


class AxisVar(msgspec.Struct, tag="var"):
    """An axis whose size a workload gives."""


class AxisExpr(msgspec.Struct, tag="expr"):
    """An axis whose size is computed from others (SOL-ExecBench)."""

    expression: str


class DefinedTensor(msgspec.Struct):
    """An input or output. shape: names of axes; None for a plain number."""

    shape: list[str] | None
    dtype: str


class Definition(msgspec.Struct):
    """A definition; fields that a task does not need are left out."""

    name: str
    axes: dict[str, AxisConst | AxisVar | AxisExpr]
    inputs: dict[str, DefinedTensor]
    outputs: dict[str, DefinedTensor]
    reference: str
    op_type: str = ""
    custom_inputs_entrypoint: str | None = None


class Source(msgspec.Struct):
    """Where an input comes from. value: of a scalar; path, tensor_key: of a file."""

    type: Literal["random", "scalar", "safetensors", "custom"]
    value: bool | int | float | None = None
    path: str = ""
    tensor_key: str = ""


class Tolerance(msgspec.Struct):
    """A workload's own tolerance (SOL-ExecBench)."""

    max_atol: float = 1e-2
    max_rtol: float = 1e-2
    required_matched_ratio: float = 0.99


class TraceWorkload(msgspec.Struct):
    """The sizes and sources of one run."""

    uuid: str
    axes: dict[str, int]
    inputs: dict[str, Source]
    tolerance: Tolerance | None = None


class WorkloadLine(msgspec.Struct):
    """A line of a workload file, by flashinfer-trace a trace without solution and evaluation."""

    definition: str
    workload: TraceWorkload


def task_text(
    definition: Definition, workloads: Sequence[TraceWorkload], root: Path, where: str
) -> tuple[str, list[str]]:
    """(the task file, what of the workloads is not judged). Raises Malformed.

    root: where the paths of tensors begin; where: the definition's file.
    """
    run = function_of(definition.reference, "run", f"{where}: reference")
    names = [identifier(name, f"{where}: inputs") for name in definition.inputs]
    if not names:
        raise Malformed(f"{where}: inputs: there are none")
    taken = {"Model", "get_inputs", "get_input_groups"} & _top_level(definition.reference)
    if taken:
        raise Malformed(f"{where}: reference: defines {', '.join(sorted(taken))}, which a task file defines itself")
    usable, notes = _chosen(definition, workloads, root, where)
    draws = [_inputs(definition, one, root, f"{where}: workload {one.uuid}") for one in usable]
    named = ", ".join(f"{name}={name}" for name in names) if _keywords_only(run) else ", ".join(names)
    lines = [
        on_default_device(definition.reference).rstrip(),
        "",
        "",
        "import torch",
        "",
        "",
        *([safetensors.HELPER.strip("\n"), "", ""] if any("_stored(" in draw for draw in draws) else []),
        "class Model(torch.nn.Module):",
        f"    def forward(self, {', '.join(names)}):",
        *_fixed(definition, usable[0], where),
        f"        return run({named})",
        "",
        "",
        "def get_inputs():",
        f"    return {draws[0]}",
    ]
    if len(draws) > 1:
        groups = "".join(f"        {draw},\n" for draw in draws[1:])
        lines += ["", "", "def get_input_groups():", f"    return [\n{groups}    ]"]
    return "\n".join(lines) + "\n", notes


def _fixed(definition: Definition, workload: TraceWorkload, where: str) -> list[str]:
    """A check of the sizes of constant axes, so that no other ones are derived: an answer may rely on them."""
    known = sizes(definition, workload, where)
    constant = {name for name, axis in definition.axes.items() if isinstance(axis, AxisConst)}
    found = [
        (f"{name}.shape[{place}]", known[axis])
        for name, tensor in definition.inputs.items()
        for place, axis in enumerate(tensor.shape or ())
        if axis in constant
    ]
    if not found:
        return []
    left, right = "".join(f"{size}, " for size, _ in found), "".join(f"{number}, " for _, number in found)
    return [f'        assert ({left}) == ({right}), "sizes of constant axes"']


def sizes(definition: Definition, workload: TraceWorkload, where: str) -> dict[str, int]:
    """The size of each axis under a workload. Raises Malformed."""
    found: dict[str, int] = {}
    for name, axis in definition.axes.items():
        if isinstance(axis, AxisConst):
            found[name] = axis.value
        elif isinstance(axis, AxisVar):
            if name not in workload.axes:
                raise Malformed(f"{where}: axes.{name}: missing")
            found[name] = workload.axes[name]
    for name, axis in definition.axes.items():
        if isinstance(axis, AxisExpr):
            found[name] = evaluated(axis.expression, found, f"{where}: axes.{name}.expression")
    for name, size in found.items():
        if not 0 <= size <= MAX_AXIS:
            raise Malformed(f"{where}: axes.{name}: {size} is no size")
    return found


def evaluated(expression: str, known: Mapping[str, int], where: str) -> int:
    """An axis expression's value: + - * / // % ** of whole numbers and axes. Raises Malformed."""
    try:
        tree = syntax.parse(expression.strip(), mode="eval")
        value = _value(tree.body, known)
    except Malformed as error:
        raise Malformed(f"{where}: {error}") from None
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        raise Malformed(f"{where}: {error}") from None
    if value != int(value):
        raise Malformed(f"{where}: {value} is no whole number")
    return int(value)


def _value(node: ast.expr, known: Mapping[str, int]) -> int | float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.Name(id=name):
            raise Malformed(f"no axis {name}")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, known)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, known)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            a, b = _value(left, known), _value(right, known)
            if isinstance(op, ast.Pow) and (abs(b) > 64 or abs(a) > 2**32):
                raise Malformed("its power is too large")
            found = _ARITHMETIC[type(op)](a, b)
            if isinstance(found, complex) or abs(found) > 2**80:
                raise Malformed("its value is no size")
            return found  # type: ignore[no-any-return]
    raise Malformed(f"{ast.unparse(node)} is no arithmetic of axes")


def _usable(definition: Definition, workloads: Sequence[TraceWorkload], root: Path) -> list[TraceWorkload]:
    """The workloads whose files are here and hold small integer tensors alone."""

    def usable(workload: TraceWorkload) -> bool:
        for name, source in workload.inputs.items():
            tensor = definition.inputs.get(name)
            if source.type == "safetensors" and tensor is not None:
                shape = [_length(definition, workload, axis) for axis in tensor.shape or ()]
                if tensor.shape is None or not safetensors.keeps(tensor.dtype, tuple(shape)):
                    return False
                if not _is_here(root / source.path):
                    return False
        return True

    return [one for one in workloads if usable(one)]


def _is_here(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no path at all: too long, or with a null byte
        return False


def _length(definition: Definition, workload: TraceWorkload, axis: str) -> int:
    """An axis's size where that is a plain number, else 0: whether a tensor is small is told by its other axes."""
    found = definition.axes.get(axis)
    return found.value if isinstance(found, AxisConst) else workload.axes.get(axis, 0)


def _chosen(
    definition: Definition, workloads: Sequence[TraceWorkload], root: Path, where: str
) -> tuple[list[TraceWorkload], list[str]]:
    """(the workloads to judge, what of them is not judged). Raises Malformed where none can be."""
    if not workloads:
        raise Malformed(f"{where}: it has no workload")
    usable, notes = _usable(definition, workloads, root), []
    if left := len(workloads) - len(usable):
        why = "take tensors from safetensors files that are not here, or no small integer ones"
        notes.append(f"{left} of {len(workloads)} workloads {why}: not judged")
        if not usable:
            raise Malformed(f"{where}: {notes[0]}")
    if len(usable) > MAX_GROUPS:
        step = (len(usable) - 1) / (MAX_GROUPS - 1)
        notes.append(f"{MAX_GROUPS} of {len(usable)} workloads are judged, at even distances")
        usable = [usable[round(step * index)] for index in range(MAX_GROUPS)]
    return usable, notes


def _inputs(definition: Definition, workload: TraceWorkload, root: Path, where: str) -> str:
    """The list of inputs of a workload, as Python text."""
    axes = sizes(definition, workload, where)
    given = {name: workload.inputs.get(name) for name in definition.inputs}
    if missing := [name for name, source in given.items() if source is None]:
        raise Malformed(f"{where}: inputs.{missing[0]}: missing")
    sources = [source for source in given.values() if source is not None]
    if any(source.type == "custom" for source in sources):
        return _custom(definition, workload, axes, sources, where)
    pairs = zip(definition.inputs.items(), sources, strict=True)
    return f"[{', '.join(_input(name, tensor, source, axes, root, where) for (name, tensor), source in pairs)}]"


def _custom(
    definition: Definition, workload: TraceWorkload, axes: Mapping[str, int], sources: Sequence[Source], where: str
) -> str:
    """The inputs that the definition's own function makes."""
    entry = definition.custom_inputs_entrypoint
    if entry is None:
        raise Malformed(f"{where}: inputs are custom, but the definition has no custom_inputs_entrypoint")
    if any(source.type != "custom" for source in sources):
        raise Malformed(f"{where}: inputs: custom ones are mixed with others")
    function_of(definition.reference, entry, f"{where}: custom_inputs_entrypoint")
    order = [*definition.inputs]
    call = f"{entry}({dict(axes)!r}, torch.get_default_device())"
    return f"(lambda made: [made[name] for name in {order!r}])({call})"


def _input(name: str, tensor: DefinedTensor, source: Source, axes: Mapping[str, int], root: Path, where: str) -> str:
    """One input as Python text."""
    place = f"{where}: inputs.{name}"
    if source.type == "scalar":
        if source.value is None:
            raise Malformed(f"{place}.value: missing")
        return f"float({str(source.value)!r})" if source.value != source.value else _number(source.value)
    if tensor.shape is None:
        raise Malformed(f"{place}: a plain number that is random; a workload gives its value")
    unknown = [axis for axis in tensor.shape if axis not in axes]
    if unknown:
        raise Malformed(f"{place}.shape: no axis {unknown[0]}")
    shape = tuple(axes[axis] for axis in tensor.shape)
    if source.type == "safetensors":
        return safetensors.stored(source.path, source.tensor_key, shape, tensor.dtype, root, place)
    if tensor.dtype in _FLOATS:
        narrow = "" if tensor.dtype == "float32" else f".to(torch.{tensor.dtype})"
        return f"torch.randn({shape!r}){narrow}"
    if tensor.dtype in _INTEGERS:
        return f"torch.randint(0, 2, {shape!r}, dtype=torch.{tensor.dtype})"
    if tensor.dtype == "bool":
        return f"torch.randint(0, 2, {shape!r}).bool()"
    raise Malformed(f"{place}.dtype: {tensor.dtype} is no dtype of a task's tensors")


def _number(value: float) -> str:
    return f'float("{value}")' if value in (float("inf"), float("-inf")) else repr(value)


def _keywords_only(run: ast.FunctionDef) -> bool:
    """Whether a run takes its inputs by name alone."""
    return bool(run.args.kwonlyargs) or run.args.kwarg is not None


def _top_level(text: str) -> set[str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in syntax.parse(text).body if isinstance(node, kinds)}
