"""Converts expressions of C++ host code to expressions of a plan.

Every value has a kind (`host_value`), so that `/` keeps its meaning in C++.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hipwright.program.convert.cpp_calls import HostCallConverter
from hipwright.program.convert.cpp_expression_parser import Node
from hipwright.program.convert.cpp_text import Inconvertible
from hipwright.program.convert.host_value import (
    DTYPES,
    FALSE,
    NONE,
    OK,
    TRUE,
    HostValue,
    condition,
    number,
    of_type,
    tuple_text,
)
from hipwright.program.kernel_types import SCALARS, SIZES, VECTORS


class HostExpressionConverter(HostCallConverter):
    """Converts the expressions of one function."""

    def value(self, node: Node) -> HostValue:
        """Converts an expression. Raises Inconvertible."""
        match node[0]:
            case "num":
                return number(node[1])
            case "str":
                return HostValue("str", repr(node[1]))
            case "name":
                return self.named(node[1])
            case "call":
                return self.call(node)
            case "member" | "index" | "unary" | "cast" | "make" | "sizeof" | "binary" | "cond":
                found: HostValue = getattr(self, f"on_{node[0]}")(*node[1:])
                return found
            case "brace":
                items = [self.value(item) for item in node[1]]
                kinds = {item.kind for item in items}
                kind = "tensors" if "tensor" in kinds else "shape"
                return HostValue(kind, tuple_text([item.text for item in items]))
        raise Inconvertible(f"an expression of the form {node[0]}")

    # ------------------------------------------------------------ names and operators

    def named(self, name: str) -> HostValue:
        """Converts a variable, or a constant of torch."""
        if name in self.env:
            return self.env[name]
        plain = {
            "nullptr": NONE,
            "NULL": NONE,
            "true": TRUE,
            "false": FALSE,
            "cudaSuccess": OK,
            "hipSuccess": OK,
            "c10::nullopt": NONE,
            "at::nullopt": NONE,
            "std::nullopt": NONE,
            "torch::nullopt": NONE,
        }
        if name in plain:
            return plain[name]
        match = re.fullmatch(r"(?:(?:torch|at|c10)::)?(?:k|ScalarType::|at::k)(\w+)", name)
        if match and match[1] in DTYPES:
            return HostValue("dtype", f"torch.{DTYPES[match[1]]}")
        if match and match[1] in ("CUDA", "HIP", "Strided"):
            return HostValue("device", "None")
        if name in ("M_PI", "CUDART_PI_F"):
            return HostValue("float", "math.pi")
        if name in ("INFINITY", "CUDART_INF_F"):
            return HostValue("float", "math.inf")
        limit = re.fullmatch(r"cudaFunc\w+|hipFunc\w+", name)
        if limit:
            return OK
        raise Inconvertible(f"{name} is not known")

    def on_unary(self, op: str, inner: Node) -> HostValue:
        """Converts ! - + ~, and * of an optional."""
        value = self.value(inner)
        if op == "!":
            return condition(f"not ({value.text})", None if value.known is None else not value.known)
        if op in "-+~" and value.kind in ("int", "float"):
            return replace(value, text=f"({op}{value.text})", known=None)
        if op == "*" and value.kind in ("tensor", "any"):
            return value
        raise Inconvertible(f"{op} of a {value.kind}")

    def on_binary(self, op: str, left: Node, right: Node) -> HostValue:
        """Converts arithmetic, comparisons and logic."""
        a = self.value(left)
        if op in ("&&", "||"):
            return self.logic(op, a, right)
        b = self.value(right)
        if "ok" in (a.kind, b.kind):
            if op not in ("==", "!="):
                raise Inconvertible("arithmetic on an error code")
            return TRUE if op == "==" else FALSE
        if op in ("==", "!=", "<", ">", "<=", ">="):
            if a.kind == "device" or b.kind == "device":
                return TRUE if op == "==" else FALSE
            if NONE in (a, b):
                other = a if b == NONE else b
                return condition(f"{other.text} is {'' if op == '==' else 'not '}None")
            return condition(f"({a.text}) {op} ({b.text})")
        if a.kind in ("tensor", "any") or b.kind in ("tensor", "any"):
            if op in "+-*/" and "any" not in (a.kind, b.kind):
                return HostValue("tensor", f"(({a.text}) {op} ({b.text}))")
            raise Inconvertible(f"{op} on values whose kind is not known")
        if {a.kind, b.kind} <= {"int", "float", "bool"}:
            floating = "float" in (a.kind, b.kind)
            spelled = "//" if op == "/" and not floating else op
            return HostValue("float" if floating else "int", f"(({a.text}) {spelled} ({b.text}))")
        raise Inconvertible(f"{a.kind} {op} {b.kind}")

    def logic(self, op: str, a: HostValue, right: Node) -> HostValue:
        """Converts && and ||; decided at conversion where one side is known."""
        stops = op == "||"
        if a.known is not None:
            return a if a.known is stops else self.value(right)
        b = self.value(right)
        if b.known is not None:
            return b if b.known is stops else a
        return condition(f"({a.text}) {'or' if stops else 'and'} ({b.text})")

    def on_cond(self, test: Node, then: Node, otherwise: Node) -> HostValue:
        """Converts a ? b : c."""
        condition = self.value(test)
        if condition.known is not None:
            return self.value(then if condition.known else otherwise)
        a, b = self.value(then), self.value(otherwise)
        chosen = a if b.kind == "none" else b
        kind = chosen.kind if a.kind == b.kind or "none" in (a.kind, b.kind) else "float"
        if a.kind != b.kind and not {a.kind, b.kind} <= {"int", "float", "bool"} and "none" not in (a.kind, b.kind):
            raise Inconvertible("both sides of ?: differ")
        if kind == "none":
            return NONE
        return replace(chosen, kind=kind, text=f"(({a.text}) if {condition.text} else ({b.text}))", known=None)

    def on_cast(self, target: str, inner: Node) -> HostValue:
        """Converts (T)x: pointers keep the tensor, numbers change kind."""
        value = self.value(inner)
        name = of_type(target.rstrip("*& "), self.types)
        if target.rstrip("& ").endswith("*"):
            if value.kind not in ("pointer", "none"):
                raise Inconvertible(f"a pointer made of a {value.kind}")
            return replace(value, ctype=name if name != "void" else value.ctype)
        return self.number_as(value, name)

    def number_as(self, value: HostValue, ctype: str) -> HostValue:
        """Converts a number to a C++ type."""
        kind = SCALARS.get(ctype)
        if kind is None or value.kind not in ("int", "float", "bool"):
            if value.kind in ("dtype", "stream", "tensor", "shape"):
                return value
            raise Inconvertible(f"a cast of a {value.kind} to {ctype}")
        if kind.startswith(("float", "bfloat")):
            return value if value.kind == "float" else HostValue("float", f"float({value.text})")
        if kind == "bool":
            return value if value.kind == "bool" else condition(f"({value.text}) != 0")
        return HostValue("int", f"int({value.text})" if value.kind != "int" else value.text)

    def on_sizeof(self, target: str) -> HostValue:
        """Converts sizeof(T), in bytes."""
        name = of_type(target, self.types)
        if name in SCALARS:
            return HostValue("int", str(SIZES[SCALARS[name]]))
        if name in VECTORS:
            return HostValue("int", str(SIZES[VECTORS[name][0]] * VECTORS[name][1]))
        raise Inconvertible(f"sizeof({target})")

    def on_index(self, owner: Node, index: Node) -> HostValue:
        """Converts x[i] on shapes, tensors and lists."""
        value, place = self.value(owner), self.value(index)
        kind = {"shape": "int", "tensors": "tensor", "tensor": "tensor"}.get(value.kind)
        if kind is None:
            raise Inconvertible(f"an index into a {value.kind}")
        return HostValue(kind, f"{value.text}[{place.text}]")

    def on_make(self, name: str, args: Sequence[Node]) -> HostValue:
        """Converts T(...) or T{...}."""
        if name == "dim3":
            parts = [self.value(a).text for a in args]
            return HostValue("dim3", tuple_text(parts), parts=(*parts, *["1"] * (3 - len(parts))))
        if name.startswith("std::vector") or name.endswith("IntArrayRef"):
            return self.value(("brace", list(args)))
        if name.endswith("TensorOptions"):
            return HostValue("options", "")
        if len(args) == 1:
            return self.on_cast(name, args[0])
        raise Inconvertible(f"{name} made of {len(args)} values")

    # ------------------------------------------------------------ members

    def on_member(self, owner: Node, name: str, _: Any) -> HostValue:
        """Converts grid.x; other members are only supported as calls."""
        value = self.value(owner)
        if value.kind == "dim3" and name in ("x", "y", "z"):
            return HostValue("int", value.parts["xyz".index(name)])
        raise Inconvertible(f".{name} of a {value.kind}")
