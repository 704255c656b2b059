"""Splits recurrent operators, before lowering, into products and one kernel for each layer or cell.

A whole layer becomes the input's products for all steps (`linear`, chosen as any other) and the engine's own operator
`hip.recurrent_layer` (templates/recurrent/layer.py). A cell becomes two products and pointwise operators, which fuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Meta, Node, Size, short
from hipwright.engine.ir.operators import RECURRENT_LAYER
from hipwright.engine.knobs import Choice
from hipwright.engine.rewrite.pinned_sizes import metas
from hipwright.engine.templates.recurrent.layer import RESIDENT_BYTES
from hipwright.engine.templates.recurrent.spread import LIBRARY_CYCLES, best_spread
from hipwright.engine.templates.recurrent.text import GATES

CELLS = {"lstm_cell": 4, "gru_cell": 3, "rnn_tanh_cell": 1, "rnn_relu_cell": 1}
MANY_ROWS = 512
"""Half-precision batch size from which the library is the default: its products use matrix units."""
LARGEST = 1024
FLOATS = ("float32", "float16", "bfloat16")


def decomposed(graph: Graph, choices: Mapping[str, Any]) -> tuple[Graph, dict[str, Choice]]:
    """(the graph with recurrent operators split by these choices, the choices offered)."""
    structure: dict[str, Choice] = {}
    known = metas(graph)
    hints = {s.name: s.hint for s in graph.symbols}
    nodes: list[Node] = []
    replaced: set[str] = set()
    for node in graph.nodes:
        if node.op == "getitem" and node.args[0]["node"] in replaced:
            continue
        kind = short(node.op)
        name, default = None, True
        if kind in CELLS:
            name = "pointwise" if _usual_cell(node, known) else None
        elif kind in GATES:
            name, default = ("persistent" if _usual_layer(node, known) else None), _small(node, known, hints)
        if name is not None:
            usual = name if default and not choices.get("library") else "library"
            structure[f"call:{node.name}"] = Choice(options=("library", name), default=usual)
            if choices.get(f"call:{node.name}", usual) == name:
                users = {g.args[1]: g for g in graph.nodes if g.op == "getitem" and g.args[0]["node"] == node.name}
                nodes += _cell(node, kind, known, users) if kind in CELLS else _layers(node, kind, known, users)
                replaced.add(node.name)
                continue
        nodes.append(node)
    return msgspec.structs.replace(graph, nodes=tuple(nodes)), structure


def _meta(arg: Any, known: Mapping[str, Meta | None]) -> Meta | None:
    return known.get(arg["node"]) if isinstance(arg, dict) and "node" in arg else None


def _usual_layer(node: Node, known: Mapping[str, Meta | None]) -> bool:
    """Whether it is `op.input` of batched input, without projection and dropout, of a supported dtype."""
    if not node.op.endswith(".input") or len(node.args) < 9:
        return False
    lstm = short(node.op) == "lstm"
    x, weights, (biased, layers, dropout, train, both, _) = node.args[0], node.args[2], node.args[3:9]
    meta, hidden = _meta(x, known), _hidden(node, known)
    if meta is None or meta.dtype not in FLOATS or len(meta.shape) != 3 or not 0 < hidden <= LARGEST:
        return False
    states = node.args[1] if lstm else [node.args[1]]
    same = all((m := _meta(s, known)) is not None and m.dtype == meta.dtype for s in [*states, *weights])
    return same and not (dropout and train) and len(weights) == layers * (2 if both else 1) * (4 if biased else 2)


def _hidden(node: Node, known: Mapping[str, Meta | None]) -> int:
    """Hidden units of a layer; 0 where they are not constant."""
    weight = _meta(node.args[2][1], known) if len(node.args[2]) > 1 else None
    size = weight.shape[-1] if weight is not None else 0
    return size if isinstance(size, int) else 0


def _small(node: Node, known: Mapping[str, Meta | None], hints: Mapping[str, int]) -> bool:
    """The default: the template where recurrent weights fit near the block that uses them and the batch is small, or
    where they are spread over blocks and a step takes less than the library's.
    """
    meta, hidden = _meta(node.args[0], known), _hidden(node, known)
    assert meta is not None
    kind, width = short(node.op), 4 if meta.dtype == "float32" else 2
    batch = meta.shape[0 if node.args[8] else 1]
    rows = batch if isinstance(batch, int) else hints.get(batch, MANY_ROWS)
    close = GATES[kind] * hidden * hidden * width <= RESIDENT_BYTES
    if not close:
        spread = best_spread(kind, hidden, rows, 2 if node.args[7] else 1, 16 // width)
        return spread is not None and spread.cycles <= LIBRARY_CYCLES
    return close and (width == 4 or rows <= MANY_ROWS)


def row_major(dtype: str, shape: Sequence[Size]) -> Meta:
    """A contiguous tensor's meta."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.insert(0, step)
        both = isinstance(step, int) and isinstance(size, int)
        step = int(step) * int(size) if both else f"({step})*({size})"
    return Meta(dtype=dtype, shape=tuple(shape), stride=tuple(strides))


