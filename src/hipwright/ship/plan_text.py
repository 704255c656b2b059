"""The launch plan as plain Python.

`self.…` becomes arguments and constants, a launch becomes a call, a guard raises an exception.
"""

from __future__ import annotations

import ast
import copy
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from hipwright import syntax
from hipwright.errors import ProgramError
from hipwright.program.language import FACTORIES, HOST_FUNCTIONS, ROOTS, library_name
from hipwright.program.lower.table import StateModule, StateTable, StateTensor, UnknownMember
from hipwright.program.parsed import Parsed
from hipwright.program.plan_statements import PlanStatements

_TAKEN = {*ROOTS, *HOST_FUNCTIONS, "self", "Declined", "SimpleNamespace", "call_forward", "call_backward"}


class PlanText:
    """The functions of one program as Python text, and the parameters and buffers that they read.

    state: path -> its local name, the same in every function, in the order of the model's state table.
    """

    def __init__(self, parsed: Parsed, knobs: Mapping[str, int], table: StateTable, taken: Iterable[str] = ()) -> None:
        self.parsed, self.table = parsed, table
        self.values = parsed.values(knobs)
        self.used = {n.id for f in parsed.functions.values() for n in ast.walk(f) if isinstance(n, ast.Name)}
        self.used |= (
            {a.arg for f in parsed.functions.values() for a in f.args.args} | _TAKEN | set(self.values) | set(taken)
        )
        self.k, self.device, self.packed = (self._unused_name(name) for name in ("k", "device", "packed"))
        self._names = {path: self._unused_name(re.sub(r"\W", "_", path)) for path in table.tensors()}
        self._read: set[str] = set()
        bodies = {name: self._body(name) for name in ("prepare", "forward", "backward") if name in parsed.functions}
        self.state = {path: name for path, name in self._names.items() if path in self._read}
        self.functions = {name: self._text(name, body) for name, body in bodies.items()}

    def _unused_name(self, name: str) -> str:
        """A name that is not used in the plan yet."""
        name = name if name[:1].isalpha() or name[:1] == "_" else f"p_{name}"
        while name in self.used or re.fullmatch(r"(grad|saved|out|new)\d*", name):
            name += "_"
        self.used.add(name)
        return name

    def constants(self) -> str:
        """The knobs and constants that the plan reads, as assignments, one a line."""
        names = {n.id for f in self.parsed.functions.values() for n in ast.walk(f) if isinstance(n, ast.Name)}
        return "\n".join(f"{name} = {value!r}" for name, value in self.values.items() if name in names)

    def inputs(self, name: str) -> list[str]:
        """The function's parameters without self."""
        return [a.arg for a in self.parsed.functions[name].args.args][1:]

    def leading_arguments(self, name: str) -> list[str]:
        """The arguments before the inputs: kernels, device, packed weights."""
        packed = [self.packed] if self.parsed.has_prepare and name != "prepare" else []
        return [self.k, self.device, *packed]

    # ------------------------------------------------------------ one function

    def _body(self, name: str) -> list[ast.stmt]:
        rewrite = _Rewrite(self)
        body: list[ast.stmt] = []
        for node in copy.deepcopy(self.parsed.functions[name]).body:
            made = rewrite.visit(node)
            body += made if isinstance(made, list) else [made]
        if rewrite.whole:  # a module is used as a value: pass an object with its attributes
            self._read |= set(self._names)
            made_self = syntax.parse(f"self = {self._stand_in(StateModule(''))}").body
            body = [*made_self, *body]
        return body

    def _text(self, name: str, body: list[ast.stmt]) -> str:
        args = ", ".join([*self.leading_arguments(name), *self.inputs(name), *self.state.values()])
        lines = [ast.unparse(ast.fix_missing_locations(node)) for node in body]
        return f"def {name}({args}):\n" + "\n".join(f"    {line}" for text in lines for line in text.split("\n"))

    def resolve(self, node: ast.expr) -> Any:
        """The module, state or value that an attribute chain on self refers to, else _Unknown. Raises UnknownMember."""
        if isinstance(node, ast.Name):
            return StateModule("") if node.id == "self" else _Unknown
        if isinstance(node, ast.Attribute):
            owner = self.resolve(node.value)
            if not isinstance(owner, StateModule) or (owner.path == "" and node.attr == "prepared"):
                return _Unknown
            return self.table.member(owner, node.attr)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            owner = self.resolve(node.value)
            key = node.slice.value
            if isinstance(owner, StateModule) and isinstance(key, (int, str)):
                return self.table.item(owner, key)
        return _Unknown

    def name_of(self, state: StateTensor) -> ast.expr:
        """The local name of a parameter or buffer."""
        self._read.add(state.path)
        return ast.Name(self._names[state.path], ast.Load())

    def _stand_in(self, module: StateModule) -> str:
        """An expression for an object with the module's attributes; a module list becomes a list."""
        if self.table.length(module) >= 0:
            return f"[{', '.join(self._member(item) for item in self.table.items(module))}]"
        names = [n for n in self.table._names(module) if n.isidentifier()]
        fields = [f"{n}={self._member(self.table.member(module, n))}" for n in names if n != "training"]
        return f"SimpleNamespace({', '.join([*fields, f'training={self.table.training}'])})"

    def _member(self, value: Any) -> str:
        if isinstance(value, StateTensor):
            return self._names[value.path]
        return self._stand_in(value) if isinstance(value, StateModule) else spelled(value)


