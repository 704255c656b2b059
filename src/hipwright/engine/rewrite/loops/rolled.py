"""Writes a loop that tracing wrote out as one node with the graph of one step.

The text of the program is then independent of the number of steps, and so is the time to write, build and check it.
Nothing is rolled that is not proved to be a loop (relations.py), nothing of few steps, and no steps that a few kernels
compute together: pointwise operators alone fuse across steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Input, Meta, Node, Symbol, references
from hipwright.capture.random_operators import draws_numbers
from hipwright.engine.knobs import Choice
from hipwright.engine.lower.operators import family
from hipwright.engine.rewrite.loops.gathered import ROW_MAJOR, Collected, gathered
from hipwright.engine.rewrite.loops.records import LOOP, LoopBody, stacked_meta
from hipwright.engine.rewrite.loops.relations import Before, Found, Outside, Place, Relations, read_later, single
from hipwright.engine.rewrite.loops.repetition import LEAST_STEPS, cuts, parts, rebuilt, runs
from hipwright.engine.rewrite.steps import Steps

FEW_NODES = 600
"""Nodes up to which the steps may be written out instead."""
_FUSED_NODES = 512
"""Pointwise nodes up to which the steps are left to fuse."""
_MOST_CUTS = 4


def looped(graph: Graph, choices: Mapping[str, Any], *, always: bool = False) -> tuple[Graph, dict[str, Choice]]:
    """(the graph with its loops as nodes, the choices offered: `roll:<first node>`).

    always: also where a few kernels compute the steps together.
    """
    structure: dict[str, Choice] = {}
    if len(graph.nodes) < LEAST_STEPS:
        return graph, structure
    made, kept, count = canonical(graph), frozenset[str](), 0
    while (found := _next(made, kept, always=always)) is not None:
        key = f"roll:{made.nodes[found.first].name}"
        if found.period * found.steps <= FEW_NODES:
            structure[key] = Choice(options=("loop", "steps"), default="loop")
        if choices.get(key) == "steps" and key in structure:
            kept |= {n.name for n in made.nodes[found.first : found.first + found.period * found.steps]}
            continue
        made, count = live(_Rolled(made, found, choices, structure).graph()), count + 1
    return (made if count else graph), structure


# ---------------------------------------------------------------- what may be rolled


def canonical(graph: Graph) -> Graph:
    """The graph without nodes that nothing reads, equal constants as one, and places counted from the front."""
    first: dict[str, str] = {}
    same: dict[str, str] = {}
    for tensor in graph.inputs:
        if tensor.value is not None:
            same[tensor.name] = first.setdefault(repr((tensor.meta, tensor.value)), tensor.name)
    known: dict[str, Meta | None] = {i.name: i.meta for i in graph.inputs}
    known |= {n.name: n.outs[0] for n in graph.nodes if n.outs}

    def named(argument: Any) -> Any:
        if isinstance(argument, dict) and "node" in argument:
            return {"node": same.get(argument["node"], argument["node"])}
        return [named(a) for a in argument] if isinstance(argument, (list, tuple)) else argument

    nodes = []
    for node in graph.nodes:
        args = tuple(named(a) for a in node.args)
        if node.op == "aten.select.int" and type(args[2]) is int and args[2] < 0:
            meta = known.get(args[0]["node"])
            size = meta.shape[args[1]] if meta is not None else None
            args = (*args[:2], args[2] + size) if isinstance(size, int) else args
        nodes.append(msgspec.structs.replace(node, args=args, kwargs={k: named(v) for k, v in node.kwargs.items()}))
    return live(msgspec.structs.replace(graph, nodes=tuple(nodes), output=_named_output(graph.output, same)))


def _named_output(output: Any, same: Mapping[str, str]) -> Any:
    if isinstance(output, dict):
        if "node" in output:
            return {"node": same.get(output["node"], output["node"])}
        if "tuple" in output:
            return {"tuple": [_named_output(o, same) for o in output["tuple"]]}
        if "map" in output:
            return {"map": [[k, _named_output(v, same)] for k, v in output["map"]]}
        return output
    return [_named_output(o, same) for o in output] if isinstance(output, (list, tuple)) else output


def live(graph: Graph) -> Graph:
    """The graph without nodes that nothing reads. Operators that draw random numbers stay."""
    read = {*references(graph.output), *(m.node for m in graph.mutations)}
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if node.name in read or draws_numbers(node):
            read |= set(references([*node.args, *node.kwargs.values()]))
            nodes.append(node)
    return msgspec.structs.replace(graph, nodes=tuple(reversed(nodes)))


def _next(graph: Graph, kept: frozenset[str], *, always: bool) -> Found | None:
    """The next loop to roll; None where there is none left. kept: nodes that stay written out."""
    inputs = {i.name: i for i in graph.inputs}
    nodes = graph.nodes
    taken = [parts(n, inputs) for n in nodes]
    numbers: dict[str, int] = {}
    alone = [n.name in kept or draws_numbers(n) or n.op == LOOP for n in nodes]
    kinds = [-1 - k if alone[k] else numbers.setdefault(t.kind, len(numbers)) for k, t in enumerate(taken)]
    candidates = runs(kinds)
    if not candidates:
        return None
    relations = Relations(nodes, taken, Steps(graph))
    returned = [*references(graph.output), *(m.node for m in graph.mutations)]
    for run in candidates:
        for cut in cuts(nodes, relations.place, run)[:_MOST_CUTS]:
            for first in (cut, cut + run.period, cut + 2 * run.period):
                found = relations.loop(run, first)
                if found is not None and (always or _pays(nodes, found)) and _readable(nodes, found, returned):
                    return found
    return None


def _pays(nodes: Sequence[Node], found: Found) -> bool:
    """Whether one kernel after another computes the steps anyway."""
    body = nodes[found.first : found.first + found.period]
    fuses = all(family(n.op) in ("pointwise", "view") or n.op == "getitem" for n in body)
    return not fuses or found.period * found.steps > _FUSED_NODES


def _readable(nodes: Sequence[Node], found: Found, returned: Sequence[str]) -> bool:
    """Whether all that is read behind the loop are single tensors."""
    return single({k: nodes[found.first + k] for k in read_later(nodes, found, returned)})


# ---------------------------------------------------------------- writing


@dataclass(frozen=True)
class _Rolled:
    """Writes one loop of a graph."""

    whole: Graph
    found: Found
    choices: Mapping[str, Any]
    structure: dict[str, Choice]

    def graph(self) -> Graph:
        """The graph with the loop as one node."""
        found, nodes = self.found, self.whole.nodes
        returned = [*references(self.whole.output), *(m.node for m in self.whole.mutations)]
        later = read_later(nodes, found, returned)
        last = [k for k in sorted(later) if later[k] == {found.steps - 1}]
        every = [k for k in sorted(later) if k not in last]
        body, starts = self._body(last, every)
        end = found.first + found.period * found.steps
        name = self._free(f"{nodes[found.first].name}_loop")
        metas = [self._meta(k) for k in last] + [stacked_meta(self._meta(k), found.steps) for k in every]
        args = ([{"node": starts.get(n, n)} for n in body.given],)
        loop = Node(name=name, op=LOOP, args=args, kwargs={"body": body}, outs=tuple(metas))
        made = [loop]
        for number, k in enumerate(last):
            made.append(self._item(self._node(k, found.steps - 1).name, name, number, metas[number]))
        collected = []
        for number, k in enumerate(every, len(last)):
            whole = self._free(f"{nodes[found.first + k].name}_all")
            made.append(self._item(whole, name, number, metas[number]))
            steps = {self._node(k, step).name: step for step in range(found.steps)}
            collected.append(Collected(whole, metas[number], steps))
            for step in sorted(later[k]):
                made += self._taken(whole, k, step, returned=self._node(k, step).name in returned)
        behind = [new for node in nodes[end:] for new in gathered(node, collected)]
        return msgspec.structs.replace(self.whole, nodes=(*nodes[: found.first], *made, *behind))

    def _node(self, node: int, step: int) -> Node:
        return self.whole.nodes[self.found.first + step * self.found.period + node]

    def _meta(self, node: int) -> Meta:
        meta = self._node(node, 0).outs[0]
        assert meta is not None
        return meta

    def _item(self, name: str, source: str, number: int, meta: Meta | None) -> Node:
        return Node(name=name, op="getitem", args=({"node": source}, number), outs=(meta,))

    def _taken(self, whole: str, node: int, step: int, *, returned: bool) -> list[Node]:
        """One step's value of those collected; one that is returned has memory of its own."""
        name = self._node(node, step).name
        place = self._free(f"{name}_place") if returned else name
        outs = (self._meta(node),)
        made = [Node(name=place, op="aten.select.int", args=({"node": whole}, 0, step), outs=outs)]
        if returned:
            args: tuple[Any, ...] = ({"node": place},)
            made.append(Node(name=name, op="aten.clone.default", args=args, kwargs=dict(ROW_MAJOR), outs=outs))
        return made

    def _free(self, name: str) -> str:
        """A name that nothing in the graph has."""
        taken = {n.name for n in self.whole.nodes} | {i.name for i in self.whole.inputs}
        taken |= {s.name for s in self.whole.symbols} | set(self.whole.parameters)
        count, free = 1, name
        while free in taken:
            count += 1
            free = f"{name}_{count}"
        return free

    def _body(self, last: Sequence[int], every: Sequence[int]) -> tuple[LoopBody, dict[str, str]]:
        """(one step, {input that steps hand on: what the first step finds there})."""
        found = self.found
        step = self._free(f"{self.whole.nodes[found.first].name}_step")
        nodes: list[Node] = []
        places: dict[Place, str] = {}
        states: dict[tuple[int, tuple[str, ...]], str] = {}
        outside: dict[str, None] = {}

        def value(relation: Any) -> Any:
            if isinstance(relation, Outside):
                outside[relation.name] = None
                return {"node": relation.name}
            if isinstance(relation, Before):
                for back in range(1, relation.back + 1):
                    key = relation.node, relation.starts[-back:]
                    states.setdefault(key, self._free(f"{self._node(relation.node, 0).name}_before_{len(states)}"))
                return {"node": states[relation.node, relation.starts]}
            if isinstance(relation, Place):
                outside[relation.root] = None
                if relation not in places:
                    places[relation] = self._free(f"{relation.example}_at")
                    nodes.append(self._place(relation, places[relation], step))
                return {"node": places[relation]}
            return {"node": self._node(relation.node, 0).name}

        for number in range(found.period):
            node = self._node(number, 0)
            counts = [first if by == 0 else {"size": counting(step, by, first)} for by, first in found.numbers[number]]
            args, kwargs = rebuilt(node, [value(r) for r in found.reads[number]], counts)
            nodes.append(msgspec.structs.replace(node, args=args, kwargs=kwargs))
        inputs = {i.name: i for i in self.whole.inputs}
        given = [inputs[n] if n in inputs else self._input(n, self._known(n)) for n in outside]
        given += [self._input(name, self._meta(node)) for (node, _), name in states.items()]
        names = [self._node(k, 0).name for k in (*last, *every)]
        handed = [self._node(node, 0).name for node, _ in states]
        graph = Graph(
            parameters=(),
            inputs=tuple(given),
            nodes=tuple(nodes),
            output=[{"node": n} for n in dict.fromkeys([*names, *handed])],
            symbols=(*self.whole.symbols, Symbol(name=step, access="", hint=found.steps // 2)),
            dynamic=self.whole.dynamic,
        )
        inner, choices = looped(graph, self.choices)
        self.structure.update(choices)
        body = LoopBody(
            graph=inner,
            step=step,
            steps=found.steps,
            given=tuple(i.name for i in given),
            carried=self._carried(states),
            last=tuple(names[: len(last)]),
            collected=tuple(names[len(last) :]),
        )
        return body, {name: starts[0] for (_, starts), name in states.items()}

    def _carried(self, states: Mapping[tuple[int, tuple[str, ...]], str]) -> dict[str, str]:
        """{a state: what the next step finds there}: a node's value, or the state that is a step younger, oldest first.

        states: {(node, what the first steps read): the state's name}.
        """
        order = sorted(states.items(), key=lambda state: -len(state[0][1]))
        return {n: states.get((node, starts[1:]), self._node(node, 0).name) for (node, starts), n in order}

    def _place(self, relation: Place, name: str, step: str) -> Node:
        """The step's place of a value from outside."""
        meta = self._known(relation.example)
        at = {"size": counting(step, relation.by, relation.first)}
        return Node(name=name, op="aten.select.int", args=({"node": relation.root}, relation.dim, at), outs=(meta,))

    def _known(self, name: str) -> Meta:
        """The meta of a value from outside."""
        node = next((n for n in self.whole.nodes if n.name == name), None)
        meta = node.outs[0] if node is not None else next(i.meta for i in self.whole.inputs if i.name == name)
        assert meta is not None
        return meta

    def _input(self, name: str, meta: Meta) -> Input:
        return Input(name=name, kind="input", access=name, meta=meta)


def counting(step: str, by: int, first: int) -> str:
    """The text of first + by * k, for the number of the step k + 1."""
    rest = first - by
    text = step if by == 1 else f"{by}*{step}"
    return text if rest == 0 else f"{text} {'+' if rest > 0 else '-'} {abs(rest)}"
