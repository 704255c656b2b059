"""Expressions of C++ host code -> expressions of a plan. Each value has a kind, so that `/` means what it means in C++.

`cpp_kinds` lists the kinds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hipwright.program.convert.cpp_parse import Node
from hipwright.program.convert.cpp_text import Inconvertible
from hipwright.program.convert.host_value import DTYPES, FALSE, NONE, OK, STREAM, TRUE, HostValue, number, of_type
from hipwright.program.signature import SCALARS, SIZES, VECTORS

OKAY = re.compile(
    r"(?:cuda|hip)(?:GetLastError|PeekAtLastError|DeviceSynchronize|StreamSynchronize|FuncSetAttribute|SetDevice"
    r"|FuncSetCacheConfig|DeviceSetCacheConfig)"
)
STREAMS = re.compile(r"(?:at|c10)::(?:cuda|hip)::getCurrent(?:CUDA|HIP)Stream(?:MasqueradingAsCUDA)?")
_MAKERS = ("empty", "zeros", "ones", "full", "arange", "empty_like", "zeros_like", "ones_like", "full_like")
_MATH = {
    "sqrt": "sqrt",
    "sqrtf": "sqrt",
    "exp": "exp",
    "expf": "exp",
    "log": "log",
    "logf": "log",
    "log2": "log2",
    "log2f": "log2",
    "pow": "pow",
    "powf": "pow",
    "ceil": "ceil",
    "ceilf": "ceil",
    "floor": "floor",
    "floorf": "floor",
    "tanh": "tanh",
    "sin": "sin",
    "cos": "cos",
    "log10": "log10",
}


class CppExpressions:
    """Expressions of one function. env: C++ name -> Val; types: C++ type name -> type."""

    env: dict[str, HostValue]
    types: dict[str, str]

    def call_own(self, name: str, args: Sequence[Node]) -> HostValue | None:
        """A function of the source itself; None when there is none of that name."""
        raise NotImplementedError

    def value(self, node: Node) -> HostValue:
        """One expression. Raises Inconvertible."""
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
                return HostValue(kind, _tuple([item.text for item in items]))
        raise Inconvertible(f"an expression of the form {node[0]}")

    # ------------------------------------------------------------ names and operators

    def named(self, name: str) -> HostValue:
        """A variable or a constant of torch."""
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
        """! - + ~ and * of an optional."""
        value = self.value(inner)
        if op == "!":
            return _bool(f"not ({value.text})", None if value.known is None else not value.known)
        if op in "-+~" and value.kind in ("int", "float"):
            return replace(value, text=f"({op}{value.text})", known=None)
        if op == "*" and value.kind in ("tensor", "any"):
            return value
        raise Inconvertible(f"{op} of a {value.kind}")

    def on_binary(self, op: str, left: Node, right: Node) -> HostValue:
        """Arithmetic, comparisons and logic."""
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
                return _bool(f"{other.text} is {'' if op == '==' else 'not '}None")
            return _bool(f"({a.text}) {op} ({b.text})")
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
        """&& and ||, decided now where one side is known."""
        stops = op == "||"
        if a.known is not None:
            return a if a.known is stops else self.value(right)
        b = self.value(right)
        if b.known is not None:
            return b if b.known is stops else a
        return _bool(f"({a.text}) {'or' if stops else 'and'} ({b.text})")

    def on_cond(self, test: Node, yes: Node, no: Node) -> HostValue:
        """a ? b : c."""
        condition = self.value(test)
        if condition.known is not None:
            return self.value(yes if condition.known else no)
        a, b = self.value(yes), self.value(no)
        chosen = a if b.kind == "none" else b
        kind = chosen.kind if a.kind == b.kind or "none" in (a.kind, b.kind) else "float"
        if a.kind != b.kind and not {a.kind, b.kind} <= {"int", "float", "bool"} and "none" not in (a.kind, b.kind):
            raise Inconvertible("both sides of ?: differ")
        if kind == "none":
            return NONE
        return replace(chosen, kind=kind, text=f"(({a.text}) if {condition.text} else ({b.text}))", known=None)

    def on_cast(self, target: str, inner: Node) -> HostValue:
        """(T)x: pointers keep the tensor, numbers change kind."""
        value = self.value(inner)
        name = of_type(target.rstrip("*& "), self.types)
        if target.rstrip("& ").endswith("*"):
            if value.kind not in ("pointer", "none"):
                raise Inconvertible(f"a pointer made of a {value.kind}")
            return replace(value, ctype=name if name != "void" else value.ctype)
        return self.number_as(value, name)

    def number_as(self, value: HostValue, ctype: str) -> HostValue:
        """A number as a C++ type."""
        kind = SCALARS.get(ctype)
        if kind is None or value.kind not in ("int", "float", "bool"):
            if value.kind in ("dtype", "stream", "tensor", "shape"):
                return value
            raise Inconvertible(f"a cast of a {value.kind} to {ctype}")
        if kind.startswith(("float", "bfloat")):
            return value if value.kind == "float" else HostValue("float", f"float({value.text})")
        if kind == "bool":
            return value if value.kind == "bool" else _bool(f"({value.text}) != 0")
        return HostValue("int", f"int({value.text})" if value.kind != "int" else value.text)

    def on_sizeof(self, target: str) -> HostValue:
        """sizeof(T) in bytes."""
        name = of_type(target, self.types)
        if name in SCALARS:
            return HostValue("int", str(SIZES[SCALARS[name]]))
        if name in VECTORS:
            return HostValue("int", str(SIZES[VECTORS[name][0]] * VECTORS[name][1]))
        raise Inconvertible(f"sizeof({target})")

    def on_index(self, owner: Node, index: Node) -> HostValue:
        """x[i] on shapes, tensors and lists."""
        value, place = self.value(owner), self.value(index)
        kind = {"shape": "int", "tensors": "tensor", "tensor": "tensor"}.get(value.kind)
        if kind is None:
            raise Inconvertible(f"an index into a {value.kind}")
        return HostValue(kind, f"{value.text}[{place.text}]")

    def on_make(self, name: str, args: Sequence[Node]) -> HostValue:
        """T(...) or T{...}."""
        if name == "dim3":
            parts = [self.value(a).text for a in args]
            return HostValue("dim3", _tuple(parts), parts=(*parts, *["1"] * (3 - len(parts))))
        if name.startswith("std::vector") or name.endswith("IntArrayRef"):
            return self.value(("brace", list(args)))
        if name.endswith("TensorOptions"):
            return HostValue("options", "")
        if len(args) == 1:
            return self.on_cast(name, args[0])
        raise Inconvertible(f"{name} made of {len(args)} values")

    # ------------------------------------------------------------ members

    def on_member(self, owner: Node, name: str, _: Any) -> HostValue:
        """grid.x; other members are only ever called."""
        value = self.value(owner)
        if value.kind == "dim3" and name in ("x", "y", "z"):
            return HostValue("int", value.parts["xyz".index(name)])
        raise Inconvertible(f".{name} of a {value.kind}")

    def call(self, node: Node) -> HostValue:
        """A method, a function of torch, a host function."""
        function, args = node[1], node[2]
        if function[0] == "member":
            return self.method(self.value(function[1]), function[2], function[3], args)
        if function[0] != "name":
            raise Inconvertible("a call of a computed function")
        name = function[1]
        if OKAY.fullmatch(name):
            return OK
        if STREAMS.fullmatch(name):
            return STREAM
        own = self.call_own(name, args)
        if own is not None:
            return own
        base = name.split("::")[-1]
        if name in ("dim3", "std::make_tuple", "std::vector", "std::tuple", "std::make_pair", "std::tie"):
            return self.on_make("dim3", args) if name == "dim3" else self.value(("brace", args))
        if name.startswith(("torch::", "at::", "c10::")):
            return self.library(base, args)
        return self.host(base, function[2], args)

    def method(self, value: HostValue, name: str, targs: Sequence[str] | None, args: Sequence[Node]) -> HostValue:
        """value.name(args)."""
        if value.kind == "options":
            return self.option(value, name, args)
        if value.kind == "shape":
            if name in ("vec", "data", "begin"):
                return value
            if name == "size":
                return HostValue("int", f"len({value.text})")
        if value.kind in ("stream", "device"):
            return value if value.kind == "stream" else TRUE
        if value.kind in ("tensor", "any", "none"):
            return self.tensor_method(value, name, targs, args)
        raise Inconvertible(f".{name}() of a {value.kind}")

    def tensor_method(
        self, value: HostValue, name: str, targs: Sequence[str] | None, args: Sequence[Node]
    ) -> HostValue:
        """Methods of at::Tensor, and of an optional that holds one."""
        t = value.text
        if name in ("data_ptr", "data", "const_data_ptr", "mutable_data_ptr"):
            return HostValue("pointer", t, ctype=of_type(targs[0], self.types) if targs else "")
        if name in ("defined", "has_value"):
            return _bool(f"{t} is not None") if value.kind != "none" else FALSE
        if name in ("value", "get", "detach"):
            return value
        if name in ("is_cuda", "is_hip"):
            return TRUE
        if name in ("device", "layout"):
            return HostValue("device", "None")
        if name == "get_device" or name.startswith(("item", "packed_accessor", "accessor", "cpu", "cuda")):
            raise Inconvertible(f".{name}() in host code")
        if name == "options":
            return HostValue("options", "", dtype=f"{t}.dtype")
        given = [self.value(a) for a in args]
        simple = {
            "sizes": ("shape", f"{t}.shape"),
            "strides": ("shape", f"{t}.stride()"),
            "dim": ("int", f"{t}.ndim"),
            "ndimension": ("int", f"{t}.ndim"),
            "scalar_type": ("dtype", f"{t}.dtype"),
            "type": ("dtype", f"{t}.dtype"),
            "dtype": ("dtype", f"{t}.dtype"),
            "numel": ("int", f"{t}.numel()"),
            "is_contiguous": ("bool", f"{t}.is_contiguous()"),
            "element_size": ("int", f"{t}.element_size()"),
            "itemsize": ("int", f"{t}.element_size()"),
            "storage_offset": ("int", f"{t}.storage_offset()"),
            "is_floating_point": ("bool", f"{t}.is_floating_point()"),
        }
        if name in simple:
            return HostValue(*simple[name])
        if name in ("size", "stride"):
            spelled = f"{t}.shape[{given[0].text}]" if name == "size" else f"{t}.stride({given[0].text})"
            return HostValue("int", spelled)
        if name.endswith("_"):
            raise Inconvertible(f".{name}() works in place")
        name = "to" if name == "toType" else name
        if any(g.kind in ("options", "stream") for g in given):
            raise Inconvertible(f".{name}() with options")
        return HostValue("tensor", f"{t}.{name}({', '.join(g.text for g in given if g.kind != 'device')})")

    def option(self, value: HostValue, name: str, args: Sequence[Node]) -> HostValue:
        """TensorOptions: only the dtype matters, a plan has one device."""
        if name == "dtype":
            return replace(value, dtype=self.value(args[0]).text) if args else HostValue("dtype", value.dtype)
        return value

    # ------------------------------------------------------------ functions

    def library(self, name: str, args: Sequence[Node]) -> HostValue:
        """torch::name(args) -> torch.name(args)."""
        if name in ("TensorOptions", "device", "layout"):
            return HostValue("options", "")
        if name == "dtype":
            return HostValue("options", "", dtype=self.value(args[0]).text)
        if name == "elementSize":
            return HostValue("int", f"torch.empty(1, dtype={self.value(args[0]).text}).element_size()")
        if name in ("device_of", "Scalar", "optional"):
            return self.value(args[0])
        if name.endswith("_") or name in ("from_blob", "manual_seed"):
            raise Inconvertible(f"torch::{name}")
        given = [self.value(a) for a in args]
        options = next((g for g in given if g.kind in ("options", "dtype")), None)
        plain = [
            g.text for g in given if g.kind not in ("options", "device") and (g.kind != "dtype" or name not in _MAKERS)
        ]
        if name in _MAKERS and options is not None:
            dtype = options.text if options.kind == "dtype" else options.dtype
            plain += [f"dtype={dtype}"] if dtype else []
        if (
            name in _MAKERS
            and options is not None
            and options.kind == "options"
            and not options.dtype
            and "like" not in name
        ):
            plain += ["dtype=torch.float32"]
        return HostValue("tensor", f"torch.{name}({', '.join(plain)})")

    def host(self, name: str, targs: Sequence[str] | None, args: Sequence[Node]) -> HostValue:
        """min, max, abs, square roots and casts."""
        given = [self.value(a) for a in args]
        numbers = all(g.kind in ("int", "float", "bool") for g in given)
        if name == "get" and targs and len(given) == 1:
            return HostValue("tensor", f"{given[0].text}[{targs[0]}]")
        if name == "move" and given:
            return given[0]
        if numbers and name in ("min", "max") and len(given) == 2:
            kind = "float" if "float" in {g.kind for g in given} else "int"
            return HostValue(kind, f"{name}({given[0].text}, {given[1].text})")
        if numbers and name in ("abs", "fabs", "fabsf"):
            return HostValue(given[0].kind, f"abs({given[0].text})")
        if numbers and name in _MATH:
            return HostValue("float", f"math.{_MATH[name]}({', '.join(g.text for g in given)})")
        if numbers and len(given) == 1 and of_type(name, self.types) in SCALARS:
            return self.number_as(given[0], of_type(name, self.types))
        raise Inconvertible(f"{name}() is not known")


def _bool(text: str, known: bool | None = None) -> HostValue:
    return HostValue("bool", f"({text})" if known is None else str(known), known=known)


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
