"""A graph of AOTAutograd as a task: its parameters as state, its sizes as sizes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from hipwright.api.live.traced import Placeholder, TracedTask, traced_task
from hipwright.errors import TaskError


@dataclass(frozen=True)
class GraphTask:
    """A graph as a task, and where a call's values are.

    inputs: places of the task's inputs among the graph's arguments, in order. state: the place of each state tensor, by
    the task's name, or the constant itself. fixed: {place: the number that it is}. results: of each result of the
    graph, as `Result` says.
    """

    task: TracedTask
    inputs: tuple[int, ...]
    state: Mapping[str, int | torch.Tensor]
    fixed: Mapping[int, Any]
    results: tuple[GraphResult, ...]


@dataclass(frozen=True)
class GraphResult:
    """One result of a graph: an output of the task, an argument, or what `value` says: None, a number or a size.

    strides: of the graph's own result, in numbers and sizes.
    """

    output: int | None = None
    argument: int | None = None
    value: Any = None
    strides: tuple[Any, ...] = ()


def graph_task(title: str, module: GraphModule, args: Sequence[Any], static: Sequence[int]) -> GraphTask:
    """The task of a graph. args: of a call. static: places of parameters and buffers, which stay from call to call.

    Raises TaskError and BadInput where the graph cannot be a task.
    """
    _one_device(args)
    graph, constants = _with_constants(module)
    nodes = [node for node in graph.nodes if node.op == "placeholder"]
    values = [*args, *constants.values()]
    roles: dict[str, Placeholder] = {}
    kept = set(static)
    for place, (node, value) in enumerate(zip(nodes, values, strict=True)):
        if isinstance(value, torch.Tensor):
            state = place in kept or place >= len(args)
            learnt = value.is_floating_point() and place in kept
            kind: Any = "parameter" if learnt else "buffer" if state else "input"
            roles[node.name] = Placeholder(kind, value, path=node.name if state else "")
    for node, value in zip(nodes, values, strict=True):
        if not isinstance(value, torch.Tensor):
            roles[node.name] = _size(node, value, nodes, roles)
    order = {node.name: roles[node.name] for node in nodes}
    places = {node.name: place for place, node in enumerate(nodes)}
    found = next(node for node in graph.nodes if node.op == "output").args[0]
    tensors = [one for one in found if isinstance(one, Node) and _is_tensor(one) and one.op != "placeholder"]
    task = traced_task(title, graph, order, tensors, conditions=_conditions(nodes, roles))
    outputs = dict(zip(tensors, task.outputs, strict=True))
    return GraphTask(
        task=task,
        inputs=tuple(places[name] for name in task.inputs),
        state={
            name: places[path] if places[path] < len(args) else values[places[path]]
            for path, name in task.state.items()
        },
        fixed={places[name]: role.number for name, role in order.items() if role.kind == "number"},
        results=tuple(_result(one, outputs, places, len(args)) for one in found),
    )


def _one_device(args: Sequence[Any]) -> None:
    devices = {str(one.device) for one in args if isinstance(one, torch.Tensor) and one.ndim}
    if len(devices) > 1:
        raise TaskError(f"its tensors are on {' and '.join(sorted(devices))}")


def _with_constants(module: GraphModule) -> tuple[Graph, dict[str, torch.Tensor]]:
    """The graph with its constant tensors as further placeholders, and these. Raises TaskError for graphs in it."""
    graph, made, constants = Graph(), dict[Node, Node](), dict[str, torch.Tensor]()
    nodes = list(module.graph.nodes)
    for node in [node for node in nodes if node.op == "placeholder"]:
        made[node] = graph.node_copy(node)
    for node in nodes:
        if node.op != "get_attr":
            continue
        held: Any = module
        for name in str(node.target).split("."):
            held = getattr(held, name)
        if not isinstance(held, torch.Tensor):
            raise TaskError(f"the graph has a part of its own: {node.target}")
        made[node] = graph.placeholder(node.name)
        made[node].meta.update(node.meta)
        constants[made[node].name] = held
    for node in nodes:
        if node.op not in ("placeholder", "get_attr"):
            made[node] = graph.node_copy(node, made.__getitem__)
    return graph, constants


def _conditions(nodes: Sequence[Node], roles: Mapping[str, Placeholder]) -> list[str]:
    """What Dynamo guards of the inputs' sizes: numbers, and sizes that are equal."""
    found, first = [], dict[Any, str]()
    for node in nodes:
        if roles[node.name].kind != "input":
            continue
        for dim, size in enumerate(node.meta["val"].shape):
            text, known = f"{node.name}.shape[{dim}]", _known(size)
            if isinstance(known, int):
                found.append(f"{text} == {known}")
                continue
            if first.setdefault(known, text) != text:
                found.append(f"{text} == {first[known]}")
    return found


def _size(node: Node, value: Any, nodes: Sequence[Node], roles: Mapping[str, Placeholder]) -> Placeholder:
    """A size of one of the inputs, or a multiple of one; a number where no input has it."""
    expression = _expression(node.meta.get("val"))
    inputs = [n for n in nodes if n.name in roles and roles[n.name].kind == "input"]
    sizes = [(n.name, dim, _expression(size)) for n in inputs for dim, size in enumerate(n.meta["val"].shape)]
    for name, dim, size in sorted(sizes, key=lambda one: not getattr(one[2], "is_Symbol", False)):  # free ones first
        if expression is not None and (times := _times(expression, size)):
            return Placeholder("size", of=name, dim=dim, times=times)
    if not isinstance(value, (bool, int, float)):
        raise TaskError(f"an argument of the graph is a {type(value).__name__}")
    return Placeholder("number", number=value)


def _times(expression: Any, size: Any) -> int:
    """How many times a size an expression is; 0 where it is no multiple of it."""
    ratio = expression / size if size is not None else None
    return int(ratio) if ratio is not None and ratio.is_Integer and ratio > 0 else 0


def _result(one: Any, outputs: Mapping[Node, Any], places: Mapping[str, int], count: int) -> GraphResult:
    if not isinstance(one, Node):
        return GraphResult(value=_expression(one) if isinstance(one, torch.SymInt) else one)
    if one.op == "placeholder" and places[one.name] < count:
        return GraphResult(argument=places[one.name])
    if one in outputs:
        strides = tuple(_known(step) for step in one.meta["val"].stride())
        return GraphResult(output=outputs[one], strides=strides)
    if one.op == "placeholder":
        raise TaskError("a result is a constant of the graph")
    return GraphResult(value=_known(one.meta["val"]))


def _known(size: Any) -> Any:
    """An int, or the expression of a size."""
    expression = _expression(size)
    return size if expression is None else expression


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)) else None


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)
