"""The self-check of a new task: its text, its forward in the sandbox, its outputs, and its description.

Every task host is a fork of a zygote that has imported torch. Sizes are limited, so that a check stays short.
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
from hipwright.verify.case_draws import VerificationCase
from hipwright.verify.expected import Rule, rules
from hipwright.verify.oracle import MUTATED

Stage = Literal["static", "open", "forward", "nonfinite", "random", "degenerate", "too large", "duplicate", "capture"]

MAX_TEXT = 20_000  # characters
MAX_ELEMENTS = 1 << 24  # of one workload's inputs, and of its outputs
LIMITS = Limits(wall_s=30.0, memory_mb=8192)  # of one call to the host
IMPORTS = ("torch", "torch.nn", "torch.nn.functional", "math")
_FORBIDDEN_BUILTINS = (
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
_FORBIDDEN_IN_TORCH = (
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
    """A task failed a stage of its check. message: the reason in one line, for its author."""

    def __init__(self, stage: Stage, message: str) -> None:
        super().__init__(message)
        self.stage = stage
        self.message = message


class Description(Record, frozen=True, kw_only=True):
    """What a task computes. operators: ATen names in order of first use; operations: of products and convolutions."""

    operators: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: int
    operations: float
    workloads: tuple[str, ...]


@dataclass(frozen=True)
class CheckedTask:
    """A task that passed. outline: its operators at its own shapes; graph: the captured graph as a dict."""

    task: Task
    description: Description
    outline: Outline
    graph: dict[str, Any]


def check(name: str, source: str, zygote: Zygote, *, seed: int = 0) -> tuple[Task, Description]:
    """(the task, its description). Raises TaskRefused, and infrastructure errors unchanged."""
    with _opened(name, source, zygote, seed) as handle:
        return handle.task, _description(handle, _outline(handle))


def check_and_capture(name: str, source: str, zygote: Zygote, *, seed: int = 0) -> CheckedTask:
    """Like `check`, with the outline and the captured graph; refuses a task that cannot be captured too."""
    with _opened(name, source, zygote, seed) as handle:
        outline = _outline(handle)
        try:
            graph = handle.capture(_first(handle))
        except TaskError as error:
            raise TaskRefused("capture", error.message) from None
        return CheckedTask(handle.task, _description(handle, outline), outline, graph)


@contextmanager
def _opened(name: str, source: str, zygote: Zygote, seed: int) -> Iterator[TaskHandle]:
    """The opened task after all checks but capture. Raises TaskRefused where the task itself is at fault."""
    check_text(source)
    try:
        handle = TaskHandle(f"{name}.py", source, zygote, LIMITS, TolerancePolicy())
    except InfrastructureError:
        raise
    except HipwrightError as error:
        raise TaskRefused("open", error.message) from None
    with handle:
        _check_sizes(handle)
        try:
            _check_forward(handle, seed)
            _check_distinguishable(handle, seed)
            yield handle
        except InfrastructureError:
            raise
        except HipwrightError as error:
            raise TaskRefused("forward", error.message) from None


def check_text(source: str) -> None:
    """Check the text alone: its length, its syntax, its imports, and names that reach outside the file.

    Raises TaskRefused with the stage "static".
    """
    if len(source) > MAX_TEXT:
        raise TaskRefused("static", f"the file has {len(source)} characters, more than {MAX_TEXT}")
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TaskRefused("static", f"it is not Python: {error}") from None
    names = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    for name in ("Model", "get_inputs", "get_init_inputs"):
        if name not in names:
            raise TaskRefused("static", f"it defines no {name}")
    for line, why in _violations(tree):
        raise TaskRefused("static", f"line {line}: {why}")


def _violations(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, reason) of each forbidden import, builtin, attribute or part of torch."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            root = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            for module in (one for one in root if one not in IMPORTS):
                yield line, f"imports {module or 'from its own package'}; a task needs no more than torch and math"
        elif isinstance(node, ast.Name) and node.id in _FORBIDDEN_BUILTINS:
            yield line, f"uses {node.id}"
        elif isinstance(node, ast.Attribute):
            if node.attr.startswith("__") and node.attr != "__init__":
                yield line, f"reads {node.attr}"
            if isinstance(node.value, ast.Name) and node.value.id == "torch" and node.attr in _FORBIDDEN_IN_TORCH:
                yield line, f"uses torch.{node.attr}"


def task_text_key(source: str) -> str:
    """A content key of a file's syntax tree without the module docstring: layout and comments do not count."""
    tree = syntax.parse(source)
    if ast.get_docstring(tree) is not None:
        tree.body.pop(0)
    return content_key("task text", ast.dump(tree))


def _check_sizes(handle: TaskHandle) -> None:
    """Check that the workloads' inputs are neither empty nor too large."""
    for workload in (one for one in handle.task.workloads if one.origin != "derived"):
        elements = sum(prod(spec.shape) for spec in workload.specs)
        if elements > MAX_ELEMENTS:
            raise TaskRefused("too large", f"the inputs hold {elements} elements, more than {MAX_ELEMENTS}")
        if any(0 in spec.shape for spec in workload.specs):
            raise TaskRefused("degenerate", "an input is empty")


def _first(handle: TaskHandle) -> str:
    """The name of the first workload that the file gives itself."""
    return next(one.name for one in handle.task.workloads if one.origin != "derived")


def _check_forward(handle: TaskHandle, seed: int) -> None:
    """Run the reference on its own inputs, twice: outputs are finite and reproducible, and no input is written."""
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


def _check_distinguishable(handle: TaskHandle, seed: int) -> None:
    """Check at a verification workload that trivial outputs would fail and that other inputs give finite values.

    Trivial outputs are zeros, a constant, an input, or the outputs of other inputs.
    """
    oracle = Oracle(handle, seed=seed)
    name = oracle.planned()[0].workload.name
    case, other = oracle.case(name, "given"), oracle.case(name, MUTATED)
    if not case.counts:
        raise TaskRefused("degenerate", case.degenerate or case.rejected)
    if other.rejected:
        raise TaskRefused("nonfinite", f"on normal inputs: {other.rejected}")
    _check_outputs(case, other, handle)


def _check_outputs(case: VerificationCase, other: VerificationCase, handle: TaskHandle) -> None:
    """Check each output by itself: it has different elements, and differs between the two cases' inputs."""
    on_other_inputs = tensor_leaves(handle.reference(other.inputs, case.state)[0])
    for rule, other_rule, leaf in zip(_rules(case), _rules(other), on_other_inputs, strict=True):
        values = rule.expected
        if rule.element is not None and not np.isfinite(other_rule.expected).all():
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


def _description(handle: TaskHandle, outline: Outline) -> Description:
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
