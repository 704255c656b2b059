"""Converts expressions of ModelNew.forward to expressions of a plan.

Statements that must precede an expression (a launch, a temporary) are written through its `ForwardContext`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, Protocol

from hipwright import syntax
from hipwright.program.convert.cpp_host import HostTranslator
from hipwright.program.convert.cpp_text import CppItem, Inconvertible
from hipwright.program.convert.forward_state import Attributes
from hipwright.program.convert.plan_writer import PlanLines
from hipwright.program.language import RESERVED

_CONV = (
    "F.{name}({{x}}, self.{{n}}.weight, self.{{n}}.bias, self.{{n}}.stride, self.{{n}}.padding, self.{{n}}.dilation, "
    "self.{{n}}.groups)"
)
_FUNCTIONAL = {
    "Linear": "F.linear({x}, self.{n}.weight, self.{n}.bias)",
    **{f"Conv{d}d": _CONV.format(name=f"conv{d}d") for d in (1, 2, 3)},
    **{
        f"ConvTranspose{d}d": f"F.conv_transpose{d}d({{x}}, self.{{n}}.weight, self.{{n}}.bias, self.{{n}}.stride, "
        "self.{n}.padding, self.{n}.output_padding, self.{n}.groups, self.{n}.dilation)"
        for d in (1, 2, 3)
    },
    "LayerNorm": "F.layer_norm({x}, self.{n}.normalized_shape, self.{n}.weight, self.{n}.bias, self.{n}.eps)",
    "GroupNorm": "F.group_norm({x}, self.{n}.num_groups, self.{n}.weight, self.{n}.bias, self.{n}.eps)",
    "Embedding": "F.embedding({x}, self.{n}.weight)",
    "ReLU": "F.relu({x})",
    "Sigmoid": "torch.sigmoid({x})",
    "Tanh": "torch.tanh({x})",
    "SiLU": "F.silu({x})",
    "GELU": "F.gelu({x}, approximate=self.{n}.approximate)",
    "Softplus": "F.softplus({x})",
    "Identity": "{x}",
    "Mish": "F.mish({x})",
    "Hardswish": "F.hardswish({x})",
    "Softmax": "torch.softmax({x}, self.{n}.dim)",
    "LeakyReLU": "F.leaky_relu({x}, self.{n}.negative_slope)",
    "ELU": "F.elu({x}, self.{n}.alpha)",
    **{
        f"MaxPool{d}d": f"F.max_pool{d}d({{x}}, self.{{n}}.kernel_size, self.{{n}}.stride, self.{{n}}.padding, "
        "self.{n}.dilation, self.{n}.ceil_mode)"
        for d in (1, 2, 3)
    },
    "AvgPool2d": "F.avg_pool2d({x}, self.{n}.kernel_size, self.{n}.stride, self.{n}.padding, self.{n}.ceil_mode)",
    "AdaptiveAvgPool2d": "F.adaptive_avg_pool2d({x}, self.{n}.output_size)",
    "Flatten": "torch.flatten({x}, self.{n}.start_dim, self.{n}.end_dim)",
}
_DROPPED_METHODS = ("cuda", "detach", "requires_grad_", "clone_if_needed")


@dataclass
class Extensions:
    """The extensions of a file by index.

    names: "ext" or "self.ext" -> index; aliases: "f" or "self.op", assigned once, -> index and exported name;
    functions: for each extension, exported name -> host function.
    """

    names: dict[str, int]
    aliases: dict[str, tuple[int, str]]
    functions: list[dict[str, CppItem]]
    hosts: list[HostTranslator]


class ForwardContext(Protocol):
    """What an expression needs of the forward that contains it: the file's names, and where statements go."""

    attributes: Attributes
    extensions: Extensions
    writer: PlanLines
    constants: dict[str, Any]
    methods: dict[str, ast.FunctionDef]
    functions: dict[str, ast.FunctionDef]
    classes: dict[str, ast.ClassDef]

    def local(self, text: str) -> str:
        """A name for a value that is used more than once."""
        ...

    def extension_call(self, index: int, name: str, args: list[str], keywords: dict[str, str]) -> str:
        """Writes a call of a host function inline; returns the text of its value."""
        ...

    def own_call(self, function: ast.FunctionDef, args: list[str], keywords: dict[str, str], skip: int) -> str:
        """Writes a call of a helper of the file inline; returns the text of its value."""
        ...