def _layers(node: Node, kind: str, known: Mapping[str, Meta | None], users: Mapping[int, Node]) -> list[Node]:
    """All layers of a recurrent operator, and its outputs by their names in the graph."""
    given, weights = node.args[0], list(node.args[2])
    biased, layers, both, batch_first = node.args[3], node.args[4], node.args[7], node.args[8]
    meta, hidden = _meta(given, known), _hidden(node, known)
    assert meta is not None
    states = list(node.args[1]) if kind == "lstm" else [node.args[1], None]
    directions, step = (2 if both else 1), (4 if biased else 2)
    batch = meta.shape[0 if batch_first else 1]
    made: list[Node] = []
    for layer in range(layers):
        gates, recurrent = [], []
        for direction in range(directions):
            own = weights[(layer * directions + direction) * step :][:step]
            shape = (*meta.shape[:2], GATES[kind] * hidden)
            product = Node(
                name=f"{node.name}_gates_{layer}_{direction}",
                op="aten.linear.default",
                args=(given, own[0], own[2] if biased else None),
                outs=(row_major(meta.dtype, shape),),
                module=node.module,
            )
            made.append(product)
            gates.append({"node": product.name})
            recurrent.append((own[1], own[3] if biased else None))
        small = row_major(meta.dtype, (directions, batch, hidden))
        outs = (row_major(meta.dtype, (*meta.shape[:2], directions * hidden)), small, *([small] * (kind == "lstm")))
        args = (gates, [w for w, _ in recurrent], [b for _, b in recurrent], *states, layer, kind, bool(batch_first))
        made.append(
            Node(name=f"{node.name}_layer_{layer}", op=RECURRENT_LAYER, args=args, outs=outs, module=node.module)
        )
        if layer < layers - 1:
            made.append(_item(f"{node.name}_y_{layer}", f"{node.name}_layer_{layer}", 0, outs[0]))
            given = {"node": f"{node.name}_y_{layer}"}
    return made + _results(node, kind, layers, users)


def _item(name: str, source: str, number: int, meta: Meta) -> Node:
    return Node(name=name, op="getitem", args=({"node": source}, number), outs=(meta,))


