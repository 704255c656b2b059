"""Lowers expressions to a Constant (folded) or a node of the lowered function. Imports torch."""

from __future__ import annotations

import ast
from typing import Any

from hipwright.program.ast_queries import error_at
from hipwright.program.language import (
    FINFO_FIELDS,
    VALUE_ATTRIBUTES,
    assigned_names,
    library_name,
)
from hipwright.program.lower import ops
from hipwright.program.lower.calls import CallLowering
from hipwright.program.lower.folding import (
    COMPARE,
    UNROLL,
    Constant,
    Lowered,
    at,
    fold,
    holds_module,
    store,
)
from hipwright.program.lower.table import StateModule, StateTensor, UnknownMember


class ExpressionLowering(CallLowering):
    """Lowers the expressions of one function."""

    def value(self, node: ast.expr) -> Lowered:
        """Lowers an expression; a Constant when its value is known at lowering."""
        self.nodes += 1
        match node:
            case ast.Constant():
                return Constant(node.value)
            case ast.Name():
                return self.name(node)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript():
                return self.subscript(node)
            case ast.Call():
                return self.lower_call(node)
            case ast.BinOp():
                return self.binary(node)
            case ast.UnaryOp():
                return self.unary(node)
            case ast.BoolOp():
                return self.boolean(node)
            case ast.Compare():
                return self.compare(node)
            case ast.IfExp():
                test = self.value(node.test)
                if isinstance(test, Constant):
                    return self.value(node.body if self.truth(test, node) else node.orelse)
                yes, no = (self.emit(self.value(v), v) for v in (node.body, node.orelse))
                return at(ast.IfExp(test=self.on_host(test), body=yes, orelse=no), node)
            case ast.Tuple() | ast.List():
                return self.sequence(node)
            case ast.ListComp():
                return self.comprehension(node)
            case _:
                raise error_at(node, f"{type(node).__name__} is not allowed in a plan")

    def name(self, node: ast.Name) -> Lowered:
        """Lowers a name: a known local, a knob, `self`, or a local of the lowered function."""
        if node.id in self.env:
            return Constant(self.env[node.id])
        if node.id in self.shared.values:
            return Constant(self.shared.values[node.id])
        if node.id == "self":
            return Constant(StateModule(""))
        if node.id not in self.locals:  # `check` ensures it; a lowered function must not read our own globals
            raise error_at(node, f"unknown name {node.id}")
        return at(ast.Name(node.id, ast.Load()), node)

    def attribute(self, node: ast.Attribute) -> Lowered:
        """Lowers an attribute: self.<path>, a torch constant, or metadata of a value."""
        library = library_name(node)
        if library is not None:
            space, rest = library
            return Constant(ops.torch_value(rest[0]) if space == "torch" else ops.math_value(rest[0]))
        owner = self.value(node.value)
        if isinstance(owner, Constant):
            if isinstance(owner.value, StateModule):
                return self.member(owner.value, node.attr, node)
            if isinstance(owner.value, StateTensor) and node.attr in ("shape", "ndim", "dtype"):
                found = getattr(owner.value.tensor, node.attr)
                return Constant(tuple(found) if node.attr == "shape" else found)
        if node.attr not in VALUE_ATTRIBUTES and node.attr not in FINFO_FIELDS:
            raise error_at(node, f".{node.attr} is not readable in a plan")
        return at(ast.Attribute(self.emit(owner, node), node.attr, ast.Load()), node)

    def member(self, module: StateModule, name: str, node: ast.expr) -> Lowered:
        """Lowers self.<module>.<name>; self.prepared is the dict of prepared values."""
        if module.path == "prepared":
            return self.index(ast.Name("__hw_prepared", ast.Load()), ast.Constant(name), node)
        if not module.path and name == "prepared" and self.shared.parsed.has_prepare:
            return Constant(StateModule("prepared"))
        try:
            return Constant(self.table.member(module, name))
        except UnknownMember as why:
            raise error_at(node, str(why)) from None

    def subscript(self, node: ast.Subscript) -> Lowered:
        """Lowers an item of a module list, of a known tuple, or of a value."""
        owner = self.value(node.value)
        if isinstance(owner, Constant) and isinstance(owner.value, StateModule):
            return self.module_item(owner.value, node)
        if isinstance(owner, Constant) and isinstance(owner.value, (tuple, range, str)):
            key = self.known_key(node.slice)
            if key is not None:
                try:
                    found = owner.value[key.value]
                except (IndexError, TypeError) as error:
                    raise error_at(node, f"{ast.unparse(node)}: {error}") from None
                return Constant(tuple(found) if isinstance(found, range) else found)
        simple, key_node = self.key(node.slice)
        base = self.emit(owner, node)
        if simple:
            return self.index(base, key_node, node)
        return self.call("__hw_getitem", [base, key_node], node)

    def module_item(self, module: StateModule, node: ast.Subscript) -> Lowered:
        """Lowers an item of a module list, or a prepared value."""
        key = self.known_key(node.slice)
        if key is None or not isinstance(key.value, (int, str)):
            raise error_at(
                node,
                f"{ast.unparse(node)}: the index of a module list must be known when the plan is lowered; loop "
                f"over range(len({ast.unparse(node.value)})) or over the list itself",
            )
        if module.path == "prepared":
            return self.member(module, str(key.value), node)
        try:
            return Constant(self.table.item(module, key.value))
        except UnknownMember as why:
            raise error_at(node, str(why)) from None

    def known_key(self, node: ast.expr) -> Constant | None:
        """A key that is wholly known (an integer, a string or a slice), else None."""
        if isinstance(node, ast.Slice):
            parts = [Constant(None) if p is None else self.value(p) for p in (node.lower, node.upper, node.step)]
            if all(isinstance(p, Constant) for p in parts):
                return Constant(slice(*(p.value for p in parts if isinstance(p, Constant))))
            return None
        found = None if isinstance(node, ast.Tuple) else self.value(node)
        return found if isinstance(found, Constant) else None

    def key(self, node: ast.expr) -> tuple[bool, ast.expr]:
        """(simple, node) of a key: a simple key is known and needs no check at run time."""
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        lowered: list[tuple[bool, list[ast.expr]]] = []
        for part in parts:
            if isinstance(part, ast.Slice):
                low = [Constant(None) if p is None else self.value(p) for p in (part.lower, part.upper, part.step)]
                lowered.append((all(isinstance(p, Constant) for p in low), [self.emit(p, node) for p in low]))
            else:
                value = self.value(part)
                plain = isinstance(value, Constant) and not isinstance(value.value, StateTensor)
                lowered.append((plain, [self.emit(value, part)]))
        simple = all(s for s, _ in lowered)
        out = [
            e[0] if len(e) == 1 else (ast.Slice(*e) if simple else self.call("__hw_slice", e, node)) for _, e in lowered
        ]
        return simple, at(ast.Tuple(elts=out, ctx=ast.Load()) if isinstance(node, ast.Tuple) else out[0], node)

    def binary(self, node: ast.BinOp) -> Lowered:
        """Lowers an arithmetic operation."""
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, Constant) and isinstance(right, Constant):
            try:
                found = fold(node.op, left.value, right.value)
            except (ArithmeticError, TypeError, ValueError) as error:
                raise error_at(node, f"{ast.unparse(node)}: {error}") from None
            if found is not None:
                return found
        return at(ast.BinOp(self.emit(left, node.left), node.op, self.emit(right, node.right)), node)

    def unary(self, node: ast.UnaryOp) -> Lowered:
        """Lowers not, -, + or ~."""
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            if isinstance(value, Constant):
                return Constant(not self.truth(value, node))
            return at(ast.UnaryOp(node.op, self.on_host(value)), node)
        if isinstance(value, Constant) and isinstance(value.value, (bool, int, float)):
            if isinstance(node.op, ast.USub):
                return Constant(-value.value)
            if isinstance(node.op, ast.UAdd):
                return Constant(+value.value)
            if isinstance(value.value, int):
                return Constant(~int(value.value))
        return at(ast.UnaryOp(node.op, self.emit(value, node)), node)

    def boolean(self, node: ast.BoolOp) -> Lowered:
        """Lowers `and` and `or` on operands that are no tensors; drops decided operands."""
        stop_at = isinstance(node.op, ast.Or)
        parts: list[Lowered] = []
        for operand in node.values:
            value = self.value(operand)
            parts.append(value)
            if isinstance(value, Constant):
                if self.truth(value, node) is stop_at:
                    break
                if operand is not node.values[-1]:
                    parts.pop()
        if len(parts) == 1:
            return parts[0]
        return at(ast.BoolOp(op=node.op, values=[self.on_host(p, node) for p in parts]), node)

    def compare(self, node: ast.Compare) -> Lowered:
        """Lowers a comparison, chained or not."""
        values = [self.value(v) for v in (node.left, *node.comparators)]
        only_none = all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
        if all(isinstance(v, Constant) for v in values):
            known = [v.value for v in values if isinstance(v, Constant)]
            if only_none or not any(isinstance(v, (StateTensor, StateModule)) for v in known):
                try:
                    pairs = zip(node.ops, known, known[1:], strict=False)
                    return Constant(all(COMPARE[type(op)](a, b) for op, a, b in pairs))
                except TypeError as error:
                    raise error_at(node, f"{ast.unparse(node)}: {error}") from None
        # `a < b < c` and `in` need truth values, which tensors do not have on the host
        asks = len(node.ops) > 1 or any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops)
        low = [self.on_host(v, node) if asks and not only_none else self.emit(v, node) for v in values]
        return at(ast.Compare(left=low[0], ops=node.ops, comparators=low[1:]), node)

    def sequence(self, node: ast.Tuple | ast.List) -> Lowered:
        """Lowers a tuple or list; a list of known values becomes a tuple."""
        parts: list[Lowered] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                value = self.value(item.value)
                if isinstance(value, Constant):
                    parts += [Constant(v) for v in self.items(value, node)]
                else:
                    parts.append(at(ast.Starred(value=self.on_host(value), ctx=ast.Load()), node))
            else:
                parts.append(self.value(item))
        if isinstance(node, ast.Tuple) and all(isinstance(p, Constant) for p in parts):
            return Constant(tuple(p.value for p in parts if isinstance(p, Constant)))
        elts = [self.emit(p, node) for p in parts]
        return at(type(node)(elts=elts, ctx=ast.Load()), node)

    def comprehension(self, node: ast.ListComp) -> Lowered:
        """Lowers a list comprehension, unrolled where a loop would be."""
        generator = node.generators[0]
        iterable = self.value(generator.iter)
        outer = dict(self.env)
        items = self.unrolled(iterable, node)
        if items is not None:
            elts = []
            for item in items:
                self.bind(generator.target, Constant(item), node)
                elts.append(self.emit(self.value(node.elt), node))
            self.env = outer
            return at(ast.List(elts=elts, ctx=ast.Load()), node)
        for name in assigned_names(generator.target):
            self.env.pop(name, None)
        made = ast.comprehension(target=store(generator.target), iter=self.on_host(iterable, node), ifs=[], is_async=0)
        out = ast.ListComp(elt=self.emit(self.value(node.elt), node), generators=[made])
        self.env = outer
        return at(out, node)

    def bind(self, target: ast.expr, value: Lowered, node: ast.AST) -> None:
        """Records or clears the known value of a target."""
        if isinstance(target, ast.Name):
            if isinstance(value, Constant):
                self.env[target.id] = value.value
            else:
                self.env.pop(target.id, None)
            return
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, Constant):
            items = self.items(value, node) if isinstance(value.value, StateModule) else value.value
            starred = any(isinstance(t, ast.Starred) for t in target.elts)
            if isinstance(items, (tuple, list)) and not starred:
                if len(items) != len(target.elts):
                    raise error_at(node, f"{len(target.elts)} names are unpacked from {len(items)} values")
                for inner, item in zip(target.elts, items, strict=True):
                    self.bind(inner, Constant(item), node)
                return
        for name in assigned_names(target):
            self.env.pop(name, None)

    def unrolled(self, iterable: Lowered, node: ast.AST) -> list[Any] | None:
        """The items of a loop that is unrolled, None for one that stays a loop."""
        if not isinstance(iterable, Constant):
            return None
        items = self.items(iterable, node)
        return list(items) if len(items) <= UNROLL or any(map(holds_module, items[:1])) else None
