"""Static checks of the calls in a plan: host functions, library calls and tensor methods."""

from __future__ import annotations

import ast
from typing import NoReturn

from hipwright.program.ast_queries import error_at, in_place, is_str
from hipwright.program.language import (
    CAST_METHODS,
    EMPTIES,
    FACTORIES,
    HOST_FUNCTIONS,
    MATH_FUNCTIONS,
    did_you_mean,
    is_self_path,
    library_name,
    refusal,
)
from hipwright.program.parsed import Parsed

_TENSOR_CALLS = frozenset(
    (
        *EMPTIES,
        *FACTORIES,
        "zeros_like",
        "ones_like",
        "full_like",
        "cat",
        "stack",
        "matmul",
        "mm",
        "bmm",
        "addmm",
        "einsum",
    )
) - {"new_empty", "new_empty_strided"}
_TENSOR_METHODS = frozenset(
    (
        *CAST_METHODS,
        "contiguous",
        "clone",
        "view",
        "reshape",
        "transpose",
        "permute",
        "t",
        "to",
        "flatten",
        "expand",
        "unsqueeze",
        "squeeze",
        "new_empty",
        "sum",
        "mean",
    )
)
TYPE_NAMES = {"tensor": "tensor", "num": "number", "shape": "shape", "seq": "tuple", "str": "string", "none": "None"}
LocalTypes = dict[str, str]
"""Local name -> its static type."""


