"""A graph as a program without kernels: every operator is a library call. The fallback of a set of programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hipwright.capture.graph import Graph, Input, references, short
from hipwright.engine.partition.places import PlacedWrite, TouchedPlaces, touched_places
from hipwright.engine.plan.spelling import PYTHON_NAMES, library_name, returned, self_path, spell
from hipwright.program.parse import parse
from hipwright.records import Program

_WORD = re.compile(r"[A-Za-z_]\w*")


def library_program(graph: Graph) -> Program:
    """The operators in order, for every shape that the capture holds for. ProgramError if a plan may not call one."""
    names = _names(graph)
    name = names.__getitem__
    lines = [line for tensor in graph.inputs if (line := _read(tensor, names))]
    places = _touched(graph)
    inside = {name for _, touched in places.values() for name in touched.inside}
    for node in graph.nodes:
        if node.name in inside:
            continue
        if node.name in places:
            base, touched = places[node.name]
            lines += [_written(base, write, name) for write in touched.writes]
            names[node.name] = base
            continue
        args = [spell(a, name) for a in node.args] + [f"{k}={spell(v, name)}" for k, v in node.kwargs.items()]
        if node.op == "getitem":
            lines.append(f"{names[node.name]} = {args[0]}[{args[1]}]")
        else:
            lines.append(f"{names[node.name]} = {library_name(node.op)}({', '.join(args)})")
    lines += [
        f"{self_path(m.access, graph.positions)}.copy_({names[m.node]})"
        for m in graph.mutations
        if m.node not in places
    ]
    lines.append(f"return {returned(graph.output, names)}")
    used = {word for text in (*lines, *graph.guards) for word in _WORD.findall(text)}
    head = [f"{s.name} = {s.access}" for s in graph.symbols if s.name in used]
    head += [f'assert {guard}, "the graph was captured for these sizes"' for guard in graph.guards]
    body = "\n".join(f"    {line}" for line in (*head, *lines))
    made = Program(text=f"HIP = r''''''\n\n\ndef forward({', '.join(['self', *graph.parameters])}):\n{body}\n")
    parse(made.text)  # what is written must be a program
    return made


def _touched(graph: Graph) -> dict[str, tuple[str, TouchedPlaces]]:
    """{last node: (the plan's name of an input, the writes)} of mutations that touch parts of inputs that nothing else
    reads, in views that subscripts spell.
    """
    found = {}
    for mutation in graph.mutations:
        base = next(i for i in graph.inputs if i.access == mutation.access)
        touched = touched_places(graph, mutation) if base.kind == "input" else None
        if touched is None or not all(map(_spelled, touched.writes)):
            continue
        own = touched.inside | {mutation.node}
        others = [n for n in graph.nodes if n.name not in own and base.name in references(list(n.args))]
        if not others and base.name not in references(graph.output):
            found[mutation.node] = mutation.access, touched
    return found


def _spelled(write: PlacedWrite) -> bool:
    """Whether a statement spells a write: its views as subscripts, its indices without gaps."""
    gaps = write.node is not None and short(write.node.op) == "index_put" and None in write.node.args[1]
    return not gaps and all(kind in ("select", "slice") for kind, _ in write.views)


def _written(base: str, write: PlacedWrite, name: Callable[[str], str]) -> str:
    """A statement that writes in place."""
    owner = base + "".join(_subscript(kind, given, name) for kind, given in write.views)
    if write.node is None:
        return f"{owner}.copy_({name(write.value)})"
    args = [spell(a, name) for a in write.node.args[1:]] + [
        f"{k}={spell(v, name)}" for k, v in write.node.kwargs.items()
    ]
    return f"{owner}.{short(write.node.op)}_({', '.join(args)})"


def _subscript(kind: str, given: Sequence[Any], name: Callable[[str], str]) -> str:
    """A view of one dimension as a subscript."""
    dim, *bounds = [spell(a, name) for a in given]
    if kind == "select":
        place = bounds[0]
    else:
        start, end, step = [*bounds, "None", "None", "1"][:3] if len(bounds) < 3 else bounds
        place = f"{'' if start == 'None' else start}:{'' if end in ('None', str(2**63 - 1)) else end}"
        place += "" if step == "1" else f":{step}"
    return f"[{':, ' * int(dim)}{place}]"


def _names(graph: Graph) -> dict[str, str]:
    """The plan's name of every value: inputs as they are given, locals for the rest."""
    taken = {*PYTHON_NAMES, *graph.parameters, *(s.name for s in graph.symbols)}
    names: dict[str, str] = {}
    for tensor in graph.inputs:
        plain = tensor.kind == "input" and tensor.access.isidentifier()
        state = tensor.kind != "input" and tensor.value is None
        if plain or state:
            names[tensor.name] = tensor.access if plain else self_path(tensor.access, graph.positions)
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
        return f"{names[tensor.name]} = torch.tensor({spell(tensor.value, str)}, dtype=torch.{tensor.meta.dtype})"
    if tensor.kind == "input" and not tensor.access.isidentifier():
        return f"{names[tensor.name]} = {tensor.access}"
    return ""
