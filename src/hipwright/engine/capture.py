"""A module and its inputs become a graph. Runs in the task host; imports torch.

torch.export traces on fake tensors (https://docs.pytorch.org/docs/stable/export.html). The table of decompositions is
empty on purpose: operators stay whole (an LSTM is one node), only mutation is made functional.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from hipwright.engine.assumptions import assumptions
from hipwright.engine.graph import Graph, Input, Meta, Mutation, Node, Size, Symbol
from hipwright.errors import TaskError
from hipwright.torchio import NAMES

_SMALL_CONSTANT = 64
_SIZE = re.compile(r"[\w\s+\-*/%(),]*\Z")


def capture(model: torch.nn.Module, args: Sequence[Any]) -> dict[str, Any]:
    """The graph of `model(*args)` as plain JSON types: shape-generic where export allows, else static.

    Raises TaskError ("cannot capture: why") where Python control flow depends on tensor values.
    """
    names = _parameter_names(model, len(args))
    problems = []
    lifted = pytree.tree_map(_lift, tuple(args))
    generic = [(lifted, True)] if any(type(leaf) is float for leaf in pytree.tree_leaves(tuple(args))) else []
    for given, dynamic in (*generic, (tuple(args), True), (tuple(args), False)):
        try:
            exported = _export(model, given, dynamic)
            return _Builder(exported, names, args, dynamic).graph().to_dict()
        except Exception as problem:  # export raises many types for "this cannot be traced"
            problems.append(f"{type(problem).__name__}: {str(problem).strip().splitlines()[0][:300]}")
    raise TaskError(f"cannot capture: {problems[-1]}", hint="the engine needs a forward without data-dependent Python")


def _lift(leaf: Any) -> Any:
    """A float argument as a 0-d tensor: export would fix a number, and the program would hold for that one only."""
    return torch.tensor(leaf, dtype=torch.float64) if type(leaf) is float else leaf


def _export(model: torch.nn.Module, args: tuple[Any, ...], dynamic: bool) -> ExportedProgram:
    shapes = None
    if dynamic:
        shapes = pytree.tree_map(
            lambda leaf: dict.fromkeys(range(leaf.ndim), Dim.AUTO) if isinstance(leaf, torch.Tensor) else None,
            dict(inspect.signature(model.forward).bind(*args).arguments),
        )
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        exported = torch.export.export(model, args, dynamic_shapes=shapes, strict=False)
        traced = _ranks(exported)
        exported = exported.run_decompositions({})
    # torch 2.13 gives nll_loss_nd without reduction the shape () here, and all that follows, when the batch is free
    for op, ranks in _ranks(exported).items():
        before = traced.get(op, ranks)  # a decomposition may add calls of an operator: only equal counts are compared
        if len(before) == len(ranks) and before != ranks:
            raise TaskError(f"torch.export loses dimensions of {op}")
    return exported


def _ranks(exported: ExportedProgram) -> dict[str, list[int]]:
    """By operator, the ranks of its calls that give one tensor, in order."""
    found: dict[str, list[int]] = {}
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and isinstance(value, torch.Tensor):
            found.setdefault(str(node.target), []).append(value.ndim)
    return found


def _parameter_names(model: torch.nn.Module, count: int) -> list[str]:
    parameters = list(inspect.signature(model.forward).parameters.values())
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "x")
    return (names + [f"{rest}_{i}" for i in range(count)])[:count]


class _Builder:
    """Turns one ExportedProgram into a Graph."""

    def __init__(self, exported: ExportedProgram, names: Sequence[str], args: Sequence[Any], dynamic: bool) -> None:
        self.exported = exported
        self.names = names
        self.args = args
        self.dynamic = dynamic
        self.rename: dict[str, str] = {}
        self.symbols: list[Symbol] = []
        self.guards: list[str] = []

    def graph(self) -> Graph:
        signature = self.exported.graph_signature
        inputs = self._inputs()
        self.guards += self._assumed()
        nodes = []
        output: Any = None
        for node in self.exported.graph.nodes:
            if node.op == "output":
                output = node.args[0]
            elif node.op == "call_function" and not self._is_size(node):
                nodes.append(self._node(node))
        mutations, results = [], []
        for spec, value in zip(signature.output_specs, output, strict=True):
            kind = spec.kind.name
            if kind == "BUFFER_MUTATION":
                mutations.append(Mutation(access=f"self.{spec.target}", node=value.name))
            elif kind == "USER_OUTPUT":
                results.append(self._arg(value))
            elif kind == "USER_INPUT_MUTATION":
                raise TaskError("cannot capture: the forward writes into its input")
        nested = pytree.tree_unflatten(results, self.exported.call_spec.out_spec)
        return Graph(
            parameters=tuple(self.names),
            inputs=tuple(inputs),
            nodes=tuple(nodes),
            output=_nest(nested),
            symbols=tuple(self.symbols),
            guards=tuple(self.guards),
            mutations=tuple(mutations),
            dynamic=bool(self.symbols),
        )

    def _inputs(self) -> list[Input]:
        placeholders = [node for node in self.exported.graph.nodes if node.op == "placeholder"]
        leaves = [
            (_access(path, self.names), leaf) for path, leaf in pytree.tree_flatten_with_path(tuple(self.args))[0]
        ]
        user = iter(leaves)
        found = []
        for node, spec in zip(placeholders, self.exported.graph_signature.input_specs, strict=True):
            value = node.meta.get("val")
            if spec.kind.name == "USER_INPUT":
                access, leaf = next(user)
                if not isinstance(value, torch.Tensor):
                    self._guard_scalar(access, leaf)
                    continue
                if isinstance(leaf, torch.Tensor):
                    self._bind(access, value, leaf)
                else:
                    access = f"torch.full((), {access}, dtype=torch.float64)"
                found.append(Input(name=node.name, kind="input", access=access, meta=self._meta(value)))
            elif isinstance(value, torch.Tensor):
                found.append(self._state(node, spec, value))
        return found

    def _state(self, node: Any, spec: Any, value: torch.Tensor) -> Input:
        kind = {"PARAMETER": "param", "BUFFER": "buffer"}.get(spec.kind.name, "const")
        access, constant = f"self.{spec.target}", None
        if kind == "const":
            tensor = self.exported.constants.get(spec.target)
            if spec.target.startswith("lifted_tensor") or spec.target.startswith("_tensor_constant"):
                if tensor is None or tensor.numel() > _SMALL_CONSTANT:
                    raise TaskError("cannot capture: the forward builds a large constant tensor")
                constant = tensor.tolist()
        return Input(name=node.name, kind=kind, access=access, meta=self._meta(value), value=constant)  # type: ignore[arg-type]

    def _guard_scalar(self, access: str, leaf: Any) -> None:
        if isinstance(leaf, (bool, int, float, str)):
            self.guards.append(f"{access} == {leaf!r}")

    def _bind(self, access: str, value: torch.Tensor, leaf: torch.Tensor) -> None:
        """Name the symbols an input's shape introduces, and guard the sizes that export fixed."""
        for i, size in enumerate(value.shape):
            spelled = f"{access}.shape[{i}]"
            if isinstance(size, int):
                self.guards.append(f"{spelled} == {size}")
                continue
            text = str(size.node.expr)
            if text.isidentifier() and text not in self.rename:
                name = f"{re.sub(r'[^0-9a-zA-Z]+', '_', access).strip('_')}_{i}"
                self.rename[text] = name
                self.symbols.append(Symbol(name=name, access=spelled, hint=int(leaf.shape[i])))
            else:
                self.guards.append(f"{spelled} == {self._size(size)}")

    def _assumed(self) -> list[str]:
        """Conditions on sizes under which export's path is the module's."""
        values = (node.meta.get("val") for node in self.exported.graph.nodes)
        tensor = next((value for value in values if isinstance(value, torch.Tensor)), None)
        env = getattr(getattr(tensor, "fake_mode", None), "shape_env", None)
        if env is None or not self.symbols:
            return []
        return assumptions(env.guards, self._expression)

    def _expression(self, expression: Any) -> str:
        """A size as text; ValueError where it holds a symbol that no input gives."""
        if set(map(str, expression.free_symbols)) - self.rename.keys():
            raise ValueError(f"a size that no input gives: {expression}")
        return str(self._size(int(expression) if expression.is_Integer else expression))

    def _is_size(self, node: Any) -> bool:
        value = node.meta.get("val")
        return value is None or isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))

    def _size(self, size: Any) -> Size:
        if isinstance(size, int):
            return size
        text = str(size.node.expr) if hasattr(size, "node") else str(size)
        text = re.sub(r"\b[su]\d+\b", lambda m: self.rename.get(m[0], "?"), text)
        text = text.replace("Max(", "max(").replace("Min(", "min(")
        if not _SIZE.match(text) or re.search(r"\b(?!max\b|min\b)[A-Za-z]\w*\(", text):
            raise ValueError(f"a size that cannot be printed: {text}")
        return text

    def _meta(self, value: torch.Tensor) -> Meta:
        if value.dtype not in NAMES:
            raise TaskError(f"cannot capture: a tensor of {value.dtype}")
        return Meta(
            dtype=NAMES[value.dtype],
            shape=tuple(self._size(s) for s in value.shape),
            stride=tuple(self._size(s) for s in value.stride()),
        )

    def _node(self, node: Any) -> Node:
        value = node.meta.get("val")
        values = value if isinstance(value, (tuple, list)) else (value,)
        outs = tuple(self._meta(v) if isinstance(v, torch.Tensor) else None for v in values)
        op = "getitem" if node.target.__name__ == "getitem" else str(node.target)
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        return Node(
            name=node.name,
            op=op,
            args=tuple(self._arg(a) for a in node.args),
            kwargs={k: self._arg(a) for k, a in node.kwargs.items() if k not in ("device", "pin_memory", "layout")},
            outs=outs,
            module=stack[-1][0] if stack and isinstance(stack[-1][0], str) else "",
        )

    def _arg(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            inner = value.meta.get("val")
            if isinstance(inner, (torch.Tensor, tuple, list)):
                return {"node": value.name}
            return {"size": str(self._size(inner))} if isinstance(inner, torch.SymInt) else self._arg(inner)
        if isinstance(value, (list, tuple)):
            return [self._arg(item) for item in value]
        if isinstance(value, torch.dtype):
            return {"dtype": NAMES[value]}
        if isinstance(value, torch.SymInt):
            return {"size": str(self._size(value))}
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            return {"float": repr(value)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (torch.memory_format, torch.layout, torch.device)):
            return str(value)
        raise ValueError(f"an argument that cannot be written: {type(value).__name__}")


def _access(path: Sequence[Any], names: Sequence[str]) -> str:
    """`(args[0])['mask']` -> `x['mask']`."""
    text = str(names[path[0].idx])
    for key in path[1:]:
        text += f"[{key.idx}]" if hasattr(key, "idx") else f"[{key.key!r}]"
    return text


def _nest(value: Any) -> Any:
    """The outputs' nesting in the argument language: tuples as {"tuple": [...]}, dicts as {"map": [[key, value]]}."""
    if isinstance(value, dict) and not ({"node", "size", "float", "dtype"} & set(value)):
        return {"map": [[str(k), _nest(v)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_nest(v) for v in value]}
    if isinstance(value, list):
        return [_nest(v) for v in value]
    return value
