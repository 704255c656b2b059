"""What graphs of all ways of tracing have in common: fx nodes as plain JSON types. Imports torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from hipwright.capture.graph import Input, Meta, Node, Size, Symbol
from hipwright.capture.package_operators import operator_name
from hipwright.capture.value_dependent import ValueDependentSize, at_node
from hipwright.errors import TaskError
from hipwright.torchio import NAMES

_SMALL_CONSTANT = 1024  # elements, which become text
_SIZE = re.compile(r"[\w\s+\-*/%(),]*\Z")
_RELATION = re.compile(
    r"(?:(?P<call>Eq|Ne)\((?P<a>[^,]+), (?P<b>[^,]+)\)|(?P<left>[^<>=]+?) (?P<op><=?|>=?) (?P<right>[^<>=]+))\Z"
)

UNSAID = frozenset({"device", "pin_memory", "layout", "path"})
"""Keywords that a graph leaves out: where a result lies, and the order of an einsum's products, which torch chooses
where the package opt_einsum is installed and no program can give.
"""


def _readable(expression: Any, names: Mapping[str, str]) -> str:
    """A condition with the inputs' sizes in place of the tracer's symbols."""
    return re.sub(r"\b[su]\d+\b", lambda m: names.get(m[0], "a value of a tensor"), str(expression))


class Builder:
    """Turns fx nodes into those of a Graph. symbols and guards grow as inputs are bound.

    taken: names of nodes, which no symbol may have.
    """

    def __init__(self, names: Sequence[str], dynamic: bool, taken: Iterable[str] = ()) -> None:
        self.names = names
        self.dynamic = dynamic
        self.taken = {*names, *taken}
        self.rename: dict[str, str] = {}
        self.symbols: list[Symbol] = []
        self.guards: list[str] = []

    def constant(self, name: str, access: str, tensor: Any) -> Input:
        """A small tensor that the forward makes of Python numbers. TaskError for a large one."""
        if tensor is None or tensor.numel() > _SMALL_CONSTANT:
            size = "without values" if tensor is None else f"of {tensor.numel()} elements"
            raise TaskError(f"cannot capture: the forward builds a constant {size}", hint="register a buffer")
        if tensor.is_complex():
            raise TaskError(
                f"cannot capture: the forward builds a constant of {tensor.dtype}", hint="register a buffer"
            )
        return Input(name=name, kind="const", access=access, meta=self.meta(tensor), value=self.arg(tensor.tolist()))

    def relation(self, expression: Any) -> str:
        """A condition on sizes as plan text. ValueError for one that cannot be written."""
        found = _RELATION.match(str(expression))
        if found is None:
            raise ValueError(f"a program cannot test the condition {_readable(expression, self.rename)} on its sizes")
        if found["call"]:
            sides, sign = (found["a"], found["b"]), {"Eq": "==", "Ne": "!="}[found["call"]]
        else:
            sides, sign = (found["left"], found["right"]), found["op"]
        left, right = (self.size(side) for side in sides)
        return f"{left} {sign} {right}"

    def guard_scalar(self, access: str, leaf: Any) -> None:
        """A number or string among the inputs: the program holds for that one."""
        if isinstance(leaf, (bool, int, float, str)):
            self.guards.append(f"{access} == {leaf!r}")

    def bind(self, access: str, value: torch.Tensor, leaf: torch.Tensor) -> None:
        """Name the symbols an input's shape introduces, and guard the sizes that export fixed."""
        for i, size in enumerate(value.shape):
            spelled = f"{access}.shape[{i}]"
            if isinstance(size, int):
                self.guards.append(f"{spelled} == {size}")
                continue
            text = str(size.node.expr)
            if text.isidentifier() and text not in self.rename:
                name = f"{re.sub(r'[^0-9a-zA-Z]+', '_', access).strip('_')}_{i}"
                while name in self.taken:
                    name += "_"
                self.rename[text] = name
                self.symbols.append(Symbol(name=name, access=spelled, hint=int(leaf.shape[i])))
            else:
                self.guards.append(f"{spelled} == {self.size(size)}")

    def is_size(self, node: Any) -> bool:
        """Whether a node is a host number rather than a tensor."""
        value = node.meta.get("val")
        return value is None or isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))

    def size(self, size: Any) -> Size:
        """A size over the graph's symbols, or an integer. ValueError for one that cannot be written."""
        if isinstance(size, int):
            return size
        text = str(size.node.expr if hasattr(size, "node") else size)
        text = re.sub(r"\b[su]\d+\b", lambda m: self.rename.get(m[0], "?"), text)
        text = text.replace("Max(", "max(").replace("Min(", "min(")
        if "?" in text:
            raise ValueDependentSize("the size of its result depends on the values of a tensor")
        if not _SIZE.match(text) or re.search(r"\b(?!max\b|min\b)[A-Za-z]\w*\(", text):
            raise ValueError(f"no program computes the size {text}: they add, multiply, divide, and take min and max")
        return int(text) if text.isdigit() else text

    def meta(self, value: torch.Tensor) -> Meta:
        """A tensor's type."""
        return Meta(
            dtype=named(value.dtype),
            shape=tuple(self.size(s) for s in value.shape),
            stride=tuple(self.size(s) for s in value.stride()),
        )

    def node(self, node: Any) -> Node:
        """One operator call."""
        value = node.meta.get("val")
        values = value if isinstance(value, (tuple, list)) else (value,)
        try:
            outs = tuple(self.meta(v) if isinstance(v, torch.Tensor) else None for v in values)
        except ValueError as error:
            raise type(error)(f"{at_node(node) or node.name}: {error}") from None
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        return Node(
            name=node.name,
            op=operator_name(node),
            args=tuple(self.arg(a) for a in node.args),
            kwargs={name: self.arg(a) for name, a in node.kwargs.items() if name not in UNSAID},
            outs=outs,
            module=stack[-1][0] if stack and isinstance(stack[-1][0], str) else "",
            listed=isinstance(value, (tuple, list)) and len(value) == 1,
        )

    def arg(self, value: Any) -> Any:
        """An argument as plain JSON types. ValueError for one that cannot be written."""
        if isinstance(value, torch.fx.Node):
            inner = value.meta.get("val")
            if isinstance(inner, (torch.Tensor, tuple, list)):
                return {"node": value.name}
            return {"size": str(self.size(inner))} if isinstance(inner, torch.SymInt) else self.arg(inner)
        if isinstance(value, (list, tuple)):
            return [self.arg(item) for item in value]
        if isinstance(value, torch.dtype):
            return {"dtype": named(value)}
        if isinstance(value, torch.SymInt):
            return {"size": str(self.size(value))}
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            return {"float": repr(value)}
        if isinstance(value, complex):
            return {"complex": repr(value)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (torch.memory_format, torch.layout, torch.device)):
            return str(value)
        if isinstance(value, torch.Generator) or type(value).__name__ == "CustomObjArgument":
            raise TaskError(
                "cannot capture: an operator is given an object, such as a torch.Generator of the module's own",
                hint="draw from torch's default generator",
            )
        raise ValueError(f"an argument that cannot be written: {type(value).__name__}")


