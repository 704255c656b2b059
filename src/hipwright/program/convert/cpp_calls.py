"""Converts calls in C++ host code: methods of tensors, functions of torch, and host functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hipwright.program.convert.cpp_expression_parser import Node
from hipwright.program.convert.cpp_text import Inconvertible
from hipwright.program.convert.host_value import FALSE, OK, STREAM, TRUE, HostValue, condition, of_type
from hipwright.program.kernel_types import SCALARS

RETURNS_NO_ERROR = re.compile(
    r"(?:cuda|hip)(?:GetLastError|PeekAtLastError|DeviceSynchronize|StreamSynchronize|FuncSetAttribute|SetDevice"
    r"|FuncSetCacheConfig|DeviceSetCacheConfig)"
)
_CURRENT_STREAM = re.compile(r"(?:at|c10)::(?:cuda|hip)::getCurrent(?:CUDA|HIP)Stream(?:MasqueradingAsCUDA)?")
_FACTORIES = ("empty", "zeros", "ones", "full", "arange", "empty_like", "zeros_like", "ones_like", "full_like")
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


class HostCallConverter:
    """Converts the calls of one function. env: C++ name -> value; types: C++ type name -> type."""

    env: dict[str, HostValue]
    types: dict[str, str]

    def value(self, node: Node) -> HostValue:
        """Converts an expression. Raises Inconvertible."""
        raise NotImplementedError

    def on_make(self, name: str, args: Sequence[Node]) -> HostValue:
        """Converts T(...) or T{...}."""
        raise NotImplementedError

    def number_as(self, value: HostValue, ctype: str) -> HostValue:
        """Converts a number to a C++ type."""
        raise NotImplementedError

    def call_own(self, name: str, args: Sequence[Node]) -> HostValue | None:
        """Writes a call of a function of the source inline; None when there is none of that name."""
        raise NotImplementedError

    def memory_call(self, name: str, args: list[Node]) -> HostValue | None:
        """Writes a call of a memory function of the runtime; None for another function."""
        raise NotImplementedError

    def call(self, node: Node) -> HostValue:
        """Converts a call of a method, a function of torch or a host function."""
        function, args = node[1], node[2]
        if function[0] == "member":
            return self.method(self.value(function[1]), function[2], function[3], args)
        if function[0] != "name":
            raise Inconvertible("a call of a computed function")
        name = function[1]
        if RETURNS_NO_ERROR.fullmatch(name):
            return OK
        if _CURRENT_STREAM.fullmatch(name):
            return STREAM
        own = self.memory_call(name, args) or self.call_own(name, args)
        if own is not None:
            return own
        base = name.split("::")[-1]
        if name in ("dim3", "std::make_tuple", "std::vector", "std::tuple", "std::make_pair", "std::tie"):
            return self.on_make("dim3", args) if name == "dim3" else self.value(("brace", args))
        if name.startswith(("torch::", "at::", "c10::")):
            return self.library(base, args)
        return self.host(base, function[2], args)

    def method(self, value: HostValue, name: str, targs: Sequence[str] | None, args: Sequence[Node]) -> HostValue:
        """Converts value.name(args)."""
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
        """Converts methods of at::Tensor, and of an optional that holds one."""
        t = value.text
        if name in ("data_ptr", "data", "const_data_ptr", "mutable_data_ptr"):
            return HostValue("pointer", t, ctype=of_type(targs[0], self.types) if targs else "")
        if name in ("defined", "has_value"):
            return condition(f"{t} is not None") if value.kind != "none" else FALSE
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
        """Converts methods of TensorOptions: only the dtype matters, since a plan has one device."""
        if name == "dtype":
            return replace(value, dtype=self.value(args[0]).text) if args else HostValue("dtype", value.dtype)
        return value

    # ------------------------------------------------------------ functions

    def library(self, name: str, args: Sequence[Node]) -> HostValue:
        """Converts torch::name(args) to torch.name(args)."""
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
            g.text
            for g in given
            if g.kind not in ("options", "device") and (g.kind != "dtype" or name not in _FACTORIES)
        ]
        if name in _FACTORIES and options is not None:
            dtype = options.text if options.kind == "dtype" else options.dtype
            plain += [f"dtype={dtype}"] if dtype else []
        if (
            name in _FACTORIES
            and options is not None
            and options.kind == "options"
            and not options.dtype
            and "like" not in name
        ):
            plain += ["dtype=torch.float32"]
        return HostValue("tensor", f"torch.{name}({', '.join(plain)})")

    def host(self, name: str, targs: Sequence[str] | None, args: Sequence[Node]) -> HostValue:
        """Converts min, max, abs, functions of math, and casts."""
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
