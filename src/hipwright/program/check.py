"""Static checks of forward, prepare and backward, without torch or a model.

Each function is walked once, statement by statement, with a table of the static types of locals ("tensor", "num",
"shape", "seq", "str", "none" or "any"), so that a swapped kernel argument is reported before anything is built.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from hipwright.program.ast_queries import bound_names, error_at, in_place, is_str, str_of, subscripted
from hipwright.program.check_calls import TYPE_NAMES, LocalTypes
from hipwright.program.expressions import ExpressionChecker
from hipwright.program.language import assigned_names, did_you_mean, is_self_path
from hipwright.program.parsed import Parsed

_STATEMENTS = "assignments, launches, if, for, assert, return and pass"
_STATEMENT_HELP = {
    "While": "while is not allowed; use for ... in range(n), or put the loop into a kernel",
    "Break": "break is not allowed; compute the loop's range beforehand",
    "Continue": "continue is not allowed; use an if inside the loop",
    "FunctionDef": "functions cannot be defined inside a plan; write the steps where they are used",
    "ClassDef": "classes are not allowed in a plan",
    "With": "with is not allowed; a plan has no modes, streams or files",
    "Try": "try is not allowed; a plan has no fallback, so a failure is seen",
    "Raise": 'raise is not allowed; use assert <condition>, "why" for shapes that the program does not claim',
    "Import": "imports belong to the top of the file",
    "ImportFrom": "imports belong to the top of the file",
    "Global": "global is not allowed; a plan keeps no state between calls",
    "Nonlocal": "nonlocal is not allowed; a plan keeps no state between calls",
    "Delete": "del is not allowed; memory is freed when a name is no longer used",
    "Match": "match is not allowed; use if",
    "AnnAssign": "give the name a value, e.g. n: int = 4",
    "AsyncFor": "async is not allowed",
    "AsyncWith": "async is not allowed",
    "AsyncFunctionDef": "async is not allowed",
}


def check_functions(parsed: Parsed) -> Parsed:
    """Checks every function; returns `parsed` with the names of prepared values, self paths and launched kernels.

    Raises ProgramError with the line of the first mistake.
    """
    prepared: tuple[str, ...] = ()
    paths: dict[str, None] = {}
    launched: dict[str, None] = {}
    for name in ("prepare", "forward", "backward"):
        function = parsed.functions.get(name)
        if function is None:
            continue
        checker = _Checker(parsed, name, prepared)
        checker.function(function)
        if name == "prepare":
            prepared = checker.prepared
        paths |= checker.paths
        launched |= checker.launched
    return replace(parsed, prepared=prepared, self_paths=tuple(paths), launched=tuple(launched))


class _Checker(ExpressionChecker):
    """Checks the statements and launches of one function. inputs: parameters of forward that keep their names."""

    inputs: frozenset[str] = frozenset()

    # ------------------------------------------------------------ functions and statements

    def function(self, node: ast.FunctionDef) -> None:
        """Checks one function definition."""
        args = node.args
        names = [a.arg for a in args.args]
        if node.decorator_list:
            raise error_at(node.decorator_list[0], "decorators are not allowed")
        if not names or names[0] != "self":
            raise error_at(node, f"the first parameter is self: def {self.where}(self, ...)")
        if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs:
            raise error_at(node, "write plain parameters: no *args, **kwargs, / or keyword-only ones")
        if self.where == "prepare" and len(names) != 1:
            raise error_at(node, "prepare takes self only; it sees parameters, not inputs")
        if self.where == "backward" and len(names) != 3:
            raise error_at(node, "write def backward(self, grads, saved)")
        for name in names[1:]:
            self.bindable(name, node)
        for default in args.defaults:
            if not _is_literal(default):
                raise error_at(default, "a default is a number, a string, a boolean, None or a tuple of these")
        types: LocalTypes = dict.fromkeys(names[1:], "any")
        self.locals = set(names[1:]) | bound_names(node)
        self.inputs = frozenset(names[1:]) - bound_names(node) if self.where == "forward" else frozenset()
        if not self.block(node.body, types, first=True):
            raise error_at(node, f"{self.where} may end without a return; end every path with one")

    def block(self, body: list[ast.stmt], types: LocalTypes, *, first: bool = False) -> bool:
        """Checks statements in order; True when the block always returns. Updates `types`."""
        done = False
        for index, node in enumerate(body):
            if done:
                raise error_at(node, "this can never run: the statement before it always returns; delete it")
            if first and index == 0 and isinstance(node, ast.Expr) and is_str(node.value):
                continue
            done = self.statement(node, types)
        return done

    def statement(self, node: ast.stmt, types: LocalTypes) -> bool:
        """Checks one statement; True when it always returns."""
        match node:
            case ast.Assign():
                type_ = self.value(node.value, types)
                for target in node.targets:
                    self.assign(target, type_, types)
            case ast.AnnAssign(target=ast.Name(), value=ast.expr() as given):
                self.assign(node.target, self.value(given, types), types)
            case ast.AugAssign():
                if not isinstance(node.target, ast.Name):
                    self.refuse_target(node.target)
                type_ = self.arithmetic(self.value(_load(node.target), types), self.value(node.value, types))
                self.assign(node.target, type_, types)
            case ast.Expr():
                self.expression_statement(node, types)
            case ast.Return():
                self.returns(node, types)
                return True
            case ast.If():
                return self.branch(node, types)
            case ast.For():
                self.loop(node, types)
            case ast.Assert():
                self.value(node.test, types)
                if node.msg is not None and not is_str(node.msg):
                    raise error_at(node.msg, "an assert's message is one plain string")
            case ast.Pass():
                pass
            case _:
                raise error_at(node, _STATEMENT_HELP.get(type(node).__name__, f"a plan has {_STATEMENTS} only"))
        return False

    def branch(self, node: ast.If, types: LocalTypes) -> bool:
        """An if: kinds that differ between the two sides become "any"."""
        self.value(node.test, types)
        then, otherwise = dict(types), dict(types)
        ends = self.block(node.body, then), bool(node.orelse) and self.block(node.orelse, otherwise)
        sides = [side for side, ended in zip((then, otherwise), ends, strict=True) if not ended]
        types.clear()
        for side in sides:
            for name, type_ in side.items():
                types[name] = self.merge([types.get(name, type_), type_])
        return all(ends)

    def loop(self, node: ast.For, types: LocalTypes) -> None:
        """Checks a for: what the body assigns has the type "any" at its start, because an iteration may precede it."""
        if node.orelse:
            raise error_at(node.orelse[0], "for ... else is not allowed; write the else part after the loop")
        type_ = self.value(node.iter, types)
        if type_ in ("tensor", "num", "str", "none"):
            raise error_at(
                node.iter,
                f"a loop runs over range(...), a tuple, a shape or a module list on the host, not over a "
                f"{TYPE_NAMES[type_]}; loop over range(n) and index, or put the loop into a kernel",
            )
        inner = dict(types)
        for name in assigned_names(node.target) + [n for n in bound_names(node) if n in inner]:
            inner[name] = "any"
        self.assign(node.target, self.item_type(node.iter, type_, types), inner)
        self.block(node.body, inner)
        for name, value in inner.items():
            types[name] = self.merge([types.get(name, value), value])

    def expression_statement(self, node: ast.Expr, types: LocalTypes) -> None:
        """Checks a launch or an in-place method on a buffer or an input; other expressions have no effect and are
        refused.
        """
        call = node.value
        if isinstance(call, ast.Call):
            if isinstance(call.func, ast.Subscript) and isinstance(call.func.value, ast.Name):
                self.launch(call, call.func, call.func.value.id, types)
                return
            if isinstance(call.func, ast.Attribute) and in_place(call.func.attr) and self.updatable(call.func.value):
                if isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
                    self.call_self(call)
                self.value(call.func.value, types)
                self.arguments(call, types)
                return
        if isinstance(call, (ast.Yield, ast.YieldFrom, ast.Await)):
            raise error_at(node, f"a plan has {_STATEMENTS} only")
        self.value(call, types)
        raise error_at(node, "this has no effect: assign the value to a name, or delete the line")

    def updatable(self, owner: ast.expr) -> bool:
        """Whether a statement may update the tensor in place: a buffer, an input or a part of one by subscripts."""
        return is_self_path(owner) or subscripted(owner) in self.inputs

    def returns(self, node: ast.Return, types: LocalTypes) -> None:
        """Checks a return: prepare returns a dict, forward of a differentiable program a pair, others a value."""
        if node.value is None:
            raise error_at(node, "return needs a value")
        if self.where == "prepare":
            self.prepare_returns(node.value, types)
            return
        if self.where == "forward" and self.parsed.has_backward:
            pair = node.value
            if not isinstance(pair, ast.Tuple) or len(pair.elts) != 2:
                raise error_at(node, "a program with backward returns two things from forward: return outputs, saved")
        self.returned(node.value, types)

    def returned(self, value: ast.expr, types: LocalTypes) -> None:
        """Checks a returned value: tuples, lists and dicts nest in one another there, and nowhere else."""
        if isinstance(value, ast.Dict):
            if not all(is_str(key) for key in value.keys):
                raise error_at(value, "the keys of a returned dict are plain strings")
            for item in value.values:
                self.returned(item, types)
        elif isinstance(value, (ast.Tuple, ast.List)) and any(isinstance(node, ast.Dict) for node in ast.walk(value)):
            for item in value.elts:
                if isinstance(item, ast.Starred):
                    raise error_at(item, "beside a returned dict every item is written out")
                self.returned(item, types)
        else:
            self.value(value, types)

    def prepare_returns(self, value: ast.expr, types: LocalTypes) -> None:
        if not isinstance(value, ast.Dict) or not all(is_str(k) and str_of(k).isidentifier() for k in value.keys):
            raise error_at(
                value, 'prepare returns a dict of names, e.g. return {"w": w}; forward reads self.prepared.w'
            )
        names = tuple(str_of(k) for k in value.keys)
        if self.prepared and set(names) != set(self.prepared):
            raise error_at(value, "every return of prepare must give the same names")
        self.prepared = names
        for item in value.values:
            self.value(item, types)

    # ------------------------------------------------------------ launches

    def launch(self, node: ast.Call, func: ast.Subscript, name: str, types: LocalTypes) -> None:
        """Checks kernel[grid, block(, lds_bytes)](args...)."""
        kernels = self.parsed.kernels
        if name not in kernels.signatures:
            if name in kernels.unusable:
                raise error_at(node, f"{name} cannot be launched: {kernels.unusable[name]}")
            raise error_at(
                node,
                f"HIP has no kernel {name}{did_you_mean(name, kernels.signatures)}; a kernel is declared "
                f'extern "C" __global__ void {name}(...)',
            )
        shape = func.slice
        if not isinstance(shape, ast.Tuple) or len(shape.elts) not in (2, 3):
            raise error_at(
                node,
                f"a launch needs a grid and a block: {name}[grid, block](...) or {name}[grid, block, lds_bytes]"
                "(...); write a grid of several dimensions as a tuple, e.g. [(gx, gy), 256]",
            )
        for what, item in zip(("grid", "block"), shape.elts, strict=False):
            self.dimensions(what, item, types)
        if len(shape.elts) == 3 and self.value(shape.elts[2], types) in ("tensor", "seq", "shape", "str", "none"):
            raise error_at(shape.elts[2], "lds_bytes is one integer")
        if node.keywords:
            raise error_at(node, f"the arguments of {name} are given by position")
        if any(isinstance(a, ast.Starred) for a in node.args):
            raise error_at(node, f"write the arguments of {name} one by one, without *")
        params = kernels.signatures[name].params
        if len(node.args) != len(params):
            listed = ", ".join(f"{p.ctype}{'*' if p.pointer else ''} {p.name}" for p in params)
            raise error_at(node, f"{name} takes {len(params)} arguments ({listed}), not {len(node.args)}")
        for param, arg in zip(params, node.args, strict=True):
            type_ = self.value(arg, types)
            if param.pointer and type_ in ("num", "shape", "seq", "str"):
                raise error_at(
                    arg, f"{name}: {param.name} is {param.ctype}*, so it takes a tensor, not a {TYPE_NAMES[type_]}"
                )
            if not param.pointer and type_ in ("tensor", "shape", "seq", "str", "none"):
                raise error_at(
                    arg, f"{name}: {param.name} is {param.ctype}, so it takes a number, not a {TYPE_NAMES[type_]}"
                )
        self.launched[name] = None

    def dimensions(self, what: str, node: ast.expr, types: LocalTypes) -> None:
        items = node.elts if isinstance(node, ast.Tuple) else [node]
        if not 1 <= len(items) <= 3:
            raise error_at(node, f"a {what} has one to three dimensions")
        for item in items:
            type_ = self.value(item, types)
            if type_ in ("tensor", "str", "none") or (type_ in ("seq", "shape") and item is not node):
                raise error_at(item, f"a {what}'s dimensions are integers, not a {TYPE_NAMES[type_]}")
            if isinstance(item, ast.Constant) and (not isinstance(item.value, int) or item.value < 1):
                raise error_at(item, f"a {what}'s dimensions are positive integers")


# ---------------------------------------------------------------- helpers


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return all(_is_literal(item) for item in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (bool, int, float, str)))


def _load(target: ast.Name) -> ast.Name:
    return ast.copy_location(ast.Name(target.id, ast.Load()), target)