class CallChecker:
    """Checks the calls of one function (`where`)."""

    parsed: Parsed
    where: str

    def value(self, node: ast.expr, types: LocalTypes) -> str:
        """Checks an expression; returns its static type."""
        raise NotImplementedError

    def call(self, node: ast.Call, types: LocalTypes) -> str:
        """Checks a host function, a library call or a method."""
        func = node.func
        if isinstance(func, ast.Name):
            return self.call_name(node, func.id, types)
        if isinstance(func, ast.Subscript) and isinstance(func.value, ast.Name):
            name = func.value.id
            if name in self.parsed.kernels.signatures:
                raise error_at(node, f"a launch has no value: write {name}[grid, block](...) on a line of its own")
            raise error_at(node, f"{name} is not a kernel of HIP{did_you_mean(name, self.parsed.signatures)}")
        if is_self_path(func) and (isinstance(func, ast.Subscript) or _rooted_at_self(func)):
            self.call_self(node)
        if not isinstance(func, ast.Attribute):
            raise error_at(node, "only named functions and methods can be called")
        library = library_name(func)
        if library is not None:
            return self.call_library(node, *library, types)
        return self.call_method(node, func, types)

    def call_self(self, node: ast.Call) -> NoReturn:
        """Refuses calls of modules, such as self.conv(x)."""
        what = ast.unparse(node.func)
        raise error_at(
            node,
            f"{what}(...) is not callable in a plan: modules and methods of the model stay outside; write the "
            f"operator, e.g. F.linear(x, {what}.weight, {what}.bias)",
        )

    def call_name(self, node: ast.Call, name: str, types: LocalTypes) -> str:
        """Checks a call of a host function: min(a, b), range(n), ..."""
        kernels = self.parsed.kernels
        if name in kernels.signatures:
            raise error_at(node, f"{name} is a kernel: launch it with a grid and a block, {name}[grid, block](...)")
        if name in kernels.unusable:
            raise error_at(node, f"{name} cannot be launched: {kernels.unusable[name]}")
        if name == self.where or name in self.parsed.functions:
            raise error_at(node, f"{name} cannot be called from a plan; recursion and helper functions are not allowed")
        if types.get(name) == "self":
            self.call_self(node)
        if name not in HOST_FUNCTIONS:
            known = (*HOST_FUNCTIONS, *kernels.signatures)
            hint = refusal(name)
            other = f": {hint}" if hint else did_you_mean(name, known) or f": use {', '.join(HOST_FUNCTIONS)}"
            raise error_at(node, f"{name} is not a function of the plan language{other}")
        argument_types = self.arguments(node, types)
        if "tensor" in argument_types and name not in ("len", "tuple", "zip", "enumerate", "reversed"):
            instead = {
                "min": "use torch.minimum",
                "max": "use torch.maximum",
                "abs": "use torch.abs",
                "sum": "use torch.sum",
            }.get(name, "a tensor cannot be read on the host")
            raise error_at(node, f"{name} works on host numbers, not tensors; {instead}")
        return "seq" if name in ("range", "tuple", "enumerate", "zip", "reversed") else "num"

    def call_library(self, node: ast.Call, space: str, rest: tuple[str, ...], types: LocalTypes) -> str:
        """Checks a call of torch.*, F.* or math.*; `lower.ops` decides whether the operator is functional."""
        name, spelled = rest[-1], ast.unparse(node.func)
        for part in rest:
            if hint := refusal(part):
                raise error_at(node, f"{spelled} is refused: {hint}")
        if space == "" or (len(rest) > 1 and space != "aten") or len(rest) > 2:
            raise error_at(
                node,
                f"{spelled} is not part of the plan language; use torch.*, torch.nn.functional.* (F.*), "
                "torch.linalg.*, torch.fft.*, torch.special.*, torch.ops.aten.* or math.*",
            )
        if in_place(rest[0]):
            raise error_at(node, f"{spelled} works in place; use {spelled.rstrip('_')}")
        if space == "math":
            if name not in MATH_FUNCTIONS:
                raise error_at(node, f"{spelled} is not available{did_you_mean(name, MATH_FUNCTIONS)}")
            if "tensor" in self.arguments(node, types):
                raise error_at(node, f"{spelled} works on host numbers; use torch.{name}")
            return "num"
        self.arguments(node, types)
        return "tensor" if space == "torch" and name in _TENSOR_CALLS else "any"

    def call_method(self, node: ast.Call, func: ast.Attribute, types: LocalTypes) -> str:
        """Checks a method call: y.view(...), x.size(0), ..."""
        name = func.attr
        type_ = self.value(func.value, types)
        if hint := refusal(name):
            raise error_at(node, f".{name}() is refused: {hint}")
        if name.startswith("_"):
            raise error_at(node, f".{name}() is private; use a public operator")
        if in_place(name):
            raise error_at(
                node,
                f".{name}() works in place: use .{name.rstrip('_')}(), whose result is new. Only buffers, and "
                "inputs that the task writes, are updated, as a statement: self.<buffer>.copy_(value)",
            )
        argument_types = self.arguments(node, types)
        if name == "to" and "str" in argument_types:
            raise error_at(node, ".to() takes a dtype (torch.float16) or another tensor's dtype, not a device name")
        if type_ in ("num", "none", "str", "seq"):
            raise error_at(node, f"a {TYPE_NAMES[type_]} has no method {name} in a plan")
        if name == "size":
            return "num" if node.args or node.keywords else "shape"
        if name in ("numel", "nelement", "dim", "ndimension", "is_contiguous", "element_size", "storage_offset"):
            return "num"
        return "tensor" if name in _TENSOR_METHODS else "any"

    def arguments(self, node: ast.Call, types: LocalTypes) -> list[str]:
        """Checks arguments; returns their types. Refuses out=, inplace=True and generator=."""
        found = [self.value(a.value if isinstance(a, ast.Starred) else a, types) for a in node.args]
        for keyword in node.keywords:
            if keyword.arg is None:
                raise error_at(keyword.value, "** is not allowed in a call")
            if keyword.arg == "out":
                raise error_at(keyword.value, "out= writes in place; use the returned value")
            if keyword.arg == "inplace" and not _is_constant(keyword.value, False):
                raise error_at(keyword.value, "inplace= is not allowed; use the returned value")
            if keyword.arg == "generator":
                raise error_at(keyword.value, "generator= is random state; a plan has none")
            if keyword.arg == "device" and is_str(keyword.value):
                raise error_at(
                    keyword.value, "a plan stays on the device of its inputs; leave device out or write device=x.device"
                )
            found.append(self.value(keyword.value, types))
        return found


def _is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _rooted_at_self(func: ast.expr) -> bool:
    """Whether a function is self.method, in contrast to self.weight.t, whose owner may be a tensor."""
    return isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name)