class _Unknown:
    """Marks an expression that is not an attribute chain on self."""


class _Rewrite(PlanStatements):
    """Rewrites the plan's own forms as Python."""

    def __init__(self, plain: PlanText) -> None:
        self.plain, self.whole = plain, False

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """A guard raises Declined, also under python -O."""
        why = node.msg.value if isinstance(node.msg, ast.Constant) else ast.unparse(node.test)
        body = syntax.parse(f"raise Declined({str(why)!r})").body
        return ast.If(test=ast.UnaryOp(ast.Not(), self.visit(node.test)), body=body, orelse=[])

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """`self` alone: the model used as a value, which needs an object with its attributes."""
        self.whole = self.whole or node.id == "self"
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """self.prepared.w -> packed["w"]; self.fc.weight -> its argument; self.eps -> its value."""
        if isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr == "prepared":
            return ast.Name(self.plain.packed, ast.Load())
        if isinstance(node.value, ast.Attribute) and ast.unparse(node.value) == "self.prepared":
            return ast.Subscript(ast.Name(self.plain.packed, ast.Load()), ast.Constant(node.attr), ast.Load())
        return self._resolved(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """`self.layers[0]...` is an attribute chain too."""
        return self._resolved(node)

    def _resolved(self, node: ast.expr) -> ast.AST:
        try:
            found = self.plain.resolve(node)
        except UnknownMember:  # a branch that is not taken may name an attribute that the model lacks
            return ast.Constant(None)
        if isinstance(found, StateTensor):
            return self.plain.name_of(found)
        if isinstance(found, StateModule):
            self.whole = True
            return node
        if found is _Unknown:
            return self.generic_visit(node)
        return syntax.parse(f"({spelled(found)})", mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """kernel[grid, block](...) -> k.kernel(grid, block, lds, ...); torch.zeros(n) -> torch.zeros(n, device=...)."""
        func = node.func
        if isinstance(func, ast.Subscript) and isinstance(func.value, ast.Name) and isinstance(func.slice, ast.Tuple):
            shape = [self.visit(part) for part in func.slice.elts]
            lds = shape[2:] or [ast.Constant(0)]
            launch = ast.Attribute(ast.Name(self.plain.k, ast.Load()), func.value.id, ast.Load())
            return ast.Call(launch, [*shape[:2], *lds, *(self.visit(a) for a in node.args)], [])
        self.generic_visit(node)
        library = library_name(func)
        makes = library is not None and library[0] == "torch" and library[1][0] in FACTORIES
        if makes and all(keyword.arg != "device" for keyword in node.keywords):
            node.keywords.append(ast.keyword("device", ast.Name(self.plain.device, ast.Load())))
        return node


def spelled(value: Any) -> str:
    """A constant as Python text. Raises ProgramError for other values."""
    if isinstance(value, tuple):
        return f"({', '.join(map(spelled, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    raise ProgramError(f"an attribute of the model is {value!r}, which cannot be written into a package")
