"""The self-check of a new task: read, opened in the sandbox, run forward, linted, described.

A warm zygote makes it a matter of half a second: every host is a fork of it, and nothing large is run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from hipwright import syntax
from hipwright.errors import HipwrightError, InfrastructureError, TaskError
from hipwright.records import Record, Task, TensorSpec, TolerancePolicy, content_key
from hipwright.sandbox import Limits, Zygote
from hipwright.task import TaskHandle
from hipwright.task.handle import Outline
from hipwright.tensors import Tree, leaves, tensor_leaves
from hipwright.verify import Oracle
from hipwright.verify.expected import Rule, rules
from hipwright.verify.oracle import MUTATED, VerificationCase

Stage = Literal["static", "open", "forward", "nonfinite", "random", "degenerate", "too large", "duplicate", "capture"]

MAX_TEXT = 20_000  # characters
MAX_ELEMENTS = 1 << 24  # of one workload's inputs, and of its outputs
LIMITS = Limits(wall_s=30.0, memory_mb=8192)  # of one call to the host
IMPORTS = ("torch", "torch.nn", "torch.nn.functional", "math")
_BUILTINS = (
    "exec",
    "eval",
    "compile",
    "open",
    "__import__",
    "globals",
    "vars",
    "breakpoint",
    "input",
    "setattr",
    "delattr",
)
_OF_TORCH = (
    "load",
    "save",
    "hub",
    "ops",
    "jit",
    "compile",
    "cuda",
    "multiprocessing",
    "distributed",
    "utils",
    "backends",
    "library",
    "serialization",
    "package",
    "onnx",
    "classes",
)


class TaskRefused(Exception):
    """A task that is not taken, at which stage, and why: one line, fit to be shown to whoever wrote it."""

    def __init__(self, stage: Stage, message: str) -> None:
        super().__init__(message)
        self.stage = stage
        self.message = message


class Description(Record, frozen=True, kw_only=True):
    """What a task does. operators: ATen names in order of first use; operations: of products and convolutions."""

    operators: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: int
    operations: float
    workloads: tuple[str, ...]


@dataclass(frozen=True)
class CheckedTask:
    """A task that passed, what it does, its operators at its own shapes, and the engine's graph of it as a dict."""

    task: Task
    description: Description
    outline: Outline
    graph: dict[str, Any]


def check(name: str, source: str, zygote: Zygote, *, seed: int = 0) -> tuple[Task, Description]:
    """The task and what it does. Raises Refused, and the infrastructure's errors as they are."""
    with _opened(name, source, zygote, seed) as handle:
        return handle.task, _describe(handle, _outline(handle))


def examine(name: str, source: str, zygote: Zygote, *, seed: int = 0) -> CheckedTask:
    """`check`, with the outline and the captured graph; a task that cannot be captured is refused too."""
    with _opened(name, source, zygote, seed) as handle:
        outline = _outline(handle)
        try:
            graph = handle.capture(_first(handle))
        except TaskError as error:
            raise TaskRefused("capture", error.message) from None
        return CheckedTask(handle.task, _describe(handle, outline), outline, graph)


@contextmanager
def _opened(name: str, source: str, zygote: Zygote, seed: int) -> Iterator[TaskHandle]:
    """The task once it has passed. Raises Refused for whatever is the task's own fault."""
    static(source)
    try:
        handle = TaskHandle(f"{name}.py", source, zygote, LIMITS, TolerancePolicy())
    except InfrastructureError:
        raise
    except HipwrightError as error:
        raise TaskRefused("open", error.message) from None
    with handle:
        _sizes(handle)
        try:
            _forward(handle, seed)
            _evidence(handle, seed)
            yield handle
        except InfrastructureError:
            raise
        except HipwrightError as error:
            raise TaskRefused("forward", error.message) from None


def static(source: str) -> None:
    """What can be said of the text alone: no import but torch's and math, no way out of the file, a sane size."""
    if len(source) > MAX_TEXT:
        raise TaskRefused("static", f"the file has {len(source)} characters, more than {MAX_TEXT}")
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TaskRefused("static", f"it is not Python: {error}") from None
    names = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    for wanted in ("Model", "get_inputs", "get_init_inputs"):
        if wanted not in names:
            raise TaskRefused("static", f"it defines no {wanted}")
    for line, why in _offences(tree):
        raise TaskRefused("static", f"line {line}: {why}")


