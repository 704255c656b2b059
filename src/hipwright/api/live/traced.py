"""A traced graph as a task: its text, and what a program of it is called with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.fx import Graph, Node

from hipwright.api.live.attention import dropped_share
from hipwright.api.live.drawn import TABLE, drawn, parameter
from hipwright.api.live.graph_text import statements
from hipwright.capture import graph
from hipwright.capture.random_operators import draws_numbers
from hipwright.errors import TaskError

Kind = Literal["input", "parameter", "buffer", "constant", "size", "number"]


@dataclass(frozen=True)
class Placeholder:
    """What a placeholder of a graph is.

    input: a tensor among the arguments; parameter, buffer, constant: state, at `path` of the live module; size: the
    dimension `dim` of the input `of`, `times` so large; number: the `number` that it is at every call. value: a tensor
    like those that the program is given.
    """

    kind: Kind
    value: torch.Tensor | None = None
    number: float = 0
    path: str = ""
    of: str = ""
    dim: int = 0
    times: int = 1


@dataclass(frozen=True)
class TracedTask:
    """A task made of a graph.

    inputs: the placeholders that are its arguments, in order. state: the task's names of the live module's state, by
    path. outputs: of each result of the graph, the place among the task's outputs, or the placeholder that it is, or
    None for None. writes: paths of buffers whose new values the task itself stores. draws: whether it draws random
    numbers.
    """

    name: str
    text: str
    inputs: tuple[str, ...]
    state: Mapping[str, str]
    outputs: tuple[int | str | None, ...]
    writes: tuple[str, ...] = ()
    draws: bool = False


TEXT = '''"""{title}: the graph of a live module, written by hipwright."""

{imports}


{helpers}class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
{state}
        self.{mode}

    def forward(self{arguments}):
{body}


def get_inputs():
    return [{inputs}]
'''


def traced_task(
    title: str,
    calls: Graph,
    roles: Mapping[str, Placeholder],
    results: Sequence[Any],
    *,
    writes: Sequence[tuple[str, Node]] = (),
    conditions: Sequence[str] = (),
    training: bool = False,
) -> TracedTask:
    """The task of a graph of calls. roles: of each placeholder, by name. results: nodes, None and numbers, in order.

    writes: (path, node) of buffers that the call overwrites. conditions: on the inputs' shapes, under which the graph
    is the module. Raises TaskError for a graph that no task can be, and BadInput for a dtype that no program has.
    """
    used = {node.name for node in calls.nodes if node.op == "placeholder" and node.users}
    roles = {name: role for name, role in roles.items() if not role.path or name in used}
    state = _state_names(roles)
    expressions = {node.name: "" for node in calls.nodes if node.op == "placeholder"}
    expressions |= {name: _expression(name, role, state) for name, role in roles.items()}
    outputs, computed = _outputs(results)
    if not computed and not writes:
        raise TaskError(
            "the graph computes nothing: its results are its inputs", hint="there is nothing to make faster"
        )
    body, imports = statements(calls, expressions, [*computed, *(node for _, node in writes)])
    count = len(computed) + len(writes)
    body, names = body[: len(body) - count], body[len(body) - count :]
    body += [
        f"self.{state[path]}.copy_({name})" for (path, _), name in zip(writes, names[len(computed) :], strict=True)
    ]
    body.append(f"return ({', '.join(names[: len(computed)])}{',' if len(computed) == 1 else ''})")
    inputs = tuple(name for name, role in roles.items() if role.kind == "input")
    learnt = {node.name for node in calls.nodes if node.op == "placeholder" and _is_learnt(node)}
    declared = {state[r.path]: _declaration(state[r.path], r, name in learnt) for name, r in roles.items() if r.path}
    given = [drawn(_value(roles[name])) for name in inputs]
    helpers = f"{TABLE}\n\n" if any("table(" in one for one in (*declared.values(), *given)) else ""
    text = TEXT.format(
        title=title,
        imports="\n".join(_import_lines(imports, helpers)),
        helpers=helpers,
        state="\n".join(f"        {line}" for line in declared.values()) or "        pass",
        mode="train()" if training else "eval()",
        arguments="".join(f", {name}" for name in inputs),
        body="\n".join(f"        {line}" for line in [*(f"assert {one}" for one in conditions), *body]),
        inputs=", ".join(given),
    )
    return TracedTask(
        name=title,
        text=text,
        inputs=inputs,
        state={role.path: state[role.path] for role in roles.values() if role.path},
        outputs=tuple(outputs),
        writes=tuple(path for path, _ in writes),
        draws=any(_draws(node) for node in calls.nodes),
    )


def _state_names(roles: Mapping[str, Placeholder]) -> dict[str, str]:
    """A plain name for each path: `net.0.weight` -> `net_0_weight`."""
    found: dict[str, str] = {}
    taken = set(dir(torch.nn.Module())) | {"training"}
    for role in roles.values():
        if not role.path or role.path in found:
            continue
        name = re.sub(r"\W", "_", role.path)
        name = name if name[:1].isalpha() else f"p_{name}"
        while name in taken:
            name += "_"
        taken.add(name)
        found[role.path] = name
    return found


def _expression(name: str, role: Placeholder, state: Mapping[str, str]) -> str:
    if role.kind == "input":
        return name
    if role.kind == "number":
        return repr(role.number)
    return f"{role.of}.shape[{role.dim}]*{role.times}" if role.kind == "size" else f"self.{state[role.path]}"


def _outputs(results: Sequence[Any]) -> tuple[list[int | str | None], list[Node]]:
    """(of each result its place, placeholder or None; the nodes to compute, each once)."""
    places: dict[Node, int] = {}
    found: list[int | str | None] = []
    for result in results:
        if result is None:
            found.append(None)
        elif not isinstance(result, Node) or not isinstance(result.meta.get("val"), torch.Tensor):
            raise TaskError(f"a result is no tensor: {result}", hint="return tensors")
        elif result.op == "placeholder":
            found.append(result.name)
        else:
            found.append(places.setdefault(result, len(places)))
    return found, list(places)


def _is_learnt(node: Node) -> bool:
    """Whether a tensor is a norm's, whose values change as it is trained."""
    return any("_norm" in str(user.target) for user in node.users)


