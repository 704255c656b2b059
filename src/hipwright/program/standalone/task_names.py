"""What a task's Model offers to a source by name: the inputs of its forward, its tensors and its plain attributes.

Read as syntax, by name only: values and shapes are not known here.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from hipwright import syntax
from hipwright.program.convert.cpp_text import Inconvertible
from hipwright.program.convert.forward_state import class_named, method, parameters
from hipwright.program.modelnew.check import imports

_MODULE_NUMBERS = {"eps": "Norm", "negative_slope": "LeakyReLU", "num_groups": "GroupNorm", "alpha": "ELU"}
"""Numbers of known modules of torch.nn, each with what the class's name holds."""


@dataclass(frozen=True)
class TaskNames:
    """inputs: of forward, in order. tensors: paths of parameters and buffers, in order. numbers: name -> plan text."""

    inputs: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    numbers: dict[str, str] = field(default_factory=dict)


def task_names(task_source: str) -> TaskNames:
    """The names of a task. Raises Inconvertible where its Model has no forward of its own."""
    try:
        tree = syntax.parse(task_source)
    except SyntaxError as error:
        raise Inconvertible(f"the task is not Python: {error.msg}") from None
    model = class_named(tree, "Model")
    forward = method(model, "forward") if model is not None else None
    if model is None or forward is None:
        raise Inconvertible("the task's Model has no forward of its own")
    args = forward.args
    if args.vararg or args.kwarg or args.kwonlyargs:
        raise Inconvertible("the task's forward takes *args or keyword-only parameters")
    inputs = tuple(arg.arg for arg in (*args.posonlyargs, *args.args))[1:]
    tensors = list(dict.fromkeys([*parameters(model, imports(tree)), *_buffers(model)]))
    return TaskNames(inputs, tuple(tensors), _numbers(model))


def _init(model: ast.ClassDef) -> ast.FunctionDef | None:
    return method(model, "__init__")


def _buffers(model: ast.ClassDef) -> list[str]:
    init = _init(model)
    found = []
    for node in ast.walk(init) if init else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "self.register_buffer" and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                found.append(first.value)
    return found


def _numbers(model: ast.ClassDef) -> dict[str, str]:
    """Attributes that __init__ sets, and known numbers of its one module that has them."""
    init = _init(model)
    found: dict[str, str] = {}
    modules: dict[str, list[str]] = {}
    for node in ast.walk(init) if init else ():
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
            if not isinstance(value, ast.Call) or ast.unparse(value.func) in ("int", "float", "bool", "math.sqrt"):
                found[target.attr] = f"self.{target.attr}"
                continue
            for name, part in _MODULE_NUMBERS.items():
                if part in ast.unparse(value.func):
                    modules.setdefault(name, []).append(f"self.{target.attr}.{name}")
    return {name: paths[0] for name, paths in modules.items() if len(paths) == 1} | found
