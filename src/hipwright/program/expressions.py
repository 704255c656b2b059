"""Static checks of expressions: names, attributes and indices (calls: `check_calls`; statements and launches: `check`).

Every expression has a static type, known without torch: "tensor", "num", "shape", "seq", "str", "none", "self" (an
attribute of the model, perhaps a module) or "any".
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import NoReturn

from hipwright.program.ast_queries import error_at, is_range
from hipwright.program.check_calls import TYPE_NAMES, CallChecker, LocalTypes
from hipwright.program.language import (
    FINFO_FIELDS,
    HOST_FUNCTIONS,
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


@dataclass
class ExpressionChecker(CallChecker):
    """Checks the expressions of one function, named `where`. prepared: the names that prepare returns."""

    parsed: Parsed
    where: str
    prepared: tuple[str, ...]
    paths: dict[str, None] = field(default_factory=dict)
    launched: dict[str, None] = field(default_factory=dict)
    locals: set[str] = field(default_factory=set)

    # ------------------------------------------------------------ assignment

    def assign(self, target: ast.expr, type_: str, types: LocalTypes) -> None:
        """Binds a name, or unpacks into names."""
        if isinstance(target, ast.Name):
            self.bindable(target.id, target)
            types[target.id] = type_
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                inner = item.value if isinstance(item, ast.Starred) else item
                part = {"shape": "num", "self": "self"}.get(type_, "any")
                self.assign(inner, part if inner is item else "any", types)
        else:
            self.refuse_target(target)

    def refuse_target(self, target: ast.expr) -> NoReturn:
        """Refuses targets other than names: self.x = ..., y[0] = ..."""
        if is_self_path(target):
            raise error_at(target, "self is read only; keep the value in a local name, or pack it in prepare")
        if isinstance(target, ast.Subscript):
            raise error_at(
                target, "tensors are not written in place; make a new one (torch.cat, torch.where, a kernel)"
            )
        raise error_at(target, "only names can be assigned")

    def bindable(self, name: str, node: ast.AST) -> None:
        """Refuses names that have a meaning already."""
        if name in RESERVED or name in self.parsed.kernels.signatures:
            what = "a kernel" if name in self.parsed.kernels.signatures else "part of the plan language"
            raise error_at(node, f"{name} is {what}; choose another name")
        if name in self.parsed.knobs or name in self.parsed.constants:
            raise error_at(node, f"{name} is a knob or constant and cannot be assigned; choose another name")
        if name.startswith("__"):
            raise error_at(node, f"{name}: names with two leading underscores are not allowed")

    # ------------------------------------------------------------ expressions

    def value(self, node: ast.expr, types: LocalTypes) -> str:
        """Checks an expression; returns its static type."""
        match node:
            case ast.Constant():
                return self.constant(node)
            case ast.Name():
                return self.name(node, types)
            case ast.Attribute():
                return self.attribute(node, types)
            case ast.Subscript():
                return self.subscript(node, types)
            case ast.Call():
                return self.call(node, types)
            case ast.BinOp():
                return self.arithmetic(self.value(node.left, types), self.value(node.right, types))
            case ast.UnaryOp():
                type_ = self.value(node.operand, types)
                return "num" if isinstance(node.op, ast.Not) else type_
            case ast.BoolOp():
                return self.merge([self.value(v, types) for v in node.values])
            case ast.Compare():
                parts = {self.value(v, types) for v in (node.left, *node.comparators)}
                return "num" if parts <= {"num", "none", "str", "shape"} else "any"
            case ast.IfExp():
                self.value(node.test, types)
                return self.merge([self.value(node.body, types), self.value(node.orelse, types)])
            case ast.Tuple() | ast.List():
                for item in node.elts:
                    self.value(item.value if isinstance(item, ast.Starred) else item, types)
                return "seq"
            case ast.ListComp():
                return self.comprehension(node, types)
            case _:
                raise error_at(
                    node, _EXPRESSION_HELP.get(type(node).__name__, f"{type(node).__name__} is not allowed here")
                )

    def item_type(self, node: ast.expr, type_: str, types: LocalTypes) -> str:
        """The type of the items of a loop over `node`, which has the type `type_`."""
        if is_range(node) or type_ == "shape":
            return "num"
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        return "self" if any(n == "self" or types.get(n) == "self" for n in names) else "any"

    def merge(self, types: list[str]) -> str:
        """The common type: "self" if any is, else "any" where they differ."""
        return types[0] if len(set(types)) == 1 else "self" if "self" in types else "any"

    def arithmetic(self, left: str, right: str) -> str:
        """The type of a binary operator's result."""
        if "tensor" in (left, right):
            return "tensor"
        if left == right == "num":
            return "num"
        return "seq" if {left, right} <= {"shape", "seq"} else "any"

    def constant(self, node: ast.Constant) -> str:
        """Checks a literal: a number, a string, a boolean, None or `...`; a complex number is for operators alone."""
        if isinstance(node.value, bytes):
            raise error_at(node, f"a {type(node.value).__name__} literal is not allowed")
        if node.value is None:
            return "none"
        return "str" if isinstance(node.value, str) else "num" if isinstance(node.value, (int, float)) else "any"

    def name(self, node: ast.Name, types: LocalTypes) -> str:
        """Checks a name: a local, a knob or a constant."""
        name = node.id
        if name in types:
            return types[name]
        if name in self.parsed.knobs or name in self.parsed.constants:
            return "num"
        if name in self.parsed.kernels.signatures:
            raise error_at(node, f"{name} is a kernel; launch it as a statement of its own: {name}[grid, block](...)")
        if name == "self":
            raise error_at(node, "self is not a value; read what you need, e.g. self.weight")
        if name in ROOTS or name in HOST_FUNCTIONS:
            raise error_at(
                node,
                f"{name} is not a value; call what you need, e.g. "
                f"{'min(a, b)' if name in HOST_FUNCTIONS else name + '.<operator>(...)'}",
            )
        if name in self.locals:
            raise error_at(node, f"{name} is used before it is assigned")
        known = (*types, *self.parsed.knobs, *self.parsed.constants)
        raise error_at(node, f"unknown name {name}{did_you_mean(name, known)}")

    def attribute(self, node: ast.Attribute, types: LocalTypes) -> str:
        """Checks an attribute: a torch constant, self.<path> or metadata of a tensor."""
        library = library_name(node)
        if library is not None:
            return self.library_value(node, *library)
        if is_self_path(node):
            return self.self_path(node, types)
        if _is_finfo(node.value):
            if node.attr not in FINFO_FIELDS:
                raise error_at(node, f"torch.finfo has {', '.join(FINFO_FIELDS)}")
            self.value(node.value, types)
            return "num"
        owner = self.value(node.value, types)
        if owner == "self":  # the state table, known at lowering, has the attribute's type
            return {"shape": "shape", "ndim": "num", "training": "num"}.get(node.attr, "self")
        if node.attr not in VALUE_ATTRIBUTES:
            hint = refusal(node.attr)
            why = f": {hint}" if hint else did_you_mean(node.attr, VALUE_ATTRIBUTES)
            raise error_at(node, f".{node.attr} is not readable in a plan{why}")
        if node.attr in ("T", "mT", "H", "mH"):
            return "tensor"
        return {"shape": "shape", "ndim": "num"}.get(node.attr, "any")

    def library_value(self, node: ast.Attribute, space: str, rest: tuple[str, ...]) -> str:
        """Checks a library name used as a value, such as torch.float32 or math.pi; functions are no values."""
        if space == "torch" and rest[0] in TORCH_VALUES and len(rest) == 1:
            return "num" if rest[0] in MATH_VALUES else "any"
        if space == "math" and rest[0] in MATH_VALUES:
            return "num"
        hint = refusal(rest[-1])
        other = f": {hint}" if hint else did_you_mean(rest[-1], TORCH_VALUES) or "; call it, or use a dtype"
        raise error_at(node, f"{ast.unparse(node)} is not a value in a plan{other}")

    def self_path(self, node: ast.expr, types: LocalTypes) -> str:
        """Records a path of self; `self.prepared.<name>` must be one of prepare's names."""
        parts: list[str] = []
        base: ast.expr = node
        while isinstance(base, (ast.Attribute, ast.Subscript)):
            if isinstance(base, ast.Attribute):
                if base.attr.startswith("__"):
                    raise error_at(base, f".{base.attr}: names with two leading underscores are not allowed")
                parts.append(base.attr)
            else:
                self.index(base.slice, types)
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
        """Checks self.prepared.<name>."""
        if self.where == "prepare":
            raise error_at(node, "prepare cannot read self.prepared; use the local name")
        if not self.parsed.has_prepare:
            raise error_at(node, "there is no prepare(self) in this program, so self.prepared is empty")
        if len(parts) < 2:
            raise error_at(node, "read one prepared value by name, e.g. self.prepared.w")
        if parts[1] not in self.prepared:
            raise error_at(node, f"prepare returns no {parts[1]}{did_you_mean(parts[1], self.prepared)}")
        return "any"

    def subscript(self, node: ast.Subscript, types: LocalTypes) -> str:
        """Checks an index or a slice of a tensor, tuple or module list."""
        if is_self_path(node):
            return self.self_path(node, types)
        if isinstance(node.value, ast.Name) and node.value.id in self.parsed.kernels.signatures:
            raise error_at(node, f"a launch needs its arguments: {node.value.id}[grid, block](...)")
        type_ = self.value(node.value, types)
        if type_ in ("num", "none"):
            raise error_at(node, f"a {TYPE_NAMES[type_]} cannot be indexed")
        self.index(node.slice, types)
        if type_ == "shape":
            return "shape" if isinstance(node.slice, ast.Slice) else "num"
        return type_ if type_ in ("tensor", "self") else "any"

    def index(self, node: ast.expr, types: LocalTypes) -> None:
        """Checks the inside of brackets."""
        if isinstance(node, ast.Slice):
            for part in (node.lower, node.upper, node.step):
                if part is not None:
                    self.value(part, types)
        elif isinstance(node, ast.Tuple):
            for item in node.elts:
                self.index(item, types)
        elif isinstance(node, ast.Starred):
            raise error_at(node, "* is not allowed in an index")
        else:
            self.value(node, types)

    def comprehension(self, node: ast.ListComp, types: LocalTypes) -> str:
        """Checks a list comprehension: one `for` over what a loop may run over, without conditions."""
        if len(node.generators) != 1 or node.generators[0].ifs:
            raise error_at(node, "a list comprehension has one for and no if; write a for loop and build a tuple")
        generator = node.generators[0]
        if generator.is_async:
            raise error_at(node, "async is not allowed")
        type_ = self.value(generator.iter, types)
        if type_ in ("tensor", "num", "str", "none"):
            raise error_at(
                generator.iter,
                f"a loop runs over range(...), a tuple, a shape or a module list, not over a {TYPE_NAMES[type_]}",
            )
        inner = dict(types)
        self.assign(generator.target, self.item_type(generator.iter, type_, types), inner)
        self.value(node.elt, inner)
        return "seq"


def _is_finfo(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and library_name(node.func) in (("torch", ("finfo",)), ("torch", ("iinfo",)))
