"""From a captured graph to its normal form: one way to write what can be written in many. Pure; no torch.

Views are folded (a chain of reshapes is one, a view that changes nothing is none), functions that are short for others
are written out (graph_rules.py), equal computations are one, unused ones none.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hipwright import syntax
from hipwright.capture.graph import short
from hipwright.synth.graph_form import COMMUTATIVE, Argument, DimArgument, FormValue, NormalForm, Ref, refs
from hipwright.synth.graph_rules import RULES

_BROADCASTING = COMMUTATIVE | {"sub", "div", "pow", "where", "lt", "le", "gt", "ge", "remainder", "atan2", "fmod"}
_SAME = frozenset({"clone", "contiguous", "alias", "detach", "lift_fresh", "lift_fresh_copy", "positive", "identity"})
_RESHAPES = frozenset(
    {
        "view",
        "reshape",
        "_unsafe_view",
        "flatten",
        "unflatten",
        "unsqueeze",
        "squeeze",
        "view_as",
        "reshape_as",
    }
)
_OTHER_NAMES = {
    "mm": "matmul",
    "bmm": "matmul",
    "mv": "matmul",
    "dot": "matmul",
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "expand_as": "expand",
    "broadcast_to": "expand",
    "true_divide": "div",
    "nll_loss_nd": "nll_loss",
}
_REDUCTIONS = {
    "sum": 1,
    "mean": 1,
    "amax": 1,
    "amin": 1,
    "prod": 1,
    "var": 1,
    "std": 1,
    "logsumexp": 1,
    "all": 1,
    "any": 1,
    "argmax": 1,
    "argmin": 1,
    "linalg_vector_norm": 2,
}
_AXES: dict[str, tuple[int, ...]] = {
    "softmax": (1,),
    "log_softmax": (1,),
    "cumsum": (1,),
    "cumprod": (1,),
    "cummax": (1,),
    "cummin": (1,),
    "logcumsumexp": (1,),
    "gather": (1,),
    "index_select": (1,),
    "select": (1,),
    "slice": (1,),
    "split": (2,),
    "split_with_sizes": (2,),
    "chunk": (2,),
    "unbind": (1,),
    "cat": (1,),
    "stack": (1,),
    "flip": (1,),
    "roll": (2,),
    "sort": (1,),
    "topk": (2,),
    "kthvalue": (2,),
    "cosine_similarity": (2,),
    "glu": (1,),
    "scatter": (1,),
    "scatter_add": (1,),
    "index_add": (1,),
    "diff": (2,),
    "max": (1,),
    "min": (1,),
    "var_mean": (1,),
    "std_mean": (1,),
    "median": (1,),
    "take_along_dim": (2,),
    "repeat_interleave": (2,),
}
_ITEMS = {
    ("max", 0): "amax",
    ("max", 1): "argmax",
    ("min", 0): "amin",
    ("min", 1): "argmin",
    ("var_mean", 0): "var",
    ("var_mean", 1): "mean",
    ("std_mean", 0): "std",
    ("std_mean", 1): "mean",
}
_SPLITS = frozenset({"split", "split_with_sizes", "chunk", "unbind", "unsafe_split", "unsafe_chunk"})
_WIDEST = 16  # terms of one flattened sum or product


def normal_form(graph: Mapping[str, Any], *, widths: bool = True) -> NormalForm:
    """The normal form of engine.graph.Graph.to_dict(). widths=False: every floating dtype is one, every integer one."""
    return _Builder(graph, widths).form


class _Builder:
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
        # the counter that batch norm keeps is no tensor anybody computes with
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
            op = _OTHER_NAMES.get(op, op)
            args = tuple(self._argument(a) for a in node["args"])
            words = {k: self._argument(a) for k, a in sorted(node.get("kwargs", {}).items())}
            if len(node["outs"]) > 1:
                self.several[node["name"]] = (node, op, args, words)
                return
            made = self.make(op, args, words, *self._meta(node["outs"][0]))
        self.names[node["name"]] = made

    def _item(self, node: Mapping[str, Any]) -> Ref:
        """One output of an operator that has several."""
        source, which = node["args"][0]["node"], int(node["args"][1])
        whole, op, args, words = self.several[source]
        dtype, shape = self._meta(whole["outs"][which])
        if (op, which) in _ITEMS:
            item = _ITEMS[op, which]
            kept = {k: v for k, v in words.items() if item != "mean" or k != "correction"}
            return self.make(item, args[:2] if item == "mean" else args, kept, dtype, shape)
        if op in _SPLITS:
            return self._part(op, args, words, whole, which)
        if op == "broadcast_tensors":
            return self.make("expand", (args[0][which],), {}, dtype, shape)
        packed = self.form.put(FormValue(op, (*self._axes(op, args), *words.items()), "", ()))
        return self.form.put(FormValue("item", (packed, which), dtype, shape))

    def _part(
        self, op: str, args: tuple[Argument, ...], words: Mapping[str, Argument], whole: Mapping[str, Any], which: int
    ) -> Ref:
        """A chunk is a slice, and one of unbind's values a selection."""
        dtype, shape = self._meta(whole["outs"][which])
        place = 1 if op == "unbind" else 2
        dim = words.get("dim", args[place] if len(args) > place else 0) % max(len(self._value(args[0]).shape), 1)
        if op == "unbind":
            return self.make("select", (args[0], dim, which), {}, dtype, shape)
        start = sum(self._meta(out)[1][dim] for out in whole["outs"][:which])
        return self.make("slice", (args[0], dim, start, start + shape[dim]), {}, dtype, shape)

    def make(
        self, op: str, args: tuple[Argument, ...], words: Mapping[str, Argument], dtype: str, shape: tuple[int, ...]
    ) -> Ref:
        """The value in normal form."""
        if (rule := RULES.get(op)) is not None and (made := rule(self, args, words, dtype, shape)) is not None:
            return made
        if op in _SAME or op in _RESHAPES or op in _PERMUTES or op == "_to_copy" or op == "to":
            return self._layout(op, args, dtype, shape)
        if op in _REDUCTIONS:
            return self._reduction(op, args, words, dtype, shape)
        plain = self._axes(op, args)
        if op in _BROADCASTING:
            plain = tuple(self._unexpanded(a) for a in plain)
        if op in ("add", "mul"):
            plain = self._flattened(op, plain, dtype, shape)
        if op in COMMUTATIVE:
            plain = tuple(
                sorted(plain, key=lambda a: (not isinstance(a, Ref), a.id if isinstance(a, Ref) else repr(a)))
            )
        return self.form.put(FormValue(op, (*plain, *words.items()), dtype, shape))

    def _layout(self, op: str, args: tuple[Argument, ...], dtype: str, shape: tuple[int, ...]) -> Ref:
        x = self._value(args[0])
        if x.dtype != dtype:
            return self.form.put(FormValue("cast", (args[0],), dtype, shape))
        if op in _PERMUTES:
            return self.permuted(args[0], _order(op, args, len(x.shape)), dtype, shape)
        return args[0] if x.shape == shape else self.reshaped(args[0], shape)

    def reshaped(self, x: Ref, shape: tuple[int, ...]) -> Ref:
        """x in another shape; of a chain of reshapes only the last counts."""
        value = self._value(x)
        while value.op == "reshape":
            x = value.args[0]
            value = self._value(x)
        if value.shape == shape:
            return x
        ones = tuple(size == 1 for size in shape) if _without(shape) == _without(value.shape) else None
        return self.form.put(FormValue("reshape", (x, ones), value.dtype, shape))

    def permuted(self, x: Ref, order: tuple[int, ...], dtype: str, shape: tuple[int, ...]) -> Ref:
        """x with its dimensions in another order; of a chain of them only the whole counts."""
        value = self._value(x)
        if value.op == "permute":
            inner = tuple(axis.index for axis in value.args[1])
            return self.permuted(value.args[0], tuple(inner[k] for k in order), dtype, shape)
        if order == tuple(range(len(order))):
            return x
        return self.form.put(FormValue("permute", (x, tuple(map(DimArgument, order))), dtype, shape))

    def _reduction(
        self, op: str, args: tuple[Argument, ...], words: Mapping[str, Argument], dtype: str, shape: tuple[int, ...]
    ) -> Ref:
        """Over sorted dimensions; one that keeps them is one that does not, and a reshape."""
        x, at = self._value(args[0]), _REDUCTIONS[op]
        rank = len(x.shape)
        given = words.get("dim", args[at] if len(args) > at else None)
        dims = (given,) if isinstance(given, int) and not isinstance(given, bool) else given or range(rank)
        over = sorted({d % max(rank, 1) for d in dims})
        kept = tuple(size for d, size in enumerate(x.shape) if d not in over)
        rest = tuple(a for k, a in enumerate(args[1:], 1) if k != at and not isinstance(a, bool))
        if op in ("var", "std"):
            flags = [a for a in args[1:] if isinstance(a, bool)]  # the first says whether n or n - 1 divides
            rest = (words.get("correction", int(flags[0]) if flags else 1),)
        made = self.form.put(FormValue(op, (args[0], tuple(map(DimArgument, over)), *rest), dtype, kept))
        return made if kept == shape else self.reshaped(made, shape)

    def _unexpanded(self, argument: Argument) -> Argument:
        """Broadcasting expands by itself, and adds leading dimensions."""
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
        """(a + b) + c is a + b + c, where nothing is rounded in between."""
        terms: list[Argument] = []
        for a in args:
            value = self._value(a) if isinstance(a, Ref) else None
            inner = value is not None and value.op == op and value.dtype == dtype and value.shape == shape
            terms += value.args if inner and value is not None else [a]
        return tuple(terms) if len(terms) <= _WIDEST else args

    def _axes(self, op: str, args: tuple[Argument, ...]) -> tuple[Argument, ...]:
        """The arguments that name dimensions, as such."""
        places = _AXES.get(op, ())
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
        return size if isinstance(size, int) else _evaluate(size, self.hints)

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


