"""Rolls loops over steps that tracing unrolled, before lowering.

* A chain of `lstm_cell`, `gru_cell` or `rnn_*_cell` over consecutive steps of one tensor, with one set of weights, is a
  recurrent layer: the input's product for all steps and one kernel (templates/recurrent/layer.py) for three kernels a
  step. Chains that read the outputs of such a chain become the next layer.
* Linear layers of consecutive steps of one tensor, with one set of weights, are one product for all steps: what of a
  hand-written cell does not wait for the state need not be computed step by step.
* Products of slices, `x[g] @ w[g]` or `x @ w[g]` for consecutive g (experts in a Python list), are one batched product;
  stacked or concatenated results are its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Meta, Node, references, short
from hipwright.engine.knobs import Choice
from hipwright.engine.rewrite.recurrent import CELLS, _hidden, _item, _small, _usual_layer, decomposed, row_major
from hipwright.engine.rewrite.steps import Steps, selected

LAYERS = {"lstm_cell": "lstm", "gru_cell": "gru", "rnn_tanh_cell": "rnn_tanh", "rnn_relu_cell": "rnn_relu"}
PRODUCTS = ("aten.matmul.default", "aten.mm.default")


def unrolled(graph: Graph, choices: Mapping[str, Any]) -> tuple[Graph, dict[str, Choice]]:
    """(the graph with the loops and recurrent operators of these choices, the choices offered)."""
    if choices.get("library"):
        return decomposed(graph, choices)
    structure: dict[str, Choice] = {}
    seen: set[str] = set()
    while True:
        chain = next((c for c in _chains(graph) if c[0].name not in seen), None)
        if chain is None:
            break
        seen.add(chain[0].name)
        layer = _layer(graph, chain)
        if layer is not None:
            key, default = f"loop:{chain[0].name}", "layer" if layer.default else "steps"
            structure[key] = Choice(options=("steps", "layer"), default=default)
            graph = layer.graph if choices.get(key, default) == "layer" else graph
    graph, parts = decomposed(_stacked(graph), choices)
    graph, products = _hoisted(graph, choices)
    return _stacked(graph), structure | parts | products


def _used(graph: Graph) -> dict[str, int]:
    """The number of reads of every value."""
    counts: dict[str, int] = {}
    arguments = [a for n in graph.nodes for a in (*n.args, *n.kwargs.values())]
    for name in [*references([*arguments, graph.output]), *(m.node for m in graph.mutations)]:
        counts[name] = counts.get(name, 0) + 1
    return counts


# ---------------------------------------------------------------- chains of cells


def _chains(graph: Graph) -> list[list[Node]]:
    """Chains of cells: each reads the state of the one before, with the same weights."""
    nodes = {n.name: n for n in graph.nodes}
    after: dict[str, list[Node]] = {}
    heads: list[Node] = []
    for node in graph.nodes:
        if short(node.op) in CELLS:
            before = nodes.get(_before(node, nodes))
            if before is not None and before.op == node.op and before.args[2:] == node.args[2:]:
                after.setdefault(before.name, []).append(node)
            else:
                heads.append(node)
    chains = []
    for head in heads:
        chain = [head]
        while len(after.get(chain[-1].name, [])) == 1:
            chain += after[chain[-1].name]
        chains.append(chain)
    return [c for c in chains if len(c) > 1]


def _before(node: Node, nodes: Mapping[str, Node]) -> str:
    """The cell whose whole state a cell reads, or ""."""
    if short(node.op) != "lstm_cell":
        return str(node.args[1]["node"])
    items = [nodes.get(s["node"]) for s in node.args[1]]
    if any(i is None or i.op != "getitem" or i.args[1] != k for k, i in enumerate(items)):
        return ""
    sources = {i.args[0]["node"] for i in items if i is not None}
    return str(sources.pop()) if len(sources) == 1 else ""


@dataclass
class _Layer:
    graph: Graph
    default: bool


def _layer(graph: Graph, chain: Sequence[Node]) -> _Layer | None:
    """The graph with a chain as one recurrent layer; None where a layer cannot express it."""
    steps, first, kind = Steps(graph), chain[0], LAYERS[short(chain[0].op)]
    run = steps.run([n.args[0] for n in chain], steps.place[first.name])
    if not run or run[0].dim > 1 or len(steps.known[run[0].root].shape) != 3:  # type: ignore[union-attr]
        return None
    given, meta, made = steps.part(run, f"{first.name}_steps")
    weights = [w for w in (*first.args[2:], None, None)[:4] if w is not None]
    cell = first.outs[0]
    if cell is None or len(weights) % 2 or not _kept_states(graph, chain):
        return None
    state = row_major(cell.dtype, (1, *cell.shape))
    states = list(first.args[1]) if kind == "lstm" else [first.args[1]]
    lifted = [
        Node(name=f"{first.name}_state_{k}", op="aten.unsqueeze.default", args=(s, 0), outs=(state,))
        for k, s in enumerate(states)
    ]
    before: Any = [{"node": n.name} for n in lifted]
    y = row_major(cell.dtype, (*meta.shape[:2], cell.shape[-1]))
    args = (
        given,
        before if kind == "lstm" else before[0],
        weights,
        len(weights) == 4,
        1,
        0.0,
        False,
        False,
        run[0].dim == 1,
    )
    outs = (y, state, *[state] * (kind == "lstm"))
    node = Node(name=f"{first.name}_layer", op=f"aten.{kind}.input", args=args, outs=outs, module=first.module)
    known = steps.known | {n.name: n.outs[0] for n in (*made, *lifted)}
    if not _usual_layer(node, known) or _hidden(node, known) != cell.shape[-1]:
        return None
    outputs = [_item(f"{node.name}_{k}", node.name, k, m) for k, m in enumerate(outs)]
    new = _with_layer(graph, chain, [*made, *lifted, node, *outputs], run[0].dim)
    return _Layer(new, _small(node, known, {s.name: s.hint for s in graph.symbols}))


def _kept_states(graph: Graph, chain: Sequence[Node]) -> bool:
    """Whether each c but the last is read by the next cell only: a layer returns no others."""
    if short(chain[0].op) != "lstm_cell":
        return True
    used = _used(graph)
    return all(used[n.args[1][1]["node"]] == 1 for n in chain[1:])


def _with_layer(graph: Graph, chain: Sequence[Node], made: Sequence[Node], dim: int) -> Graph:
    """The replaced cells: each h is a step of y; the last c, and a last h that is read alone, are the layer's."""
    numbers, used = {n.name: k for k, n in enumerate(chain)}, _used(graph)
    alone = all(used[_hidden_state(n)] == 1 for n in chain[1:])
    y, *last = [n for n in made if n.op == "getitem"]
    shape = y.outs[0]
    assert shape is not None
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.name == chain[0].name:
            nodes += made
        item = node.op == "getitem"
        number = numbers.get(node.args[0]["node"] if item else node.name)
        if number is None:
            nodes.append(node)
        elif number == len(chain) - 1 and ((item and node.args[1] == 1) or (alone and (item or len(last) == 1))):
            sizes = [s if isinstance(s, int) else {"size": s} for s in (shape.shape[1 - dim], shape.shape[2])]
            args = ({"node": last[node.args[1] if item else 0].name}, sizes)
            out = row_major(shape.dtype, (shape.shape[1 - dim], shape.shape[2]))
            nodes.append(Node(name=node.name, op="aten.view.default", args=args, outs=(out,), module=node.module))
        elif len(last) == 1 or (item and node.args[1] == 0):
            nodes.append(selected(node, y.name, shape, dim, number))
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def _hidden_state(cell: Node) -> str:
    """The name of a cell's h."""
    return str((cell.args[1][0] if short(cell.op) == "lstm_cell" else cell.args[1])["node"])


