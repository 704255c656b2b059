"""A graph as a program without kernels: every operator is a library call. The fallback of a set of programs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hipwright.capture.graph import Graph, Input
from hipwright.engine.plan.spelling import PYTHON_NAMES, library_name, returned, self_path, spell
from hipwright.program.parse import parse
from hipwright.records import Program

_WORD = re.compile(r"[A-Za-z_]\w*")


def library_program(graph: Graph) -> Program:
    """The operators in order, for every shape that the capture holds for. ProgramError if a plan may not call one."""
    names = _names(graph)
    name = names.__getitem__
    lines = [line for tensor in graph.inputs if (line := _read(tensor, names))]
    for node in graph.nodes:
        args = [spell(a, name) for a in node.args] + [f"{k}={spell(v, name)}" for k, v in node.kwargs.items()]
        if node.op == "getitem":
            lines.append(f"{names[node.name]} = {args[0]}[{args[1]}]")
        else:
            lines.append(f"{names[node.name]} = {library_name(node.op)}({', '.join(args)})")
    lines += [f"{self_path(m.access)}.copy_({names[m.node]})" for m in graph.mutations]
    lines.append(f"return {returned(graph.output, names)}")
    used = {word for text in (*lines, *graph.guards) for word in _WORD.findall(text)}
    head = [f"{s.name} = {s.access}" for s in graph.symbols if s.name in used]
    head += [f'assert {guard}, "the graph was captured for these sizes"' for guard in graph.guards]
    body = "\n".join(f"    {line}" for line in (*head, *lines))
    made = Program(text=f"HIP = r''''''\n\n\ndef forward({', '.join(['self', *graph.parameters])}):\n{body}\n")
    parse(made.text)  # what is written must be a program
    return made


def _names(graph: Graph) -> dict[str, str]:
    """The plan's name of every value: inputs as they are given, locals for the rest."""
    taken = {*PYTHON_NAMES, *graph.parameters, *(s.name for s in graph.symbols)}
    names: dict[str, str] = {}
    for tensor in graph.inputs:
        plain = tensor.kind == "input" and tensor.access.isidentifier()
        state = tensor.kind != "input" and tensor.value is None
        if plain or state:
            names[tensor.name] = tensor.access if plain else self_path(tensor.access)
    for name in [*(t.name for t in graph.inputs), *(n.name for n in graph.nodes)]:
        if name not in names:
            local = name
            while local in taken:
                local += "_"
            taken.add(local)
            names[name] = local
    return names


def _read(tensor: Input, names: Mapping[str, str]) -> str:
    """The line that an input needs before it can be used, "" for none."""
    if tensor.value is not None:
        return f"{names[tensor.name]} = torch.tensor({tensor.value!r}, dtype=torch.{tensor.meta.dtype})"
    if tensor.kind == "input" and not tensor.access.isidentifier():
        return f"{names[tensor.name]} = {tensor.access}"
    return ""
