"""Lowers a checked program to closures: Parsed -> LoweredPlan. Runs in workers; imports torch.

Each function is rebuilt node by node as a plain Python function without builtins: only nodes handled here can appear in
it, and every name in it is a local or one of our own objects. Values known at lowering (knobs, the model's attributes,
module lists, the training flag) are folded, loops over modules are unrolled and decided branches dropped, so a call
costs little more than its library calls and launches.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from hipwright.errors import ProgramError
from hipwright.program.ast_queries import bound_names, error_at, subscripted
from hipwright.program.lower.arguments import KernelLauncher, make_launch
from hipwright.program.lower.emission import PlanScope
from hipwright.program.lower.folding import Constant, Lowered, at, describe, holds_module, returns, store
from hipwright.program.lower.host_values import host_value_names
from hipwright.program.lower.lifetimes import freed
from hipwright.program.lower.plan import FILENAME, LoweredPlan
from hipwright.program.lower.table import StateTable, StateTensor
from hipwright.program.lower.values import ExpressionLowering
from hipwright.program.parsed import Parsed
from hipwright.tensors import Tree

MAX_NODES = 400_000  # statements and expressions of a lowered function


def lower(
    parsed: Parsed,
    knobs: Mapping[str, int],
    table: Tree,
    launcher: KernelLauncher,
    allow_random: bool = False,
    *,
    device: str = "cpu",
) -> LoweredPlan:
    """Binds a checked program to a model's state and a launcher.

    table: the state table (HostTensors or torch tensors; torch tensors are used as they are). Raises ProgramError with
    a line for a path the model does not have, an operator that is unknown or not functional, and the like.
    """
    state = table if isinstance(table, StateTable) else StateTable(table, device=device)
    shared = PlanScope(parsed, dict(parsed.values(knobs)), state, launcher, allow_random, device)
    functions: dict[str, Callable[..., Any]] = {}
    used: list[Any] = []
    try:
        for name in ("prepare", "forward", "backward"):
            if name in parsed.functions:
                shared.allow_random = allow_random and name != "prepare"  # what it packs holds for every seed
                lowered = _Lowerer(shared)
                functions[name] = lowered.function(parsed.functions[name])
                if name == "prepare":
                    used = lowered.used
    except RecursionError:
        raise ProgramError("the program is nested too deeply; use more, simpler statements") from None
    args = parsed.functions["forward"].args
    names = [a.arg for a in args.args][1:]
    return LoweredPlan(functions, names, len(names) - len(args.defaults), state.tensors(), used, shared.prepared)


class _Lowerer(ExpressionLowering):
    """Lowers the statements of one function."""

    # ------------------------------------------------------------ functions and statements

    def function(self, node: ast.FunctionDef) -> Callable[..., Any]:
        """Compiles one function; its parameters are the plan's without self."""
        given = {a.arg for a in node.args.args[1:]}
        self.inputs = given - bound_names(node) if node.name == "forward" else set()
        self.locals = bound_names(node) | given
        self.host_names = host_value_names(node, self.shared.values.keys())
        body = freed(self.block(node.body), sorted(given))
        args = ast.arguments(
            posonlyargs=[],
            args=[ast.arg(arg=a.arg) for a in node.args.args[1:]],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=[self.emit(self.value(d), d) for d in node.args.defaults],
        )
        rebuilt = ast.FunctionDef(name="plan", args=args, body=body or [ast.Pass()], decorator_list=[])
        module = ast.Module(body=[ast.copy_location(rebuilt, node)], type_ignores=[])
        # `module` holds only nodes built in this class; C code in torch imports through the frame's builtins, an entry
        # that no name of the plan can reach
        exec(compile(ast.fix_missing_locations(module), FILENAME, "exec"), self.globals)
        lowered: Callable[..., Any] = self.globals["plan"]
        return lowered

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Lowers statements in order, up to the first that always returns."""
        out: list[ast.stmt] = []
        for node in body:
            out += self.statement(node)
            if out and returns(out[-1]):
                break
        return out

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """Lowers one statement into none, one or (unrolled) several."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise error_at(node, "the plan becomes too large when its loops are unrolled; use fewer iterations")
        match node:
            case ast.Assign():
                return self.assign(node.targets, self.value(node.value), node)
            case ast.AnnAssign(value=ast.expr() as given):
                return self.assign([node.target], self.value(given), node)
            case ast.AugAssign(target=ast.Name() as target):
                left = ast.copy_location(ast.Name(target.id, ast.Load()), node)
                total = ast.copy_location(ast.BinOp(left, node.op, node.value), node)
                return self.assign([target], self.value(total), node)
            case ast.Expr(value=ast.Call() as call):
                return [self.effect(call, node)]
            case ast.Return(value=ast.expr() as given):
                return [at(ast.Return(self.emit(self.result(given), node)), node)]
            case ast.If():
                return self.branch(node)
            case ast.For():
                return self.loop(node)
            case ast.Assert():
                return self.guard(node)
            case ast.Pass() | ast.Expr():
                return []
            case _:
                raise error_at(node, "this statement is not allowed in a plan")

    def result(self, node: ast.expr) -> Lowered:
        """Lowers a returned value: an expression, or dicts, tuples and lists of them."""
        if isinstance(node, ast.Dict):
            keys = [self.emit(self.value(k), node) for k in node.keys if k is not None]
            return at(ast.Dict(keys=list(keys), values=[self.emit(self.result(v), v) for v in node.values]), node)
        if isinstance(node, (ast.Tuple, ast.List)) and any(isinstance(inner, ast.Dict) for inner in ast.walk(node)):
            items = [self.emit(self.result(item), item) for item in node.elts]
            return at(type(node)(elts=items, ctx=ast.Load()), node)
        return self.value(node)

    def assign(self, targets: list[ast.expr], value: Lowered, node: ast.stmt) -> list[ast.stmt]:
        """Binds targets. Known values are recorded; those with a run-time value are also assigned."""
        kept: list[ast.expr] = []
        for target in targets:
            self.bind(target, value, node)
            kept.append(at(store(target), node))
        if isinstance(value, Constant) and holds_module(value.value):
            return []
        return [at(ast.Assign(targets=kept, value=self.emit(value, node)), node)]

    def branch(self, node: ast.If) -> list[ast.stmt]:
        """Lowers an if; only the taken branch when the condition is known."""
        test = self.value(node.test)
        if isinstance(test, Constant):
            return self.block(node.body if self.truth(test, node) else node.orelse)
        before = dict(self.env)
        yes = self.block(node.body)
        after_yes, self.env = self.env, dict(before)
        no = self.block(node.orelse)
        ends = [side for side, body in ((after_yes, yes), (self.env, no)) if not (body and returns(body[-1]))]
        first = ends[0] if ends else {}
        self.env = {k: v for k, v in first.items() if all(k in side and side[k] is v for side in ends)}
        return [at(ast.If(test=self.on_host(test), body=yes or [at(ast.Pass(), node)], orelse=no), node)]

    def loop(self, node: ast.For) -> list[ast.stmt]:
        """Lowers a for: unrolled over modules and short known ranges, else a loop over host values."""
        iterable = self.value(node.iter)
        items = self.unrolled(iterable, node)
        if items is not None:
            out: list[ast.stmt] = []
            for item in items:
                out += self.assign([node.target], Constant(item), node)
                out += self.block(node.body)
                if out and returns(out[-1]):
                    break
            return out
        for name in bound_names(node):
            self.env.pop(name, None)
        before = dict(self.env)
        body = self.block(node.body)
        self.env = before
        target = at(store(node.target), node)
        body = body or [at(ast.Pass(), node)]
        return [at(ast.For(target=target, iter=self.on_host(iterable, node), body=body, orelse=[]), node)]

    def guard(self, node: ast.Assert) -> list[ast.stmt]:
        """Lowers an assert to a call of guard_failed when its condition is false, or divides by zero."""
        test = self.value(node.test)
        if isinstance(test, Constant) and self.truth(test, node):
            return []
        why = node.msg.value if isinstance(node.msg, ast.Constant) else ast.unparse(node.test)
        call = self.call("__hw_fail", [at(ast.Constant(node.lineno), node), at(ast.Constant(str(why)), node)], node)
        stop = at(ast.Expr(call), node)
        if isinstance(test, Constant):
            return [stop]
        check = at(ast.If(test=at(ast.UnaryOp(ast.Not(), self.on_host(test)), node), body=[stop], orelse=[]), node)
        if not any(isinstance(inner, (ast.Mod, ast.FloorDiv, ast.Div)) for inner in ast.walk(node.test)):
            return [check]
        undefined = at(ast.ExceptHandler(type=at(ast.Name("__hw_zero", ast.Load()), node), body=[stop]), node)
        return [at(ast.Try(body=[check], handlers=[undefined], orelse=[], finalbody=[]), node)]

    def effect(self, call: ast.Call, node: ast.stmt) -> ast.stmt:
        """Lowers a launch, or an in-place update of a buffer or an input."""
        if isinstance(call.func, ast.Subscript) and isinstance(call.func.value, ast.Name):
            return at(ast.Expr(self.launch(call, call.func, call.func.value.id)), node)
        assert isinstance(call.func, ast.Attribute)
        owner = self.value(call.func.value)
        held = owner.value if isinstance(owner, Constant) else None
        buffer = isinstance(held, StateTensor) and held.kind == "buffers"
        if not buffer and subscripted(call.func.value) not in self.inputs:
            what = describe(held) if isinstance(owner, Constant) else "a value"
            raise error_at(
                node, f"{ast.unparse(call.func.value)} is {what}: only buffers and inputs are updated in place"
            )
        method = self.resolve("method", (call.func.attr,), call, in_place=True)
        args, keywords = self.arguments(call)
        return at(ast.Expr(self.call(method, [self.emit(owner, node), *args], node, keywords)), node)

    def launch(self, node: ast.Call, func: ast.Subscript, name: str) -> ast.expr:
        """Lowers kernel[grid, block, lds](args) to a call of the checked launch."""
        assert isinstance(func.slice, ast.Tuple)
        signature = self.shared.parsed.signatures[name]
        if name not in self.shared.launches:
            self.shared.launches[name] = make_launch(signature, self.shared.launcher)
        key = f"__hw_k_{name}"
        self.globals[key] = self.shared.launches[name]
        shape = [self.emit(self.value(e), e) for e in func.slice.elts]
        if len(shape) == 2:
            shape.append(at(ast.Constant(0), node))
        args = []
        for param, arg in zip(signature.params, node.args, strict=True):
            value = self.value(arg)
            if isinstance(value, Constant) and isinstance(value.value, StateTensor) and not param.pointer:
                raise error_at(
                    arg, f"{name}: {param.name} is {param.ctype}, but {ast.unparse(arg)} is {describe(value.value)}"
                )
            args.append(self.emit(value, arg))
        return self.call(key, [*shape, *args], node)