def _place(argument: Argument) -> tuple[int, str]:
    return (argument.id, "") if isinstance(argument, Ref) else (-1, repr(argument))


def _kind(dtype: str) -> str:
    return "float" if "float" in dtype else "bool" if dtype == "bool" else "int"


def _axis(argument: Argument, rank: int) -> Argument:
    if isinstance(argument, tuple):
        return tuple(_axis(item, rank) for item in argument)
    return DimArgument(argument % max(rank, 1)) if isinstance(argument, int) else argument


def _leading(inner: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a shape is another with ones before it."""
    extra = len(shape) - len(inner)
    return extra > 0 and all(size == 1 for size in shape[:extra]) and tuple(shape[extra:]) == tuple(inner)


def _without(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size != 1]


_PERMUTES = frozenset({"permute", "transpose", "t", "numpy_T", "mT", "adjoint", "movedim", "swapaxes", "swapdims"})


def _order(op: str, args: tuple[Argument, ...], rank: int) -> tuple[int, ...]:
    """Which dimension of the operand each of the result is."""
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


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def _evaluate(text: str, hints: Mapping[str, int]) -> int:
    """The value of a size expression at the captured sizes; -1 for one that cannot be read."""
    try:
        return _value(syntax.parse(text, mode="eval").body, hints)
    except (SyntaxError, KeyError, ZeroDivisionError, TypeError):
        return -1


def _value(node: ast.expr, hints: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return hints[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, hints)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATIONS[type(op)](_value(left, hints), _value(right, hints))
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=args):
            return (max if name == "max" else min)(_value(a, hints) for a in args)
    raise KeyError(type(node).__name__)
