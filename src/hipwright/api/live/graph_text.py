"""A graph of torch.fx as the statements of a forward, and what they import."""

from __future__ import annotations

import ast
import contextlib
import operator
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from hipwright.api.live.attention import attention_whole
from hipwright.api.live.layouts import statistics_contiguous, views_in_any_layout
from hipwright.errors import TaskError

_CHECKS = ("aten._assert_scalar", "aten._assert_async", "aten._assert_tensor_metadata", "aten.sym_constrain_range")
_FORGET = re.compile(r";  (?:\w+ = )+None$")
_PLACE = ("device", "pin_memory")


def statements(graph: Graph, roles: Mapping[str, str], outputs: Sequence[Node]) -> tuple[list[str], list[str]]:
    """(statements that compute the outputs, then the names of the outputs; import lines).

    roles: of each placeholder by its name the task's input, `self.NAME`, `INPUT.shape[DIM]*TIMES` or a number. Devices
    are left out: a task's tensors are where its inputs are. Raises TaskError for a call that a file cannot make.
    """
    copied, made, inputs = Graph(), dict[Node, Any](), dict[str, Node]()
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node in placeholders:
        if roles[node.name].isidentifier():
            made[node] = inputs[roles[node.name]] = copied.placeholder(roles[node.name])
            made[node].meta.update(node.meta)
    for node in placeholders:
        if node not in made and node.users:
            made[node] = _held(copied, roles[node.name], inputs)
            if isinstance(made[node], Node):
                made[node].meta.update(node.meta)
    for node in graph.nodes:
        if node.op in ("output", "placeholder") or _is_check(node):
            continue
        if node.op != "call_function":
            raise TaskError(f"the graph has a part of its own: {node.target}", hint="leave it out of the module")
        made[node] = copied.node_copy(node, made.__getitem__)
        _without_places(made[node])
    copied.output(tuple(made[node] for node in outputs))
    attention_whole(copied)
    statistics_contiguous(copied)
    views_in_any_layout(copied)
    copied.eliminate_dead_code(_stays)
    code = copied.python_code("self")
    lines = [_FORGET.sub("", line.strip()) for line in code.src.split("\n")]
    start = next(place for place, line in enumerate(lines) if line.startswith("def forward("))
    body = [line for line in lines[start + 1 :] if line]
    assert body[-1].startswith("return ("), body
    return [*body[:-1], *_returned(copied)], _imports(code.globals, "\n".join(body))


def _returned(graph: Graph) -> list[str]:
    last = next(node for node in graph.nodes if node.op == "output")
    return [node.name for node in last.args[0]]


def _held(graph: Graph, role: str, inputs: Mapping[str, Node]) -> Node | float:
    """The node of a state tensor, or of a size of an input; or a number."""
    with contextlib.suppress(ValueError, SyntaxError):
        number: float = ast.literal_eval(role)
        return number
    if role.startswith("self."):
        return graph.get_attr(role.removeprefix("self."))
    size, _, times = role.partition("*")
    owner, _, dim = size.removesuffix("]").partition(".shape[")
    found = graph.call_function(torch.ops.aten.sym_size.int, (inputs[owner], int(dim)))
    return graph.call_function(operator.mul, (found, int(times))) if times != "1" else found


def _is_check(node: Node) -> bool:
    return node.op == "call_function" and str(node.target).startswith(_CHECKS)


def _stays(node: Node) -> bool:
    """What stays where nothing reads it: writes, and draws, which move the generator."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable or torch.Tag.nondeterministic_seeded in node.target.tags
    return bool(node.is_impure())


def _without_places(node: Node) -> None:
    """A call without the device of its result."""
    node.kwargs = {name: value for name, value in node.kwargs.items() if name not in _PLACE}
    if any(isinstance(arg, torch.device) for arg in node.args):
        raise TaskError("the forward moves a tensor to a device by name", hint="make it where its input is")


def _imports(found: Mapping[str, Any], body: str) -> list[str]:
    lines = []
    for name, value in found.items():
        if not re.search(rf"\b{name}\b", body):
            continue
        if isinstance(value, types.ModuleType):
            lines.append(f"import {value.__name__}" + ("" if name == value.__name__ else f" as {name}"))
        elif isinstance(value, float):
            lines.append(f"{name} = float({str(value)!r})")
        elif callable(value) and str(getattr(value, "__module__", "")).partition(".")[0] in _KNOWN:
            lines.append(f"from {value.__module__} import {value.__qualname__} as {name}")
        else:
            raise TaskError(f"the graph calls {name}, which a file cannot import")
    return lines


_KNOWN = ("torch", "_operator", "operator", "math", "builtins")