class Expression(ast.NodeTransformer):
    """Converts one expression of forward: names, attributes and calls become those of the plan."""

    def __init__(self, forward: ForwardContext, names: dict[str, str]) -> None:
        self.forward = forward
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Replaces locals by their plan names and constants of the file by their values."""
        if node.id in self.names:
            return _parsed(self.names[node.id])
        if node.id in self.forward.constants and node.id not in RESERVED:
            return ast.Constant(self.forward.constants[node.id])
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replaces self.x by a constant of __init__ or the reference's path of a parameter, and x.is_cuda by True."""
        path = _self_path(node)
        known = self.forward.attributes
        if path:
            root = path.split(".")[0]
            if path in known.constants:
                return _parsed(repr(_tupled(known.constants[path])))
            if path in known.renamed:
                return _parsed("self." + known.renamed[path])
            if f"self.{root}" in self.forward.extensions.names:
                raise Inconvertible(f"line {node.lineno}: an extension is used as a value")
            return node if path.split(".")[-1] != "data" else _parsed("self." + path.rpartition(".")[0])
        if node.attr in ("is_cuda", "is_hip"):
            return ast.Constant(True)
        if node.attr == "data":
            return self.converted(node.value)
        visited: ast.AST = self.generic_visit(node)
        return visited

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Converts a if b else c, neither side of which may need a statement."""
        return self.without_statements(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Folds `not` of a constant."""
        converted = self.generic_visit(node)
        assert isinstance(converted, ast.UnaryOp)
        if isinstance(converted.op, ast.Not) and isinstance(converted.operand, ast.Constant):
            return ast.Constant(not converted.operand.value)
        return converted

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Converts `and` and `or` without statements; folds constants."""
        converted = self.without_statements(node)
        assert isinstance(converted, ast.BoolOp)
        stops = isinstance(converted.op, ast.Or)
        remaining = [v for v in converted.values if not (isinstance(v, ast.Constant) and bool(v.value) is not stops)]
        decided = [v for v in remaining if isinstance(v, ast.Constant)]
        if decided or not remaining:
            return ast.Constant(stops if decided else not stops)
        return remaining[0] if len(remaining) == 1 else ast.BoolOp(converted.op, remaining)

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        """Converts a comprehension, whose loop variables are names of its own."""
        bound = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        outer, self.names = self.names, {**self.names, **{b: b for b in bound}}
        converted = self.without_statements(node)
        self.names = outer
        return converted

    def without_statements(self, node: ast.AST) -> ast.AST:
        """Converts a node. Raises Inconvertible where that needs a statement."""
        before = len(self.forward.writer.lines)
        converted = self.generic_visit(node)
        if len(self.forward.writer.lines) != before:
            raise Inconvertible("an extension is called inside a condition or a comprehension")
        return converted

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Converts calls of extensions, modules and helpers; drops calls that only move tensors to the device."""
        f, func = self.forward, node.func
        name = ast.unparse(func)
        owner, _, last = name.rpartition(".")
        of_extension = owner in f.extensions.names or name in f.extensions.aliases
        if of_extension and any(isinstance(a, ast.Starred) for a in node.args):
            raise Inconvertible(f"line {node.lineno}: *arguments of an extension")
        if name in f.extensions.aliases:
            index, function = f.extensions.aliases[name]
            return _parsed(f.extension_call(index, function, *self.argument_texts(node)))
        if owner in f.extensions.names:
            return _parsed(f.extension_call(f.extensions.names[owner], last, *self.argument_texts(node)))
        if name in f.functions and name not in ("cdiv", "next_pow2"):
            return _parsed(f.own_call(f.functions[name], *self.argument_texts(node), skip=0))
        if owner == "self" and last in f.methods:
            return _parsed(f.own_call(f.methods[last], *self.argument_texts(node), skip=1))
        if last == "apply" and owner in f.classes:
            inner = next(
                (n for n in f.classes[owner].body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None
            )
            if inner is not None:
                return _parsed(f.own_call(inner, *self.argument_texts(node), skip=1))
        if owner == "self" and last in f.attributes.modules:
            return self.module(last, node)
        if isinstance(func, ast.Attribute) and last in _DROPPED_METHODS:
            return self.converted(func.value)
        if (
            isinstance(func, ast.Attribute)
            and last == "to"
            and len(node.args) == 1
            and "device" in ast.unparse(node.args[0])
        ):
            return self.converted(func.value)
        converted = self.generic_visit(node)
        assert isinstance(converted, ast.Call)
        converted.keywords = [k for k in converted.keywords if k.arg != "device"]
        return converted

    def converted(self, node: ast.expr) -> ast.AST:
        """Converts an expression whose surrounding call or attribute is dropped."""
        found: ast.AST = self.visit(node)
        return found

    def argument_texts(self, node: ast.Call) -> tuple[list[str], dict[str, str]]:
        """The converted positional and keyword arguments, as text."""
        args = [ast.unparse(self.visit(a)) for a in node.args]
        return args, {k.arg: ast.unparse(self.visit(k.value)) for k in node.keywords if k.arg}

    def module(self, name: str, node: ast.Call) -> ast.AST:
        """Converts self.conv(x) to F.conv2d(x, self.conv.weight, ...)."""
        f = self.forward
        kind, _ = f.attributes.modules[name]
        if kind not in _FUNCTIONAL or len(node.args) != 1 or node.keywords:
            raise Inconvertible(f"line {node.lineno}: self.{name}(...), a {kind}")
        argument = f.local(ast.unparse(self.visit(node.args[0])))
        text = _FUNCTIONAL[kind].format(x=argument, n=name)
        for own, given in f.attributes.renamed.items():
            text = text.replace(f"self.{own},", f"self.{given},").replace(f"self.{own})", f"self.{given})")
            if own.startswith(f"{name}."):
                text = text.replace(f"self.{name}.", f"self.{given.rpartition('.')[0]}.")
        return _parsed(text)


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, (list, tuple)) else value


def _parsed(text: str) -> ast.expr:
    return syntax.parse(f"({text})", mode="eval").body


def _self_path(node: ast.expr) -> str:
    """ "a.b" for self.a.b, else ""."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed(parts)) if isinstance(node, ast.Name) and node.id == "self" else ""