def _stacked(graph: Graph) -> Graph:
    """Replaces a stack or concatenation of all steps of a tensor, in order, by the tensor."""
    steps, nodes = Steps(graph), list(graph.nodes)
    for at, node in enumerate(nodes):
        if short(node.op) not in ("stack", "cat") or not all(_made_here(steps, a) for a in node.args[0]):
            continue
        run = steps.run(node.args[0], at)
        meta = steps.known.get(run[0].root) if run else None
        if not run or meta is None or run[0].number or meta.shape[run[0].dim] != len(run):
            continue
        dim = (node.args[1] if len(node.args) > 1 else 0) % len(meta.shape)
        if short(node.op) == "cat":
            out = node.outs[0]
            if dim == run[0].dim == 0 and out is not None and len(meta.shape) > 1:
                sizes = [s if isinstance(s, int) else {"size": s} for s in out.shape]
                nodes[at] = Node(
                    name=node.name,
                    op="aten.view.default",
                    args=({"node": run[0].root}, sizes),
                    outs=node.outs,
                    module=node.module,
                )
            continue
        args = ({"node": run[0].root}, run[0].dim, dim)
        op = "aten.movedim.int" if dim != run[0].dim else "aten.alias.default"
        if abs(dim - run[0].dim) == 1:
            op = "aten.transpose.int"
        elif dim != run[0].dim:
            continue
        nodes[at] = Node(
            name=node.name, op=op, args=args if dim != run[0].dim else args[:1], outs=node.outs, module=node.module
        )
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def _made_here(steps: Steps, argument: Any) -> bool:
    """Whether a value is a step of a recurrent layer's output, or of a product over all steps."""
    step = steps.of(argument)
    source = steps.nodes.get(step.root) if step else None
    layer = source is not None and source.op == "getitem" and "_layer" in source.args[0]["node"]
    return layer or (source is not None and source.name.endswith("_all"))