def calls_of(graph: torch.fx.Graph) -> list[str]:
    """The names of a graph's calls."""
    return [node.name for node in graph.nodes if node.op == "call_function"]


def same_shapes(one: torch.fx.Node, other: torch.fx.Node) -> bool:
    """Whether the values of two nodes have the same sizes, as symbols."""
    shapes = [list(map(str, node.meta["val"].shape)) for node in (one, other)]
    return bool(shapes[0] == shapes[1])


def named(dtype: torch.dtype) -> str:
    """A dtype's name. TaskError for one that no program can hold."""
    if dtype not in NAMES:
        raise TaskError(f"cannot capture: a tensor of {dtype}", hint=f"supported: {', '.join(NAMES.values())}")
    return NAMES[dtype]


def access_of(path: Sequence[Any], names: Sequence[str]) -> str:
    """`(args[0])['mask']` -> `x['mask']`."""
    text = str(names[path[0].idx])
    for key in path[1:]:
        text += f"[{key.idx}]" if hasattr(key, "idx") else f"[{key.key!r}]"
    return text


def nest(value: Any) -> Any:
    """The outputs' nesting in the argument language: tuples as {"tuple": [...]}, dicts as {"map": [[key, value]]}."""
    if isinstance(value, dict) and not ({"node", "size", "float", "dtype"} & set(value)):
        return {"map": [[str(k), nest(v)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [nest(v) for v in value]}
    if isinstance(value, list):
        return [nest(v) for v in value]
    return value
