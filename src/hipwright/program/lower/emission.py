"""Builds the nodes of lowered functions, including those of values known at lowering. Imports torch."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hipwright.program.ast_queries import error_at
from hipwright.program.lower.arguments import Allocator, KernelLauncher
from hipwright.program.lower.folding import Constant, Lowered, at, class_hint, describe
from hipwright.program.lower.host_values import is_host_value
from hipwright.program.lower.plan import getitem, guard_failed, host
from hipwright.program.lower.table import StateModule, StateTable, StateTensor, UnknownMember
from hipwright.program.parsed import Parsed


@dataclass
class PlanScope:
    """What the functions of one plan share."""

    parsed: Parsed
    values: dict[str, Any]
    table: StateTable
    launcher: KernelLauncher
    allow_random: bool
    device: str

    def __post_init__(self) -> None:
        self.prepared: dict[str, Any] = {}
        self.allocator = Allocator(self.launcher)
        self.launches: dict[str, Callable[..., None]] = {}


class Emission:
    """One lowered function under construction. env: the known values of locals at the current statement."""

    def __init__(self, shared: PlanScope) -> None:
        self.shared = shared
        self.table = shared.table
        self.env: dict[str, Any] = {}
        self.globals: dict[str, Any] = {
            "__builtins__": {"__import__": __import__},
            "__hw_host": host,
            "__hw_getitem": getitem,
            "__hw_slice": slice,
            "__hw_fail": guard_failed,
            "__hw_zero": ZeroDivisionError,
            "__hw_prepared": shared.prepared,
        }
        self.names: dict[tuple[str, int], str] = {}
        self.used: list[Any] = []  # state tensors that the function reads
        self.locals: set[str] = set()
        self.inputs: set[str] = set()  # parameters of forward that keep their names
        self.host_names: frozenset[str] = frozenset()  # names that are never tensors
        self.nodes = 0

    def bound(self, lead: str, value: Any) -> str:
        """The global name of an object of ours; the same object keeps its name."""
        key = (lead, id(value))
        if key not in self.names:
            self.names[key] = f"{lead}_{len(self.names)}"
            self.globals[self.names[key]] = value
        return self.names[key]

    def call(
        self, name: str, args: list[ast.expr], node: ast.AST, keywords: list[ast.keyword] | None = None
    ) -> ast.expr:
        """The node of a call of one of our globals."""
        function = at(ast.Name(name, ast.Load()), node)
        return at(ast.Call(func=function, args=args, keywords=keywords or []), node)

    def index(self, base: ast.expr, key: ast.expr, node: ast.AST) -> ast.expr:
        """The node of base[key]."""
        return at(ast.Subscript(value=base, slice=key, ctx=ast.Load()), node)

    def on_host(self, value: Lowered, node: ast.AST | None = None) -> ast.expr:
        """The node of a value, which is checked at run time not to be a tensor unless that is proved."""
        if isinstance(value, Constant):
            return self.emit(value, node or ast.Constant(0))
        if is_host_value(value, self.host_names):
            return value
        return self.call("__hw_host", [value], value)

    def emit(self, value: Lowered, node: ast.AST) -> ast.expr:
        """The node of a lowered value."""
        if not isinstance(value, Constant):
            return value
        known = value.value
        if isinstance(known, StateTensor):
            self.used.append(known.tensor)
            return at(ast.Name(self.bound("__hw_t", known.tensor), ast.Load()), node)
        if isinstance(known, StateModule):
            raise error_at(
                node,
                f"self.{known.path} is {describe(known)}{class_hint(self.table.class_of(known))}, not a value; "
                "read its parameters, e.g. .weight",
            )
        if isinstance(known, (bool, int, float, complex, str)) or known is None or known is ...:
            return at(ast.Constant(known), node)
        if isinstance(known, tuple):
            return at(ast.Tuple(elts=[self.emit(Constant(v), node) for v in known], ctx=ast.Load()), node)
        return at(ast.Name(self.bound("__hw_c", known), ast.Load()), node)

    def items(self, known: Constant, node: ast.AST) -> Any:
        """The items of a loop over a known value."""
        if isinstance(known.value, StateModule):
            try:
                return tuple(self.table.items(known.value))
            except UnknownMember as why:
                raise error_at(node, str(why)) from None
        if isinstance(known.value, (tuple, range)):
            return known.value
        raise error_at(node, f"a loop cannot run over {describe(known.value)}; use range(n), a tuple or a module list")

    def truth(self, known: Constant, node: ast.AST) -> bool:
        """The truth value of a known value."""
        if isinstance(known.value, StateTensor):
            raise error_at(node, f"self.{known.value.path} is a tensor and has no truth value; test `is not None`")
        return True if isinstance(known.value, StateModule) else bool(known.value)