# ---------------------------------------------------------------- products of the input


def _hoisted(graph: Graph, choices: Mapping[str, Any]) -> tuple[Graph, dict[str, Choice]]:
    """Merges the linear layers of consecutive steps, and products of slices, into one each."""
    steps, structure = Steps(graph), dict[str, Choice]()
    families: dict[tuple[Any, ...], list[Node]] = {}
    for node in graph.nodes:
        if node.op not in ("aten.linear.default", *PRODUCTS) or node.kwargs:
            continue
        count = 2 if node.op in PRODUCTS else 1
        parts = [steps.of(a) for a in node.args[:count]]
        if any(parts):
            which = [(s.root, s.dim) if s else repr(a) for s, a in zip(parts, node.args[:count], strict=True)]
            families.setdefault((node.op, *which, *map(repr, node.args[count:])), []).append(node)
    instead: dict[str, list[Node]] = {}
    for family in families.values():
        first = family[0]
        made = _for_all(steps, family) if first.op not in PRODUCTS else _batched(steps, family)
        if made:
            structure[f"hoist:{first.name}"] = Choice(options=(True, False), default=True)
            instead |= made if choices.get(f"hoist:{first.name}", True) else {}
    nodes = [new for node in graph.nodes for new in instead.get(node.name, [node])]
    return msgspec.structs.replace(graph, nodes=tuple(nodes)), structure


def _for_all(steps: Steps, family: Sequence[Node]) -> dict[str, list[Node]]:
    """What replaces each linear layer; the merged one stands at the first. Empty where they cannot be merged."""
    first, out = family[0], family[0].outs[0]
    run = steps.run([n.args[0] for n in family], steps.place[first.name])
    source = steps.known[run[0].root] if run else None
    if len(run) < 2 or out is None or source is None or run[0].dim == len(source.shape) - 1:
        return {}
    given, meta, made = steps.part(run, f"{first.name}_steps")
    whole = row_major(meta.dtype, (*meta.shape[:-1], out.shape[-1]))
    return _instead(family, made, first.op, (given, *first.args[1:]), whole, run[0].dim)


def _batched(steps: Steps, family: Sequence[Node]) -> dict[str, list[Node]]:
    """What replaces each product of matrices, where one or both factors differ between steps."""
    first, out = family[0], family[0].outs[0]
    args, made = [], list[Node]()
    for k, argument in enumerate(first.args):
        meta = steps.known.get(argument["node"])
        if len({steps.of(n.args[k]) for n in family}) == 1:  # the same for all
            args.append(argument)
        else:
            run = steps.run([n.args[k] for n in family], steps.place[first.name])
            root = steps.known[run[0].root] if run else None
            if len(run) < 2 or run[0].dim != 0 or root is None or len(root.shape) != 3:
                return {}
            given, _, more = steps.part(run, f"{first.name}_steps_{k}")
            args.append(given)
            made += more
        if meta is None or len(meta.shape) != 2:
            return {}
    if out is None:
        return {}
    whole = row_major(out.dtype, (len(family), *out.shape))
    return _instead(family, made, "aten.matmul.default", tuple(args), whole, 0)


def _instead(
    family: Sequence[Node], made: list[Node], op: str, args: tuple[Any, ...], whole: Meta, dim: int
) -> dict[str, list[Node]]:
    """The nodes that replace each product; the merged one stands at the first."""
    first = family[0]
    made.append(Node(name=f"{first.name}_all", op=op, args=args, outs=(whole,), module=first.module))
    out = {n.name: [selected(n, f"{first.name}_all", whole, dim, k)] for k, n in enumerate(family)}
    out[first.name] = [*made, *out[first.name]]
    return out


__all__ = ["unrolled"]