def _results(node: Node, kind: str, layers: int, users: Mapping[int, Node]) -> list[Node]:
    """The output of the last layer, and the concatenated final states of all layers."""
    made: list[Node] = []
    for number, user in users.items():
        meta = user.outs[0] or node.outs[number]
        assert meta is not None
        if number == 0 or layers == 1:
            made.append(_item(user.name, f"{node.name}_layer_{layers - 1}", number, meta))
            continue
        name = f"{node.name}_{'hidden' if number == 1 else 'cell'}"
        parts = [{"node": f"{name}_{layer}"} for layer in range(layers)]
        shape = (int(meta.shape[0]) // layers, *meta.shape[1:])
        for layer, part in enumerate(parts):
            made.append(_item(part["node"], f"{node.name}_layer_{layer}", number, row_major(meta.dtype, shape)))
        made.append(Node(name=name, op="aten.cat.default", args=(parts, 0), outs=(meta,), module=node.module))
        made.append(Node(name=user.name, op="aten.alias.default", args=({"node": name},), outs=(meta,)))
    return made


# ---------------------------------------------------------------- cells


def _usual_cell(node: Node, known: Mapping[str, Meta | None]) -> bool:
    """Whether input is batched and of a floating dtype, and the hidden units are constant."""
    meta, weight = _meta(node.args[0], known), _meta(node.args[3], known)
    return meta is not None and len(meta.shape) == 2 and weight is not None and isinstance(weight.shape[-1], int)


class _Cell:
    """Writes the parts of one cell."""

    def __init__(self, node: Node, meta: Meta, hidden: int) -> None:
        self.node, self.meta, self.hidden = node, meta, hidden
        self.made: list[Node] = []

    def op(self, op: str, *args: Any, width: int = 0, name: str = "") -> dict[str, str]:
        """One operator; width: its last dimension, in hidden units."""
        title = name or f"{self.node.name}_{short(op)}_{len(self.made)}"
        shape = (self.meta.shape[0], (width or 1) * self.hidden)
        self.made.append(
            Node(name=title, op=op, args=args, outs=(row_major(self.meta.dtype, shape),), module=self.node.module)
        )
        return {"node": title}

    def part(self, source: Any, gate: int) -> dict[str, str]:
        """One gate of a product."""
        return self.op("aten.slice.Tensor", source, 1, gate * self.hidden, (gate + 1) * self.hidden)

    def add(self, a: Any, b: Any, name: str = "") -> dict[str, str]:
        """a + b."""
        return self.op("aten.add.Tensor", a, b, name=name)

    def mul(self, a: Any, b: Any, name: str = "") -> dict[str, str]:
        """a * b."""
        return self.op("aten.mul.Tensor", a, b, name=name)

    def curve(self, which: str, a: Any, name: str = "") -> dict[str, str]:
        """sigmoid, tanh or relu."""
        return self.op(f"aten.{which}.default", a, name=name)


def _cell(node: Node, kind: str, known: Mapping[str, Meta | None], users: Mapping[int, Node]) -> list[Node]:
    """`*_cell(x, h or [h, c], w_ih, w_hh, b_ih, b_hh)` as two products and pointwise operators."""
    x, state, w_ih, w_hh, b_ih, b_hh = (*node.args, None, None)[:6]
    meta, weight = _meta(x, known), _meta(w_hh, known)
    assert meta is not None
    assert weight is not None
    cell = _Cell(node, meta, int(weight.shape[-1]))
    h = state[0] if kind == "lstm_cell" else state
    inputs = cell.op("aten.linear.default", x, w_ih, b_ih, width=CELLS[kind])
    hiddens = cell.op("aten.linear.default", h, w_hh, b_hh, width=CELLS[kind])
    if kind == "lstm_cell":
        _lstm_cell(cell, inputs, hiddens, state[1], {k: u.name for k, u in users.items()})
    elif kind == "gru_cell":
        _gru_cell(cell, inputs, hiddens, h)
    else:
        cell.curve("tanh" if kind == "rnn_tanh_cell" else "relu", cell.add(inputs, hiddens), node.name)
    return cell.made


def _lstm_cell(cell: _Cell, inputs: Any, hiddens: Any, c: Any, names: Mapping[int, str]) -> None:
    """c' = f c + i g, h' = o tanh(c') (Hochreiter & Schmidhuber 1997; Gers et al. 2000)."""
    gates = [cell.add(cell.part(inputs, k), cell.part(hiddens, k)) for k in range(4)]
    i, f, o = (cell.curve("sigmoid", gates[k]) for k in (0, 1, 3))
    new = cell.add(cell.mul(f, c), cell.mul(i, cell.curve("tanh", gates[2])), names.get(1, ""))
    cell.mul(o, cell.curve("tanh", new), names.get(0, ""))


def _gru_cell(cell: _Cell, inputs: Any, hiddens: Any, h: Any) -> None:
    """h' = n + z (h - n), n = tanh(x_n + r h_n) (Cho et al. 2014, the reset gate after the product)."""
    r, z = (cell.curve("sigmoid", cell.add(cell.part(inputs, k), cell.part(hiddens, k))) for k in (0, 1))
    n = cell.curve("tanh", cell.add(cell.part(inputs, 2), cell.mul(r, cell.part(hiddens, 2))))
    cell.add(n, cell.mul(z, cell.op("aten.sub.Tensor", h, n)), cell.node.name)
