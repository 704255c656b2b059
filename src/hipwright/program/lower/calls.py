"""Lowers the calls in a plan: host functions, library calls and tensor methods. Imports torch."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any

from hipwright.program.ast_queries import error_at
from hipwright.program.language import EMPTIES, HOST, MATH, METADATA_METHODS, library_name
from hipwright.program.lower import ops
from hipwright.program.lower.emission import Emission
from hipwright.program.lower.folding import UNROLL, Constant, Lowered, at, class_hint, describe
from hipwright.program.lower.host_values import is_host_value
from hipwright.program.lower.plan import HOST_CALLS, MATH_CALLS
from hipwright.program.lower.table import StateModule, StateTensor
from hipwright.widened import widened


class CallLowering(Emission):
    """Lowers the calls of one function."""

    def value(self, node: ast.expr) -> Lowered:
        """Lowers an expression; a Constant when its value is known at lowering."""
        raise NotImplementedError

    def lower_call(self, node: ast.Call) -> Lowered:
        """Lowers a host function, a library call or a method."""
        if isinstance(node.func, ast.Name):
            return self.host_call(node, HOST[node.func.id], HOST_CALLS[node.func.id], f"__hw_h_{node.func.id}")
        assert isinstance(node.func, ast.Attribute)
        library = library_name(node.func)
        if library is None:
            return self.method(node, node.func)
        space, rest = library
        if space == "math":
            return self.host_call(node, MATH[rest[0]], MATH_CALLS[rest[0]], f"__hw_math_{rest[0]}")
        if space == "torch" and rest[0] in EMPTIES:
            found = getattr(self.shared.allocator, rest[0])
            function = self.bound("__hw_empty", found)
        else:
            has_device = any(k.arg == "device" for k in node.keywords)
            function = self.resolve(space, rest, node, device=ops.is_factory(space, rest[0]) and not has_device)
        args, keywords = self.arguments(node)
        return self.call(function, args, node, keywords)

    def host_call(self, node: ast.Call, fold: Callable[..., Any], function: Callable[..., Any], name: str) -> Lowered:
        """Lowers min, cdiv, range, math.sqrt, ...; folds them when all arguments are known."""
        low = [self.value(a) for a in node.args if not isinstance(a, ast.Starred)]
        if len(low) == len(node.args) and not node.keywords and all(isinstance(v, Constant) for v in low):
            found = self.folded_call(node, fold, [v.value for v in low if isinstance(v, Constant)])
            if found is not None:
                return found
        args, keywords = self.arguments(node)
        if keywords:
            raise error_at(node, "host functions take their arguments by position")
        if all(is_host_value(arg, self.host_names) for arg in args):
            name, function = name.replace("__hw_", "__hw_raw_", 1), fold
        self.globals[name] = function
        return self.call(name, args, node)

    def folded_call(self, node: ast.Call, fold: Callable[..., Any], args: list[Any]) -> Constant | None:
        """The result of a host function on known arguments, None where it is left to run time."""
        loops = fold in (enumerate, zip, reversed, tuple)
        if fold is len and len(args) == 1 and isinstance(args[0], StateModule):
            return Constant(len(self.items(Constant(args[0]), node)))
        if loops:
            args = [self.items(Constant(a), node) if isinstance(a, StateModule) else a for a in args]
            if any(isinstance(a, range) and len(a) > UNROLL for a in args):
                return None
        if any(isinstance(a, (StateTensor, StateModule)) for a in args):
            return None
        try:
            found = fold(*args)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise error_at(node, f"{ast.unparse(node)}: {error}") from None
        return Constant(tuple(found) if loops else found)

    def method(self, node: ast.Call, func: ast.Attribute) -> Lowered:
        """Lowers a method of a tensor; folds metadata of the model's own tensors."""
        owner = self.value(func.value)
        if isinstance(owner, Constant) and isinstance(owner.value, StateModule):
            path = ast.unparse(func)
            raise error_at(
                node,
                f"{path}(...) is not callable in a plan: it belongs to the model"
                f"{class_hint(self.table.class_of(owner.value))}; write the operator with {path}.weight and the like",
            )
        if isinstance(owner, Constant) and not isinstance(owner.value, StateTensor):
            raise error_at(node, f"{ast.unparse(func.value)} is {describe(owner.value)} and has no method {func.attr}")
        if func.attr in EMPTIES:
            function = self.bound("__hw_empty", getattr(self.shared.allocator, func.attr))
        else:
            function = self.resolve("method", (func.attr,), node)
        args, keywords = self.arguments(node)
        if isinstance(owner, Constant) and func.attr in METADATA_METHODS and not keywords:
            constants = [a.value for a in args if isinstance(a, ast.Constant)]
            if len(constants) == len(args) and func.attr != "is_contiguous":
                found = self.globals[function](owner.value.tensor, *constants)
                return Constant(tuple(found) if isinstance(found, tuple) else found)
        return self.call(function, [self.emit(owner, node), *args], node, keywords)

    def arguments(self, node: ast.Call) -> tuple[list[ast.expr], list[ast.keyword]]:
        """The lowered positional and keyword arguments."""
        args: list[ast.expr] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                args.append(at(ast.Starred(value=self.on_host(self.value(arg.value), arg), ctx=ast.Load()), arg))
            else:
                args.append(self.emit(self.value(arg), arg))
        return args, [ast.keyword(k.arg, self.emit(self.value(k.value), k.value)) for k in node.keywords]

    def resolve(
        self, space: str, rest: tuple[str, ...], node: ast.AST, *, in_place: bool = False, device: bool = False
    ) -> str:
        """The global name of a library call."""
        try:
            found = ops.resolve(space, rest, allow_random=self.shared.allow_random, in_place=in_place)
        except ops.OperatorRefused as why:
            raise error_at(node, str(why)) from None
        if self.shared.device == "cpu" and space != "math":
            found = widened(found)
        if not device:
            return self.bound(f"__hw_{space}_{'_'.join(rest)}", found)
        name = f"__hw_made_{'_'.join(rest)}"
        self.globals[name] = functools.partial(found, device=self.shared.device)
        return name
