"""Brings a captured graph into its normal form. Pure, without torch.

Chains of views are folded and views without effect removed, composite operators are expanded (rules.py), and equal
computations become one value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hipwright.capture.graph import short
from hipwright.synth.graphs.form import COMMUTATIVE, Argument, DimArgument, FormValue, NormalForm, Ref, refs
from hipwright.synth.graphs.operators import (
    BROADCASTING,
    COPIES,
    DIMENSION_ARGUMENTS,
    OTHER_NAMES,
    PERMUTES,
    REDUCTIONS,
    RESHAPES,
    SPLITS,
    TUPLE_ITEMS,
)
from hipwright.synth.graphs.rules import RULES
from hipwright.synth.graphs.sizes import evaluate_size

_MAX_TERMS = 16  # of one flattened sum or product


def normal_form(graph: Mapping[str, Any], *, widths: bool = True) -> NormalForm:
    """The normal form of a capture.graph.Graph.to_dict(). widths=False: one floating and one integer dtype."""
    return _Builder(graph, widths).form


class _Builder:
    """Builds the form of one graph: leaves first, then nodes in order."""

    def __init__(self, graph: Mapping[str, Any], widths: bool) -> None:
        self.form = NormalForm()
        self.widths = widths
        self.hints = {symbol["name"]: int(symbol["hint"]) for symbol in graph.get("symbols") or ()}
        self.names: dict[str, Ref] = {}
        self.several: dict[str, tuple[Mapping[str, Any], str, tuple[Argument, ...], dict[str, Argument]]] = {}
        for place, leaf in enumerate(graph["inputs"]):
            self._leaf(place, leaf)
        for node in graph["nodes"]:
            self._node(node)
        self.form.outputs = refs(self._argument(graph["output"]))
        # scalars, such as the batch counter of batch norm, are left out
        written = [self.names[m["node"]].id for m in graph.get("mutations") or () if m["node"] in self.names]
        self.form.writes = [place for place in written if self.form.values[place].shape]

    # ---------------------------------------------------------------- values

    def _leaf(self, place: int, leaf: Mapping[str, Any]) -> None:
        dtype, shape = self._meta(leaf["meta"])
        kind = {"input": "input", "const": "const"}.get(leaf["kind"], "state")
        content = str(leaf.get("value")) if kind == "const" else place
        self.names[leaf["name"]] = self.form.put(FormValue(kind, (content,), dtype, shape))

    def _node(self, node: Mapping[str, Any]) -> None:
        if node["op"] == "getitem":
            made = self._item(node)
        else:
            op = short(node["op"])
            op = OTHER_NAMES.get(op, op)
            args = tuple(self._argument(a) for a in node["args"])
            keywords = {k: self._argument(a) for k, a in sorted(node.get("kwargs", {}).items())}
            if len(node["outs"]) > 1:
                self.several[node["name"]] = (node, op, args, keywords)
                return
            made = self.make(op, args, keywords, *self._meta(node["outs"][0]))
        self.names[node["name"]] = made

    def _item(self, node: Mapping[str, Any]) -> Ref:
        """One output of an operator with several outputs."""
        source, which = node["args"][0]["node"], int(node["args"][1])
        whole, op, args, keywords = self.several[source]
        dtype, shape = self._meta(whole["outs"][which])
        if (op, which) in TUPLE_ITEMS:
            item = TUPLE_ITEMS[op, which]
            kept = {k: v for k, v in keywords.items() if item != "mean" or k != "correction"}
            return self.make(item, args[:2] if item == "mean" else args, kept, dtype, shape)
        if op in SPLITS:
            return self._part(op, args, keywords, whole, which)
        if op == "broadcast_tensors":
            return self.make("expand", (args[0][which],), {}, dtype, shape)
        packed = self.form.put(FormValue(op, (*self._axes(op, args), *keywords.items()), "", ()))
        return self.form.put(FormValue("item", (packed, which), dtype, shape))

    def _part(
        self,
        op: str,
        args: tuple[Argument, ...],
        keywords: Mapping[str, Argument],
        whole: Mapping[str, Any],
        which: int,
    ) -> Ref:
        """One part of a split as a slice, and one output of unbind as a selection."""
        dtype, shape = self._meta(whole["outs"][which])
        place = 1 if op == "unbind" else 2
        dim = keywords.get("dim", args[place] if len(args) > place else 0) % max(len(self._value(args[0]).shape), 1)
        if op == "unbind":
            return self.make("select", (args[0], dim, which), {}, dtype, shape)
        start = sum(self._meta(out)[1][dim] for out in whole["outs"][:which])
        return self.make("slice", (args[0], dim, start, start + shape[dim]), {}, dtype, shape)

    def make(
        self, op: str, args: tuple[Argument, ...], keywords: Mapping[str, Argument], dtype: str, shape: tuple[int, ...]
    ) -> Ref:
        """Add the result of an operator in normal form."""
        if (rule := RULES.get(op)) is not None and (made := rule(self, args, keywords, dtype, shape)) is not None:
            return made
        if op in COPIES or op in RESHAPES or op in PERMUTES or op == "_to_copy" or op == "to":
            return self._layout(op, args, dtype, shape)
        if op in REDUCTIONS:
            return self._reduction(op, args, keywords, dtype, shape)
        plain = self._axes(op, args)
        if op in BROADCASTING:
            plain = tuple(self._unexpanded(a) for a in plain)
        if op in ("add", "mul"):
            plain = self._flattened(op, plain, dtype, shape)
        if op in COMMUTATIVE:
            plain = tuple(
                sorted(plain, key=lambda a: (not isinstance(a, Ref), a.id if isinstance(a, Ref) else repr(a)))
            )
        return self.form.put(FormValue(op, (*plain, *keywords.items()), dtype, shape))

    def _layout(self, op: str, args: tuple[Argument, ...], dtype: str, shape: tuple[int, ...]) -> Ref:
        x = self._value(args[0])
        if x.dtype != dtype:
            return self.form.put(FormValue("cast", (args[0],), dtype, shape))
        if op in PERMUTES:
            return self.permuted(args[0], permuted_order(op, args, len(x.shape)), dtype, shape)
        return args[0] if x.shape == shape else self.reshaped(args[0], shape)

    def reshaped(self, x: Ref, shape: tuple[int, ...]) -> Ref:
        """x in another shape; a chain of reshapes becomes one."""
        value = self._value(x)
        while value.op == "reshape":
            x = value.args[0]
            value = self._value(x)
        if value.shape == shape:
            return x
        ones = tuple(size == 1 for size in shape) if _without_ones(shape) == _without_ones(value.shape) else None
        return self.form.put(FormValue("reshape", (x, ones), value.dtype, shape))

    def permuted(self, x: Ref, order: tuple[int, ...], dtype: str, shape: tuple[int, ...]) -> Ref:
        """x with its dimensions in another order; a chain of permutations becomes one."""
        value = self._value(x)
        if value.op == "permute":
            inner = tuple(axis.index for axis in value.args[1])
            return self.permuted(value.args[0], tuple(inner[k] for k in order), dtype, shape)
        if order == tuple(range(len(order))):
            return x
        return self.form.put(FormValue("permute", (x, tuple(map(DimArgument, order))), dtype, shape))

    def _reduction(
        self, op: str, args: tuple[Argument, ...], keywords: Mapping[str, Argument], dtype: str, shape: tuple[int, ...]
    ) -> Ref:
        """A reduction over sorted dimensions without keepdim, followed by a reshape where dimensions were kept."""
        x, at = self._value(args[0]), REDUCTIONS[op]
        rank = len(x.shape)
        given = keywords.get("dim", args[at] if len(args) > at else None)
        dims = (given,) if isinstance(given, int) and not isinstance(given, bool) else given or range(rank)
        over = sorted({d % max(rank, 1) for d in dims})
        kept = tuple(size for d, size in enumerate(x.shape) if d not in over)
        rest = tuple(a for k, a in enumerate(args[1:], 1) if k != at and not isinstance(a, bool))
        if op in ("var", "std"):
            flags = [a for a in args[1:] if isinstance(a, bool)]  # the first says whether n or n - 1 divides
            rest = (keywords.get("correction", int(flags[0]) if flags else 1),)
        made = self.form.put(FormValue(op, (args[0], tuple(map(DimArgument, over)), *rest), dtype, kept))
        return made if kept == shape else self.reshaped(made, shape)

    def _unexpanded(self, argument: Argument) -> Argument:
        """The operand of a broadcasting operator without expands and added leading dimensions."""
        while isinstance(argument, Ref):
            value = self._value(argument)
            leading = value.op == "reshape" and _leading(self._value(value.args[0]).shape, value.shape)
            if value.op != "expand" and not leading:
                break
            argument = value.args[0]
        return argument

    def _flattened(
        self, op: str, args: tuple[Argument, ...], dtype: str, shape: tuple[int, ...]
    ) -> tuple[Argument, ...]:
        """The terms of nested sums or products of one dtype and shape: (a + b) + c as a, b, c."""
        terms: list[Argument] = []
        for a in args:
            value = self._value(a) if isinstance(a, Ref) else None
            inner = value is not None and value.op == op and value.dtype == dtype and value.shape == shape
            terms += value.args if inner and value is not None else [a]
        return tuple(terms) if len(terms) <= _MAX_TERMS else args

    def _axes(self, op: str, args: tuple[Argument, ...]) -> tuple[Argument, ...]:
        """The arguments, with dimensions as DimArgument."""
        places = DIMENSION_ARGUMENTS.get(op, ())
        first = next(iter(refs(args)), None)
        rank = len(self.form.values[first].shape) if first is not None else 0
        return tuple(_axis(a, rank + (op == "stack")) if k in places else a for k, a in enumerate(args))

    # ---------------------------------------------------------------- reading

    def _value(self, ref: Any) -> FormValue:
        value: FormValue = self.form.values[ref.id]
        return value

    def _meta(self, meta: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
        dtype = str(meta["dtype"])
        return dtype if self.widths else _kind(dtype), tuple(self._size(size) for size in meta["shape"])

    def _size(self, size: int | str) -> int:
        return size if isinstance(size, int) else evaluate_size(size, self.hints)

    def _argument(self, arg: Any) -> Argument:
        if isinstance(arg, (list, tuple)):
            return tuple(self._argument(item) for item in arg)
        if not isinstance(arg, Mapping):
            return arg
        if "node" in arg:
            return self.names[arg["node"]]
        if "size" in arg:
            return self._size(arg["size"])
        if "map" in arg:
            return tuple(self._argument(item) for _, item in arg["map"])
        if "tuple" in arg:
            return self._argument(arg["tuple"])
        return str(arg.get("dtype", arg.get("float"))) if self.widths or "float" in arg else _kind(str(arg["dtype"]))


def _kind(dtype: str) -> str:
    return "float" if "float" in dtype else "bool" if dtype == "bool" else "int"


def _axis(argument: Argument, rank: int) -> Argument:
    if isinstance(argument, tuple):
        return tuple(_axis(item, rank) for item in argument)
    return DimArgument(argument % max(rank, 1)) if isinstance(argument, int) else argument


def _leading(inner: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether `shape` is `inner` with ones before it."""
    extra = len(shape) - len(inner)
    return extra > 0 and all(size == 1 for size in shape[:extra]) and tuple(shape[extra:]) == tuple(inner)


def _without_ones(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size != 1]


def permuted_order(op: str, args: tuple[Argument, ...], rank: int) -> tuple[int, ...]:
    """For each dimension of the result of a permuting operator, the operand's dimension that it is."""
    order = list(range(rank))
    if op == "permute":
        return tuple(d % rank for d in args[1])
    if op == "movedim":
        ends = [(a,) if isinstance(a, int) else a for a in args[1:3]]
        moved = sorted(zip((d % rank for d in ends[1]), (d % rank for d in ends[0]), strict=True))
        order = [d for d in order if d not in {source for _, source in moved}]
        for to, source in moved:
            order.insert(to, source)
        return tuple(order)
    if op == "numpy_T":
        return tuple(reversed(order))
    if rank < 2:
        return tuple(order)
    a, b = (args[1] % rank, args[2] % rank) if op in ("transpose", "swapaxes", "swapdims") else (rank - 2, rank - 1)
    order[a], order[b] = order[b], order[a]
    return tuple(order)
