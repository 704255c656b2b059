"""Some operators of a captured graph as a task file of their own: the reproducer of a fault (docs/search.md).

The file holds the operators, the views between and before them, and tensors of the captured shapes, dtypes and
strides. Values are drawn anew: nothing of the module's weights or of its inputs' values is kept. Torch-free.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from hipwright.capture.graph import Graph, Input, Meta, Node, Size, references, short
from hipwright.engine.partition.readers import VIEWS
from hipwright.engine.plan.spelling import PYTHON_NAMES, library_name, spell

LIMIT = 20_000
"""Characters of the file, at most."""
_WORD = re.compile(r"[A-Za-z_]\w*")
_FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})
_POSITIVE = frozenset({"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "pow", "div"})
"""Operators of which an operand is drawn from positive numbers: they have no value, or a huge one, at others."""
_INDEXED = {
    "embedding": 0,
    "embedding_bag": 0,
    "index": 0,
    "index_select": 0,
    "gather": 0,
    "take": 0,
    "take_along_dim": 0,
    "scatter": 0,
    "scatter_add": 0,
    "scatter_reduce": 0,
    "index_add": 0,
    "index_copy": 0,
    "index_put": 0,
    "cross_entropy_loss": 0,
    "nll_loss": 0,
    "nll_loss_nd": 0,
}
"""Operators that read integers as indices, with the place of the tensor that they index."""
_INTEGERS = 8
"""Integers that are no index are drawn below this."""


class NoExcerpt(ValueError):
    """The operators cannot be written as a file of their own; the message says why."""


@dataclass
class Excerpt:
    """The operators of a file, in order, with the values that they read and those that the file returns."""

    graph: Graph
    nodes: list[Node]
    read: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)


def task_text(graph: Graph, names: Collection[str]) -> str:
    """The task file of the operators with these names. Raises NoExcerpt where there is none, or a large one."""
    part = excerpt(graph, names)
    text = _Writer(part).text()
    if len(text) > LIMIT:
        raise NoExcerpt(f"a file of {len(text)} characters; {LIMIT} at most")
    return text


def excerpt(graph: Graph, names: Collection[str]) -> Excerpt:
    """The operators with these names, all on a way from one to another, and the views through which they read."""
    nodes = {node.name: node for node in graph.nodes}
    chosen = {name for name in names if name in nodes}
    if not chosen:
        raise NoExcerpt("none of the operators is in the graph")
    chosen = _with_items(graph, _convex(graph, chosen))
    chosen |= _views_before(nodes, chosen)
    part = Excerpt(graph, [node for node in graph.nodes if node.name in chosen])
    used = [ref for node in part.nodes for ref in _read(node)]
    part.read = [ref for ref in dict.fromkeys(used) if ref not in chosen]
    outside = {ref for node in graph.nodes if node.name not in chosen for ref in _read(node)}
    outside |= set(references(graph.output))
    updates = {mutation.node for mutation in graph.mutations}
    single = [node.name for node in part.nodes if len(node.outs) == 1 or node.op == "getitem"]
    part.returned = [name for name in single if name in outside]
    part.returned = part.returned or [name for name in single if name not in used and name not in updates]
    if not (part.returned or single):
        raise NoExcerpt("the operators give no tensor")
    part.returned = part.returned or single[-1:]
    return part


def _read(node: Node) -> Iterable[str]:
    """Names of the values that an operator reads."""
    return [*references(list(node.args)), *references(list(node.kwargs.values()))]


def _convex(graph: Graph, chosen: set[str]) -> set[str]:
    """The chosen operators, and those between two of them."""
    after, before = set(chosen), set(chosen)
    for node in graph.nodes:
        if after & set(_read(node)):
            after.add(node.name)
    for node in reversed(graph.nodes):
        if node.name in before:
            before |= set(_read(node))
    return {node.name for node in graph.nodes if node.name in after & before}


def _with_items(graph: Graph, chosen: set[str]) -> set[str]:
    """The chosen operators, and the single results of those that give several."""
    return chosen | {node.name for node in graph.nodes if node.op == "getitem" and set(_read(node)) <= chosen}


def _views_before(nodes: Mapping[str, Node], chosen: set[str]) -> set[str]:
    """Views, and tensors made of sizes alone, from which the chosen operators read."""
    found: set[str] = set()
    todo = [ref for name in chosen for ref in _read(nodes[name])]
    while todo:
        node = nodes.get(todo.pop())
        if node is None or node.name in chosen | found:
            continue
        refs = list(_read(node))
        if not refs or (short(node.op) in VIEWS and len(node.outs) == 1):
            found.add(node.name)
            todo += refs
    return found


class _Writer:
    """The text of one excerpt."""

    def __init__(self, part: Excerpt) -> None:
        self.part = part
        self.inputs = {tensor.name: tensor for tensor in part.graph.inputs}
        self.metas = self._metas()
        self.hints = {symbol.name: symbol.hint for symbol in part.graph.symbols}
        self.arguments = [name for name in part.read if not self._state(name) and not self._constant(name)]
        self.bound = self._bound()
        self.names = self._names()

    def text(self) -> str:
        """The file."""
        drawn = [f"        {self._drawn(name)}," for name in self.arguments]
        state = [name for name in self.part.read if self._state(name)]
        made = [f"        {self._made(self.inputs[name], self.names[name])}" for name in state]
        forward = [f"        {line}" for line in self._forward()]
        arguments = ", ".join(["self", *(self.names[name] for name in self.arguments)])
        init = ["    def __init__(self):", "        super().__init__()", *made, ""] if made else []
        lines = [
            "import math",
            "",
            "import torch",
            "import torch.nn.functional as F",
            "",
            "",
            "class Model(torch.nn.Module):",
            *init,
            f"    def forward({arguments}):",
            *forward,
            "",
            "",
            "def get_inputs():",
            "    return [",
            *drawn,
            "    ]",
        ]
        body = "\n".join(lines[4:])
        used = [line for line in lines[:4] if not line or line == "import torch" or _imported(line, body)]
        return "\n".join([*used, body]).lstrip("\n") + "\n"

    def _metas(self) -> dict[str, Meta]:
        """The types of the values that the operators read."""
        metas = {tensor.name: tensor.meta for tensor in self.part.graph.inputs}
        for node in self.part.graph.nodes:
            if node.outs and (meta := node.outs[0]) is not None and (len(node.outs) == 1 or node.op == "getitem"):
                metas[node.name] = meta
        if missing := [name for name in self.part.read if name not in metas]:
            raise NoExcerpt(f"a tuple is read: {missing[0]}")
        return metas

    def _state(self, name: str) -> bool:
        tensor = self.inputs.get(name)
        return tensor is not None and tensor.kind != "input" and tensor.value is None

    def _constant(self, name: str) -> bool:
        return name in self.inputs and self.inputs[name].value is not None

    def _bound(self) -> dict[str, tuple[str, int]]:
        """The sizes that the file reads from an argument's shape: (argument, dimension) by symbol."""
        found: dict[str, tuple[str, int]] = {}
        for name in self.arguments:
            for place, size in enumerate(self.metas[name].shape):
                if isinstance(size, str) and size in self.hints:
                    found.setdefault(size, (name, place))
        return found

    def _names(self) -> dict[str, str]:
        """The file's name of each value."""
        taken = {*PYTHON_NAMES, *self.bound}
        names: dict[str, str] = {}
        for name in [*self.part.read, *(node.name for node in self.part.nodes)]:
            tensor = self.inputs.get(name)
            path = tensor.access.removeprefix("self.") if tensor is not None and self._state(name) else name
            local = re.sub(r"\W+", "_", path).strip("_") or "value"
            local = f"x{local}" if local[0].isdigit() else local
            while local in taken:
                local += "_"
            taken.add(local)
            names[name] = local
        return names

    # ---------------------------------------------------------------- forward

    def _forward(self) -> Iterable[str]:
        lines = [
            f"{self.names[name]} = torch.tensor({value}, dtype=torch.{self.metas[name].dtype})"
            for name in self.part.read
            if self._constant(name)
            for value in [self._spelled(self.inputs[name].value)]
        ]
        for node in self.part.nodes:
            args = [self._spelled(a) for a in node.args]
            if node.op == "getitem":
                lines.append(f"{self.names[node.name]} = {args[0]}[{args[1]}]")
                continue
            args += [f"{key}={self._spelled(value)}" for key, value in node.kwargs.items()]
            lines.append(f"{self.names[node.name]} = {library_name(node.op)}({', '.join(args)})")
        lines += self._updates()
        results = [self._value(name) for name in self.part.returned]
        lines.append(f"return {results[0]}" if len(results) == 1 else f"return {', '.join(results)}")
        words = {word for line in lines for word in _WORD.findall(line)}
        sizes = [
            f"{symbol} = {self.names[name]}.shape[{place}]"
            for symbol, (name, place) in self.bound.items()
            if symbol in words
        ]
        return [*sizes, *lines]

    def _updates(self) -> list[str]:
        """The buffers that the operators overwrite."""
        chosen = {node.name for node in self.part.nodes}
        by_access = {tensor.access: tensor.name for tensor in self.part.graph.inputs}
        found = []
        for mutation in self.part.graph.mutations:
            buffer = by_access.get(mutation.access, "")
            if mutation.node in chosen and buffer in self.part.read:
                found.append(f"{self._value(buffer)}.copy_({self.names[mutation.node]})")
        return found

    def _value(self, name: str) -> str:
        return f"self.{self.names[name]}" if self._state(name) else self.names[name]

    def _spelled(self, argument: Any) -> str:
        return spell(self._sized(argument), self._value)

    def _sized(self, argument: Any) -> Any:
        """The argument with sizes as numbers where no argument's shape has them."""
        if isinstance(argument, dict):
            if "size" in argument and set(_WORD.findall(argument["size"])) - {"min", "max", *self.bound}:
                return self._number(argument["size"])
            return argument
        return [self._sized(item) for item in argument] if isinstance(argument, (list, tuple)) else argument

    # ---------------------------------------------------------------- tensors

    def _number(self, size: Size) -> int:
        """A size when captured."""
        if isinstance(size, int):
            return size
        try:
            return int(eval(size, {"__builtins__": {}}, {"min": min, "max": max, **self.hints}))
        except (ArithmeticError, NameError, SyntaxError, TypeError) as error:
            raise NoExcerpt(f"a size that has no value: {size}") from error

    def _made(self, tensor: Input, name: str) -> str:
        """The statement that makes a parameter or buffer."""
        drawn = self._values(tensor.name, state=True)
        if tensor.kind == "param" and tensor.meta.dtype in _FLOATS:
            return f"self.{name} = torch.nn.Parameter({drawn})"
        return f'self.register_buffer("{name}", {drawn})'

    def _drawn(self, name: str) -> str:
        return self._values(name, state=False)

    def _values(self, name: str, *, state: bool) -> str:
        """An expression of random values with a tensor's shape, strides and dtype."""
        meta = self.metas[name]
        shape = tuple(self._number(size) for size in meta.shape)
        stride = tuple(self._number(size) for size in meta.stride) if meta.stride else _dense(shape)
        dense = stride == _dense(shape) or prod(shape) == 0
        kept = shape if dense else (1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True)),)
        values = self._state_values(meta, kept, shape) if state else self._random(name, meta, kept)
        return values if dense else f"{values}.as_strided({shape}, {stride})"

    def _random(self, name: str, meta: Meta, shape: tuple[int, ...]) -> str:
        dtype = "" if meta.dtype == "float32" else f", dtype=torch.{meta.dtype}"
        if meta.dtype in _FLOATS:
            positive = any(short(node.op) in _POSITIVE and name in _read(node) for node in self.part.nodes)
            return f"(torch.rand({shape}{dtype}) + 0.1)" if positive else f"torch.randn({shape}{dtype})"
        if meta.dtype == "bool":
            return f"(torch.rand({shape}) < 0.5)"
        if "int" in meta.dtype:
            return f"torch.randint(0, {self._below(name)}, {shape}{dtype})"
        return f"torch.randn({shape}).to(torch.{meta.dtype})"

    def _state_values(self, meta: Meta, kept: tuple[int, ...], shape: tuple[int, ...]) -> str:
        """A parameter's values: verification puts noise around a constant; a matrix keeps its rows' sums near 1."""
        if meta.dtype not in _FLOATS:
            return f"torch.zeros({kept}, dtype=torch.{meta.dtype})"
        dtype = "" if meta.dtype == "float32" else f", dtype=torch.{meta.dtype}"
        if len(shape) < 2:
            return f"torch.ones({kept}{dtype})"
        return f"torch.randn({kept}{dtype}) * {max(prod(shape[1:]), 1) ** -0.5:.4g}"

    def _below(self, name: str) -> int:
        """The bound of an integer's values: the least size that an operator indexes with it."""
        bounds = [_INTEGERS]
        for node in self.part.nodes:
            place = _INDEXED.get(short(node.op))
            if place is None or name not in _read(node) or not isinstance(node.args[place], dict):
                continue
            indexed = self.metas.get(node.args[place].get("node", ""))
            bounds += [self._number(size) for size in indexed.shape] if indexed is not None else []
        return max(min(bounds), 1)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides; torch counts a size of 0 as 1."""
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= max(size, 1)
    return tuple(reversed(steps))


def _imported(line: str, body: str) -> bool:
    """Whether a file with this body needs the import."""
    return f"{line.split()[-1]}." in body
