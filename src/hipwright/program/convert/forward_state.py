"""Maps `self.…` in a ModelNew file to the task: constants, and parameters under the reference's paths.

Both __init__ methods are read, neither is run. Equal names are the same parameter; parameters whose names only the
candidate has are matched by order, as in `program.modelnew.run.set_state`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hipwright import syntax
from hipwright.program.convert.cpp_text import Inconvertible
from hipwright.program.modelnew.check import dotted_path, imports
from hipwright.program.modelnew.extensions import Unknown, constants, evaluate

_WEIGHTED = (
    "Linear",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "LayerNorm",
    "GroupNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "Bilinear",
)
_PLAIN = (bool, int, float, str, type(None))


@dataclass
class Attributes:
    """The attributes of a ModelNew.

    constants: attribute -> value. modules: attribute -> (class of torch.nn, constructing call). renamed: the
    candidate's path of a parameter -> the reference's.
    """

    constants: dict[str, Any] = field(default_factory=dict)
    modules: dict[str, tuple[str, ast.Call]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)


def class_named(tree: ast.Module, name: str) -> ast.ClassDef | None:
    """The class of that name at the top level, or None."""
    return next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), None)


def method(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """The method of that name, or None."""
    return next((n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == name), None)


def read(tree: ast.Module, task_source: str) -> Attributes:
    """Reads the attributes of ModelNew in `tree` for a task. Raises Inconvertible."""
    try:
        task = syntax.parse(task_source)
    except SyntaxError as error:
        raise Inconvertible(f"the task is not Python: {error.msg}") from None
    model, new = class_named(task, "Model"), class_named(tree, "ModelNew")
    if model is None or new is None:
        raise Inconvertible("the task has no class Model")
    found = Attributes()
    env = _bound(new, init_inputs(task), constants(tree.body, imports(tree)))
    names = imports(tree)
    for target, value in _assignments(new):
        try:
            constant = evaluate(value, env | {f"self.{k}": v for k, v in found.constants.items()}, names)
        except Unknown:
            constant = _of_self(value, found.constants)
        if constant is not _NONE and _is_plain(constant):
            found.constants[target] = constant
        else:
            found.constants.pop(target, None)
            kind = _module_class(value, names)
            if kind and isinstance(value, ast.Call):
                found.modules[target] = (kind, value)
    found.renamed = _renamed(parameters(new, names), parameters(model, imports(task)), _stored(model))
    return found


_NONE = object()


def _of_self(value: ast.expr, known: dict[str, Any]) -> Any:
    """The value of `self.a` if it was set before."""
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == "self":
        return known.get(value.attr, _NONE)
    return _NONE


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def init_inputs(task: ast.Module) -> list[Any]:
    """The items that get_init_inputs returns: constants by value, others as ast.expr."""
    names = imports(task)
    function = next((n for n in task.body if isinstance(n, ast.FunctionDef) and n.name == "get_init_inputs"), None)
    if function is None or not isinstance(function.body[-1], ast.Return):
        return []
    env = constants(function.body, names, constants(task.body, names))
    given = function.body[-1].value
    if not isinstance(given, (ast.List, ast.Tuple)):
        return []
    out: list[Any] = []
    for item in given.elts:
        try:
            out.append(evaluate(item, env, names))
        except Unknown:
            out.append(item)
    return out


def _bound(new: ast.ClassDef, given: list[Any], env: dict[str, Any]) -> dict[str, Any]:
    """The names with constant values inside ModelNew.__init__."""
    init = method(new, "__init__")
    if init is None:
        return env
    env = dict(env)
    args = [a.arg for a in init.args.args][1:]
    for name, default in zip(reversed(args), reversed(init.args.defaults), strict=False):
        try:
            env[name] = evaluate(default, env)
        except Unknown:
            env.pop(name, None)
    values = given[0] if len(given) == 1 and isinstance(given[0], dict) else dict(zip(args, given, strict=False))
    for name, value in values.items():
        if isinstance(value, ast.AST):
            env.pop(name, None)
        else:
            env[name] = value
    return constants([n for n in init.body if not isinstance(n, ast.Expr)], {}, env)


def _assignments(owner: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """(name, value) of every self.name = value in __init__, in order."""
    init = method(owner, "__init__")
    for node in ast.walk(init) if init else ():
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                yield target.attr, node.value


def _stored(model: ast.ClassDef) -> set[str]:
    """Every attribute that the reference's __init__ sets or registers, and its class attributes."""
    found = {name for name, _ in _assignments(model)} | {path.split(".")[0] for path in parameters(model, {})}
    for node in model.body:
        if isinstance(node, ast.Assign):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return found


def _module_class(value: ast.expr, names: dict[str, str]) -> str:
    """The torch.nn class that an expression constructs, or ""."""
    if not isinstance(value, ast.Call):
        return ""
    path = dotted_path(value.func, names)
    if path.startswith(("torch.nn.", "nn.")) and path.count(".") <= 2:
        return path.split(".")[-1]
    return ""


def parameters(owner: ast.ClassDef, names: dict[str, str]) -> list[str]:
    """Paths of parameters in the order of construction in __init__, for known modules of torch.nn and Parameters."""
    found: list[str] = []
    for target, value in _assignments(owner):
        kind = _module_class(value, {**names, "nn": "torch.nn"})
        if kind == "Parameter":
            found.append(target)
        elif kind in _WEIGHTED and isinstance(value, ast.Call):
            off = any(
                k.arg in ("bias", "affine", "elementwise_affine")
                and isinstance(k.value, ast.Constant)
                and not k.value.value
                for k in value.keywords
            )
            found.append(f"{target}.weight")
            if not off:
                found.append(f"{target}.bias")
        elif kind in ("Embedding", "PReLU"):
            found.append(f"{target}.weight")
    return found


def _renamed(own: list[str], given: list[str], stored: set[str]) -> dict[str, str]:
    """{the candidate's path: the reference's} of parameters that are matched by order."""
    unmatched = [p for p in own if p not in given and p.split(".")[0] not in stored]
    available = [p for p in given if p not in own]
    return dict(zip(unmatched, available, strict=True)) if len(unmatched) == len(available) else {}
