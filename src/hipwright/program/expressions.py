"""Checks of expressions: names, attributes, indices and calls. `check` adds statements and launches.

Every expression has a kind, what it is known to be without torch: "tensor", "num", "shape", "seq", "str", "none",
"self" (something of the model, perhaps a module) or "any".
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import NoReturn

from hipwright.errors import ProgramError
from hipwright.program.language import (
    CAST_METHODS,
    EMPTIES,
    FACTORIES,
    FINFO_FIELDS,
    HOST_FUNCTIONS,
    MATH_FUNCTIONS,
    MATH_VALUES,
    RESERVED,
    ROOTS,
    TORCH_VALUES,
    VALUE_ATTRIBUTES,
    did_you_mean,
    is_self_path,
    library_name,
    refusal,
)
from hipwright.program.parsed import Parsed

_TENSOR_CALLS = frozenset((*EMPTIES, *FACTORIES, "zeros_like", "ones_like", "full_like", "cat", "stack", "matmul", "mm",
                           "bmm", "addmm", "einsum")) - {"new_empty", "new_empty_strided"}  # fmt: skip
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
SAID = {"tensor": "tensor", "num": "number", "shape": "shape", "seq": "tuple", "str": "string", "none": "None"}
_EXPRESSION_HELP = {
    "Lambda": "lambda is not allowed; write the steps out",
    "GeneratorExp": "a generator is not allowed; use a list comprehension with one for",
    "SetComp": "a set is not allowed; use a tuple",
    "DictComp": "a dict is not allowed here; use local names",
    "Dict": "a dict is allowed only after return",
    "Set": "a set is not allowed; use a tuple",
    "NamedExpr": ":= is not allowed; assign on a line of its own",
    "JoinedStr": "f-strings are not allowed; a message is one plain string",
    "Starred": "* is allowed in tuples and library calls only",
    "Await": "async is not allowed",
    "Yield": "yield is not allowed; use return",
    "YieldFrom": "yield is not allowed; use return",
    "Slice": "a slice is allowed in brackets only",
}


Kinds = dict[str, str]  # local name -> what it is known to be


@dataclass
class Expressions:
    """Walks the expressions of one function (`where`); `prepared` are the names that prepare returns."""

    parsed: Parsed
    where: str
    prepared: tuple[str, ...]
    paths: dict[str, None] = field(default_factory=dict)
    launched: dict[str, None] = field(default_factory=dict)
    locals: set[str] = field(default_factory=set)

    # ------------------------------------------------------------ assignment

    def assign(self, target: ast.expr, kind: str, kinds: Kinds) -> None:
        """Bind a name or unpack into names."""
        if isinstance(target, ast.Name):
            self.bindable(target.id, target)
            kinds[target.id] = kind
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                inner = item.value if isinstance(item, ast.Starred) else item
                part = {"shape": "num", "self": "self"}.get(kind, "any")
                self.assign(inner, part if inner is item else "any", kinds)
        else:
            self.refuse_target(target)

    def refuse_target(self, target: ast.expr) -> NoReturn:
        """self.x = ..., y[0] = ... and the like."""
        if is_self_path(target):
            raise problem(target, "self is read only; keep the value in a local name, or pack it in prepare")
        if isinstance(target, ast.Subscript):
            raise problem(target, "tensors are not written in place; make a new one (torch.cat, torch.where, a kernel)")
        raise problem(target, "only names can be assigned")

    def bindable(self, name: str, node: ast.AST) -> None:
        """Refuse names that mean something else."""
        if name in RESERVED or name in self.parsed.kernels.signatures:
            what = "a kernel" if name in self.parsed.kernels.signatures else "part of the plan language"
            raise problem(node, f"{name} is {what}; choose another name")
        if name in self.parsed.knobs or name in self.parsed.constants:
            raise problem(node, f"{name} is a knob or constant and cannot be assigned; choose another name")
        if name.startswith("__"):
            raise problem(node, f"{name}: names with two leading underscores are not allowed")

    # ------------------------------------------------------------ expressions

    def value(self, node: ast.expr, kinds: Kinds) -> str:
        """Check an expression; returns what it is known to be."""
        match node:
            case ast.Constant():
                return self.constant(node)
            case ast.Name():
                return self.name(node, kinds)
            case ast.Attribute():
                return self.attribute(node, kinds)
            case ast.Subscript():
                return self.subscript(node, kinds)
            case ast.Call():
                return self.call(node, kinds)
            case ast.BinOp():
                return self.arithmetic(self.value(node.left, kinds), self.value(node.right, kinds))
            case ast.UnaryOp():
                kind = self.value(node.operand, kinds)
                return "num" if isinstance(node.op, ast.Not) else kind
            case ast.BoolOp():
                return self.merge([self.value(v, kinds) for v in node.values])
            case ast.Compare():
                parts = {self.value(v, kinds) for v in (node.left, *node.comparators)}
                return "num" if parts <= {"num", "none", "str", "shape"} else "any"
            case ast.IfExp():
                self.value(node.test, kinds)
                return self.merge([self.value(node.body, kinds), self.value(node.orelse, kinds)])
            case ast.Tuple() | ast.List():
                for item in node.elts:
                    self.value(item.value if isinstance(item, ast.Starred) else item, kinds)
                return "seq"
            case ast.ListComp():
                return self.comprehension(node, kinds)
            case _:
                raise problem(
                    node, _EXPRESSION_HELP.get(type(node).__name__, f"{type(node).__name__} is not allowed here")
                )

    def item_kind(self, node: ast.expr, kind: str, kinds: Kinds) -> str:
        """What a loop over `node`, which is a `kind`, yields."""
        if is_range(node) or kind == "shape":
            return "num"
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        return "self" if any(n == "self" or kinds.get(n) == "self" for n in names) else "any"

    def merge(self, kinds: list[str]) -> str:
        """The common kind, else "any"."""
        return kinds[0] if len(set(kinds)) == 1 else "self" if "self" in kinds else "any"

    def arithmetic(self, left: str, right: str) -> str:
        """What a binary operator gives."""
        if "tensor" in (left, right):
            return "tensor"
        if left == right == "num":
            return "num"
        return "seq" if {left, right} <= {"shape", "seq"} else "any"

    def constant(self, node: ast.Constant) -> str:
        """Numbers, strings, booleans, None and `...`."""
        if isinstance(node.value, (bytes, complex)):
            raise problem(node, f"a {type(node.value).__name__} literal is not allowed")
        if node.value is None:
            return "none"
        return "str" if isinstance(node.value, str) else "num" if isinstance(node.value, (int, float)) else "any"

    def name(self, node: ast.Name, kinds: Kinds) -> str:
        """A local, a knob or a constant."""
        name = node.id
        if name in kinds:
            return kinds[name]
        if name in self.parsed.knobs or name in self.parsed.constants:
            return "num"
        if name in self.parsed.kernels.signatures:
            raise problem(node, f"{name} is a kernel; launch it as a statement of its own: {name}[grid, block](...)")
        if name == "self":
            raise problem(node, "self is not a value; read what you need, e.g. self.weight")
        if name in ROOTS or name in HOST_FUNCTIONS:
            raise problem(
                node,
                f"{name} is not a value; call what you need, e.g. "
                f"{'min(a, b)' if name in HOST_FUNCTIONS else name + '.<operator>(...)'}",
            )
        if name in self.locals:
            raise problem(node, f"{name} is used before it is assigned")
        known = (*kinds, *self.parsed.knobs, *self.parsed.constants)
        raise problem(node, f"unknown name {name}{did_you_mean(name, known)}")

    def attribute(self, node: ast.Attribute, kinds: Kinds) -> str:
        """A torch constant, self.<path>, or a tensor's metadata."""
        library = library_name(node)
        if library is not None:
            return self.library_value(node, *library)
        if is_self_path(node):
            return self.self_path(node, kinds)
        if _is_finfo(node.value):
            if node.attr not in FINFO_FIELDS:
                raise problem(node, f"torch.finfo has {', '.join(FINFO_FIELDS)}")
            self.value(node.value, kinds)
            return "num"
        owner = self.value(node.value, kinds)
        if owner == "self":  # what the model has is known where its state table is
            return {"shape": "shape", "ndim": "num", "training": "num"}.get(node.attr, "self")
        if node.attr not in VALUE_ATTRIBUTES:
            hint = refusal(node.attr)
            why = f": {hint}" if hint else did_you_mean(node.attr, VALUE_ATTRIBUTES)
            raise problem(node, f".{node.attr} is not readable in a plan{why}")
        if node.attr in ("T", "mT", "H", "mH"):
            return "tensor"
        return {"shape": "shape", "ndim": "num"}.get(node.attr, "any")

    def library_value(self, node: ast.Attribute, space: str, rest: tuple[str, ...]) -> str:
        """torch.float32, math.pi; functions are not values."""
        if space == "torch" and rest[0] in TORCH_VALUES and len(rest) == 1:
            return "num" if rest[0] in MATH_VALUES else "any"
        if space == "math" and rest[0] in MATH_VALUES:
            return "num"
        hint = refusal(rest[-1])
        other = f": {hint}" if hint else did_you_mean(rest[-1], TORCH_VALUES) or "; call it, or use a dtype"
        raise problem(node, f"{ast.unparse(node)} is not a value in a plan{other}")

    def self_path(self, node: ast.expr, kinds: Kinds) -> str:
        """Record the path; `self.prepared.<name>` must be one of prepare's names."""
        parts: list[str] = []
        base: ast.expr = node
        while isinstance(base, (ast.Attribute, ast.Subscript)):
            if isinstance(base, ast.Attribute):
                if base.attr.startswith("__"):
                    raise problem(base, f".{base.attr}: names with two leading underscores are not allowed")
                parts.append(base.attr)
            else:
                self.index(base.slice, kinds)
                constant = base.slice.value if isinstance(base.slice, ast.Constant) else None
                parts.append(str(constant) if isinstance(constant, (int, str)) else "*")
            base = base.value
        parts.reverse()
        if parts[0] == "prepared":
            return self.prepared_value(node, parts)
        self.paths[".".join(parts)] = None
        if parts[-1] == "training":
            return "num"
        return {"shape": "shape", "ndim": "num"}.get(parts[-1], "self") if isinstance(node, ast.Attribute) else "self"

    def prepared_value(self, node: ast.expr, parts: list[str]) -> str:
        """self.prepared.<name>."""
        if self.where == "prepare":
            raise problem(node, "prepare cannot read self.prepared; use the local name")
        if not self.parsed.has_prepare:
            raise problem(node, "there is no prepare(self) in this program, so self.prepared is empty")
        if len(parts) < 2:
            raise problem(node, "read one prepared value by name, e.g. self.prepared.w")
        if parts[1] not in self.prepared:
            raise problem(node, f"prepare returns no {parts[1]}{did_you_mean(parts[1], self.prepared)}")
        return "any"

    def subscript(self, node: ast.Subscript, kinds: Kinds) -> str:
        """An index or a slice of a tensor, tuple or module list."""
        if is_self_path(node):
            return self.self_path(node, kinds)
        if isinstance(node.value, ast.Name) and node.value.id in self.parsed.kernels.signatures:
            raise problem(node, f"a launch needs its arguments: {node.value.id}[grid, block](...)")
        kind = self.value(node.value, kinds)
        if kind in ("num", "none"):
            raise problem(node, f"a {SAID[kind]} cannot be indexed")
        self.index(node.slice, kinds)
        if kind == "shape":
            return "shape" if isinstance(node.slice, ast.Slice) else "num"
        return kind if kind in ("tensor", "self") else "any"

    def index(self, node: ast.expr, kinds: Kinds) -> None:
        """The inside of brackets."""
        if isinstance(node, ast.Slice):
            for part in (node.lower, node.upper, node.step):
                if part is not None:
                    self.value(part, kinds)
        elif isinstance(node, ast.Tuple):
            for item in node.elts:
                self.index(item, kinds)
        elif isinstance(node, ast.Starred):
            raise problem(node, "* is not allowed in an index")
        else:
            self.value(node, kinds)

    def comprehension(self, node: ast.ListComp, kinds: Kinds) -> str:
        """One `for`, over what a loop may run over; no conditions."""
        if len(node.generators) != 1 or node.generators[0].ifs:
            raise problem(node, "a list comprehension has one for and no if; write a for loop and build a tuple")
        generator = node.generators[0]
        if generator.is_async:
            raise problem(node, "async is not allowed")
        kind = self.value(generator.iter, kinds)
        if kind in ("tensor", "num", "str", "none"):
            raise problem(
                generator.iter,
                f"a loop runs over range(...), a tuple, a shape or a module list, not over a {SAID[kind]}",
            )
        inner = dict(kinds)
        self.assign(generator.target, self.item_kind(generator.iter, kind, kinds), inner)
        self.value(node.elt, inner)
        return "seq"

    # ------------------------------------------------------------ calls

    def call(self, node: ast.Call, kinds: Kinds) -> str:
        """A host function, a library call or a method."""
        func = node.func
        if isinstance(func, ast.Name):
            return self.call_name(node, func.id, kinds)
        if isinstance(func, ast.Subscript) and isinstance(func.value, ast.Name):
            name = func.value.id
            if name in self.parsed.kernels.signatures:
                raise problem(node, f"a launch has no value: write {name}[grid, block](...) on a line of its own")
            raise problem(node, f"{name} is not a kernel of HIP{did_you_mean(name, self.parsed.signatures)}")
        if is_self_path(func) and (isinstance(func, ast.Subscript) or _rooted_at_self(func)):
            self.call_self(node)
        if not isinstance(func, ast.Attribute):
            raise problem(node, "only named functions and methods can be called")
        library = library_name(func)
        if library is not None:
            return self.call_library(node, *library, kinds)
        return self.call_method(node, func, kinds)

    def call_self(self, node: ast.Call) -> NoReturn:
        """Refuse self.conv(x)."""
        what = ast.unparse(node.func)
        raise problem(
            node,
            f"{what}(...) is not callable in a plan: modules and methods of the model stay outside; write the "
            f"operator, e.g. F.linear(x, {what}.weight, {what}.bias)",
        )

    def call_name(self, node: ast.Call, name: str, kinds: Kinds) -> str:
        """min(a, b), range(n), ..."""
        kernels = self.parsed.kernels
        if name in kernels.signatures:
            raise problem(node, f"{name} is a kernel: launch it with a grid and a block, {name}[grid, block](...)")
        if name in kernels.unusable:
            raise problem(node, f"{name} cannot be launched: {kernels.unusable[name]}")
        if name == self.where or name in self.parsed.functions:
            raise problem(node, f"{name} cannot be called from a plan; recursion and helper functions are not allowed")
        if kinds.get(name) == "self":
            self.call_self(node)
        if name not in HOST_FUNCTIONS:
            known = (*HOST_FUNCTIONS, *kernels.signatures)
            hint = refusal(name)
            other = f": {hint}" if hint else did_you_mean(name, known) or f": use {', '.join(HOST_FUNCTIONS)}"
            raise problem(node, f"{name} is not a function of the plan language{other}")
        kinds_of = self.arguments(node, kinds)
        if "tensor" in kinds_of and name not in ("len", "tuple", "zip", "enumerate", "reversed"):
            instead = {"min": "use torch.minimum", "max": "use torch.maximum", "abs": "use torch.abs",
                       "sum": "use torch.sum"}.get(name, "a tensor cannot be read on the host")  # fmt: skip
            raise problem(node, f"{name} works on host numbers, not tensors; {instead}")
        return "seq" if name in ("range", "tuple", "enumerate", "zip", "reversed") else "num"

    def call_library(self, node: ast.Call, space: str, rest: tuple[str, ...], kinds: Kinds) -> str:
        """torch.*, F.*, math.*; whether the operator exists and is functional is decided where torch is."""
        name, spelled = rest[-1], ast.unparse(node.func)
        for part in rest:
            if hint := refusal(part):
                raise problem(node, f"{spelled} is refused: {hint}")
        if space == "" or (len(rest) > 1 and space != "aten") or len(rest) > 2:
            raise problem(
                node,
                f"{spelled} is not part of the plan language; use torch.*, torch.nn.functional.* (F.*), "
                "torch.linalg.*, torch.fft.*, torch.special.*, torch.ops.aten.* or math.*",
            )
        if in_place(rest[0]):
            raise problem(node, f"{spelled} works in place; use {spelled.rstrip('_')}")
        if space == "math":
            if name not in MATH_FUNCTIONS:
                raise problem(node, f"{spelled} is not available{did_you_mean(name, MATH_FUNCTIONS)}")
            if "tensor" in self.arguments(node, kinds):
                raise problem(node, f"{spelled} works on host numbers; use torch.{name}")
            return "num"
        self.arguments(node, kinds)
        return "tensor" if space == "torch" and name in _TENSOR_CALLS else "any"

    def call_method(self, node: ast.Call, func: ast.Attribute, kinds: Kinds) -> str:
        """y.view(...), x.size(0), ..."""
        name = func.attr
        kind = self.value(func.value, kinds)
        if hint := refusal(name):
            raise problem(node, f".{name}() is refused: {hint}")
        if name.startswith("_"):
            raise problem(node, f".{name}() is private; use a public operator")
        if in_place(name):
            raise problem(
                node,
                f".{name}() works in place: use .{name.rstrip('_')}(), whose result is new. Only buffers are "
                "updated, as a statement: self.<buffer>.copy_(value)",
            )
        kinds_of = self.arguments(node, kinds)
        if name == "to" and "str" in kinds_of:
            raise problem(node, ".to() takes a dtype (torch.float16) or another tensor's dtype, not a device name")
        if kind in ("num", "none", "str", "seq"):
            raise problem(node, f"a {SAID[kind]} has no method {name} in a plan")
        if name == "size":
            return "num" if node.args or node.keywords else "shape"
        if name in ("numel", "nelement", "dim", "ndimension", "is_contiguous", "element_size", "storage_offset"):
            return "num"
        return "tensor" if name in _TENSOR_METHODS else "any"

    def arguments(self, node: ast.Call, kinds: Kinds) -> list[str]:
        """Check arguments; out=, inplace=True and generator= are refused."""
        found = [self.value(a.value if isinstance(a, ast.Starred) else a, kinds) for a in node.args]
        for keyword in node.keywords:
            if keyword.arg is None:
                raise problem(keyword.value, "** is not allowed in a call")
            if keyword.arg == "out":
                raise problem(keyword.value, "out= writes in place; use the returned value")
            if keyword.arg == "inplace" and not _is_constant(keyword.value, False):
                raise problem(keyword.value, "inplace= is not allowed; use the returned value")
            if keyword.arg == "generator":
                raise problem(keyword.value, "generator= is random state; a plan has none")
            if keyword.arg == "device" and is_str(keyword.value):
                raise problem(
                    keyword.value, "a plan stays on the device of its inputs; leave device out or write device=x.device"
                )
            found.append(self.value(keyword.value, kinds))
        return found


# ---------------------------------------------------------------- helpers


def problem(node: ast.AST, message: str) -> ProgramError:
    """The error of a node, with its line."""
    return ProgramError(message, getattr(node, "lineno", 0))


def in_place(name: str) -> bool:
    """relu_ and the like."""
    return name.endswith("_") and not name.endswith("__")


def is_str(node: ast.expr | None) -> bool:
    """A string literal."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def str_of(node: ast.expr | None) -> str:
    """The value of a string literal, "" for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def is_range(node: ast.expr) -> bool:
    """range(...)."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"


def _is_finfo(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and library_name(node.func) in (("torch", ("finfo",)), ("torch", ("iinfo",)))


def _rooted_at_self(func: ast.expr) -> bool:
    """self.method(...) itself, as against self.weight.t(), whose owner may be a tensor."""
    return isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name)
