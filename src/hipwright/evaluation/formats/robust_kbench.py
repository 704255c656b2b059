"""robust-kbench's layout: TASK/func_forward.py with config_forward.json, and the same for the backward pass.

A func file defines `Model`, whose forward takes the inputs and a function with a default, and `get_inputs`. A config
has settings under names that begin with single_ or multi_, then input, init or shared: arguments of `get_inputs`, of
`Model`, and of both. The single settings are the task's `get_inputs`; multi settings that construct the same model are
its `get_input_groups`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hipwright import syntax
from hipwright.evaluation.formats.base import BenchTask, FormatRule, TaskFormat
from hipwright.evaluation.formats.kernelbench import natural
from hipwright.evaluation.formats.portable import function_of, on_default_device, renamed
from hipwright.evaluation.formats.read import Malformed, below, guarded, json_record, python_checked, text_of

WAYS = ("forward", "backward")
GROUPS = 8
_KEY = re.compile(r"(single|multi)_(input|init|shared)\w*")
Settings = dict[str, Any]


class RobustKBenchFormat(TaskFormat):
    """The loader of robust-kbench's task folders. The categories are forward and backward."""

    name = "robust-kbench"
    title = "robust-kbench"
    layout = "TASK/func_forward.py, TASK/config_forward.json"
    no_training = ""
    rule = FormatRule(
        tolerance="allclose with the reference's output under several inputs and initialisations",
        timing="speedup of the forward or backward pass over the reference in eager mode",
        source="https://github.com/SakanaAI/robust-kbench",
    )

    def detect(self, folder: Path) -> bool:
        """Whether there is a func file."""
        return bool(_files(folder))

    def load(self, folder: Path) -> Iterable[BenchTask]:
        """The tasks, named TASK/forward and TASK/backward."""
        for path in _files(folder):
            way = path.stem.removeprefix("func_")
            name = f"{path.parent.name if path.parent != folder else folder.resolve().name}/{way}"
            yield guarded(partial(self._task, folder, path, name, way), name, path, category=way, rule=self.rule)

    def _task(self, root: Path, path: Path, name: str, way: str) -> BenchTask:
        where = below(path, root)
        text = python_checked(text_of(path, root), where)
        config = path.with_name(f"config_{way}.json")
        settings = _settings(json_record(config, root, dict[str, Any]), below(config, root))
        _check(text, where)
        made, notes = _text(text, settings, way)
        return BenchTask(name, path, category=way, text=made, notes=notes, rule=self.rule)


ROBUST_KBENCH = RobustKBenchFormat()
_HARNESS = """
import inspect as _inspect

import torch

_given_inputs, _names = get_inputs, globals().get("input_names")


def _accepted(function, shared):
    known = _inspect.signature(function).parameters
    free = any(one.kind is one.VAR_KEYWORD for one in known.values())
    return {{name: value for name, value in shared.items() if free or name in known}}


def _inputs(own, shared):
    made = _given_inputs(**{{**_accepted(_given_inputs, shared), **own}})
    return [made[name] for name in _names or made] if isinstance(made, dict) else list(made)


def get_init_inputs():
    return [[], {{**_accepted(Model, {shared!r}), **{init!r}}}]


def get_inputs():
    return _inputs({single!r}, {shared!r})
"""
_GROUPS = """

def get_input_groups():
    return [_inputs(own, {shared!r}) for own in {multi!r}]
"""
_BACKWARD = '''

class Model(torch.nn.Module):
    """The gradients of the sum of the forward's outputs, by its inputs and parameters that have any."""

    def __init__(self, *args, **kwargs):
        super().__init__()
        self.inner = ForwardModel(*args, **kwargs)

    def forward(self, *inputs):
        with torch.enable_grad():
            leaves = [
                one.detach().requires_grad_() if isinstance(one, torch.Tensor) and one.is_floating_point() else one
                for one in inputs
            ]
            wanted = [one for one in leaves if isinstance(one, torch.Tensor) and one.requires_grad]
            wanted += [one for one in self.inner.parameters() if one.requires_grad]
            return torch.autograd.grad(self.inner(*leaves).sum(), wanted)
'''


def _text(text: str, settings: Mapping[str, list[Settings]], way: str) -> tuple[str, tuple[str, ...]]:
    """(the task file, what of it is not judged)."""
    first = {kind: (settings[f"single_{kind}"] or [{}])[0] for kind in ("input", "init", "shared")}
    same, others = [], 0
    for index, own in enumerate(settings["multi_input"]):
        init, shared = (_at(settings[f"multi_{kind}"], index, first[kind]) for kind in ("init", "shared"))
        if (init, shared) == (first["init"], first["shared"]):
            same.append(own)
        else:
            others += 1
    harness = _HARNESS.format(single=first["input"], init=first["init"], shared=first["shared"])
    groups = [own for own in same if own != first["input"]][:GROUPS]
    harness += _GROUPS.format(multi=groups, shared=first["shared"]) if groups else ""
    notes = (f"{others} settings that construct another model are not judged",) if others else ()
    if way == "backward":
        text = renamed(text, "Model", "ForwardModel")
        harness = f"{_BACKWARD}{harness.replace('_accepted(Model, ', '_accepted(ForwardModel, ')}"
    return on_default_device(f"{text.rstrip()}\n\n{harness}"), notes


def _at(values: list[Settings], index: int, other: Settings) -> Settings:
    return values[index] if index < len(values) else other


def _settings(config: Mapping[str, Any], where: str) -> dict[str, list[Settings]]:
    """The settings by kind, each a list. Raises Malformed."""
    found: dict[str, list[Settings]] = {
        f"{count}_{kind}": [] for count in ("single", "multi") for kind in ("input", "init", "shared")
    }
    for key, value in config.items():
        if kind := _KEY.fullmatch(key):
            values = [value] if isinstance(value, dict) else value
            if not isinstance(values, list) or any(not isinstance(one, dict) for one in values):
                raise Malformed(f"{where}: {key}: no object of arguments, and no list of them")
            if wrong := [name for one in values for name in one if not name.isidentifier()]:
                raise Malformed(f"{where}: {key}: {wrong[0]!r} is no argument's name")
            found[f"{kind[1]}_{kind[2]}"] = values
    if not found["single_input"]:
        raise Malformed(f"{where}: single_input...: missing, the arguments of get_inputs")
    return found


def _check(text: str, where: str) -> None:
    """Raises Malformed for a func file without Model and get_inputs, or whose forward needs a function."""
    function_of(text, "get_inputs", where)
    models = [node for node in syntax.parse(text).body if isinstance(node, ast.ClassDef) and node.name == "Model"]
    if not models:
        raise Malformed(f"{where}: no class Model")
    for node in models[-1].body:
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            names, required = [one.arg for one in node.args.args], len(node.args.args) - len(node.args.defaults)
            if "fn" in names[:required]:
                raise Malformed(f"{where}: Model.forward: fn has no default, the reference's function")


def _files(folder: Path) -> list[Path]:
    """The func files of the folder, of its folders, and of those in `tasks`, the forward pass first."""
    found = []
    for way in WAYS:
        for place in ("", "*/", "tasks/*/"):
            found += [path for path in folder.glob(f"{place}func_{way}.py") if path.is_file()]
    return sorted(set(found), key=lambda path: (natural(path.parent.as_posix()), path.stem != "func_forward"))