def _declaration(name: str, role: Placeholder, learnt: bool) -> str:
    value = _value(role)
    floating = value.is_floating_point() or value.is_complex()
    if role.kind == "parameter" and floating:
        return f"self.{name} = torch.nn.Parameter({parameter(value)})"
    counts = not floating and value.ndim == 0 and value.dtype != torch.bool
    text = (
        parameter(value, least=0.0)
        if learnt and floating
        else drawn(value.new_zeros(()) if counts else value, fixed=True)
    )
    return f'self.register_buffer("{name}", {text})'


def _value(role: Placeholder) -> torch.Tensor:
    assert role.value is not None
    return role.value


def _import_lines(found: Sequence[str], helpers: str) -> list[str]:
    """Imports in the usual order: the standard library, torch, names."""
    modules = {*(line for line in found if line.startswith("import ")), "import torch"}
    names = sorted({*found} - modules)
    return [*(["import base64", "import zlib", ""] if helpers else []), *sorted(modules), *names]


def _draws(node: Node) -> bool:
    """Whether a call takes numbers from a generator."""
    if node.op != "call_function":
        return False
    if (dropped := dropped_share(node)) is not None:
        return bool(dropped)
    plain: list[Any] = [arg if isinstance(arg, (bool, int, float)) else {} for arg in node.args]
    options = {name: arg for name, arg in node.kwargs.items() if isinstance(arg, (bool, int, float))}
    return draws_numbers(graph.Node(name=node.name, op=str(node.target), args=tuple(plain), kwargs=options, outs=()))