def _offences(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            root = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            for module in (one for one in root if one not in IMPORTS):
                yield line, f"imports {module or 'from its own package'}; a task needs no more than torch and math"
        elif isinstance(node, ast.Name) and node.id in _BUILTINS:
            yield line, f"uses {node.id}"
        elif isinstance(node, ast.Attribute):
            if node.attr.startswith("__") and node.attr != "__init__":
                yield line, f"reads {node.attr}"
            if isinstance(node.value, ast.Name) and node.value.id == "torch" and node.attr in _OF_TORCH:
                yield line, f"uses torch.{node.attr}"


def same_task(source: str) -> str:
    """A key that is the same for files that differ in layout, comments and documentation alone."""
    tree = syntax.parse(source)
    if ast.get_docstring(tree) is not None:
        tree.body.pop(0)
    return content_key("task text", ast.dump(tree))


def _sizes(handle: TaskHandle) -> None:
    for workload in (one for one in handle.task.workloads if one.origin != "derived"):
        elements = sum(prod(spec.shape) for spec in workload.specs)
        if elements > MAX_ELEMENTS:
            raise TaskRefused("too large", f"the inputs hold {elements} elements, more than {MAX_ELEMENTS}")
        if any(0 in spec.shape for spec in workload.specs):
            raise TaskRefused("degenerate", "an input is empty")


def _first(handle: TaskHandle) -> str:
    return next(one.name for one in handle.task.workloads if one.origin != "derived")


def _forward(handle: TaskHandle, seed: int) -> None:
    """The reference on its own inputs: it ends, gives numbers, twice the same, and writes to nothing it was given."""
    inputs, state = handle.inputs(_first(handle), seed), handle.init_state(seed)
    outputs, _, info = handle.reference(inputs, state, dtype="native")
    given = tensor_leaves(outputs)
    if not any(leaf.numel for leaf in given):
        raise TaskRefused("degenerate", "forward returns no values")
    if sum(leaf.numel for leaf in given) > MAX_ELEMENTS:
        raise TaskRefused("too large", f"the outputs hold more than {MAX_ELEMENTS} elements")
    if any(leaf.is_float and not np.isfinite(leaf.to_f64()).all() for leaf in given):
        raise TaskRefused("nonfinite", "forward gives NaN or infinity on its own inputs")
    if info.get("random"):
        raise TaskRefused("random", "forward draws random numbers, so no output is the right one")
    if info.get("mutated_inputs"):
        raise TaskRefused("forward", f"forward writes to its own input {info['mutated_inputs'][0]}")
    again = tensor_leaves(handle.reference(inputs, state, dtype="native")[0])
    if any(one.bits().tobytes() != other.bits().tobytes() for one, other in zip(given, again, strict=True)):
        raise TaskRefused("random", "forward gives other values on the same inputs, so no output is the right one")


def _evidence(handle: TaskHandle, seed: int) -> None:
    """At shapes that verification uses: zeros, a constant, an input or another input's outputs must not pass; no output
    is trivial by itself; and inputs of another distribution do not end in NaN."""
    oracle = Oracle(handle, seed=seed)
    name = oracle.planned()[0].workload.name
    case, other = oracle.case(name, "given"), oracle.case(name, MUTATED)
    if not case.counts:
        raise TaskRefused("degenerate", case.degenerate or case.rejected)
    if other.rejected:
        raise TaskRefused("nonfinite", f"on normal inputs: {other.rejected}")
    _outputs(case, other, handle)


def _outputs(case: VerificationCase, other: VerificationCase, handle: TaskHandle) -> None:
    """Each output on its own: one that is the same everywhere, or for all inputs, is no work."""
    moved = tensor_leaves(handle.reference(other.inputs, case.state)[0])
    for rule, strange, leaf in zip(_rules(case), _rules(other), moved, strict=True):
        values = rule.expected
        if rule.element is not None and not np.isfinite(strange.expected).all():
            raise TaskRefused("nonfinite", f"{rule.path} has NaN or infinity on normal inputs")
        if values.size > 1 and (values == values.flat[0]).all():
            raise TaskRefused("degenerate", f"{rule.path} is {values.flat[0]} everywhere")
        found = leaf.to_f64() if rule.element is not None else leaf.bits()
        if np.array_equal(found.ravel(), values.ravel()):
            raise TaskRefused("degenerate", f"{rule.path} is the same whatever the inputs")


def _rules(case: VerificationCase) -> list[Rule]:
    return rules(case.expected.tree["outputs"])


def _outline(handle: TaskHandle) -> Outline:
    return handle.outline(_first(handle))


def _describe(handle: TaskHandle, outline: Outline) -> Description:
    return Description(
        operators=tuple(dict.fromkeys(str(op["op"]) for op in outline.ops)),
        inputs=tuple(_specs(outline.inputs)),
        outputs=outline.outputs,
        parameters=sum(prod(spec.shape) for spec in _specs(outline.state["params"])),
        operations=handle.operations(outline.workload.name),
        workloads=tuple(one.name for one in handle.task.workloads),
    )


def _specs(tree: Tree) -> list[TensorSpec]:
    return [leaf for leaf in leaves(tree) if isinstance(leaf, TensorSpec)]
