"""Converts ModelNew.forward to the statements of a plan. `cpp_host` inlines calls of the file's extensions."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from hipwright.program.convert.cpp_host import parameters
from hipwright.program.convert.cpp_text import Inconvertible
from hipwright.program.convert.forward_expression import Expression, Extensions
from hipwright.program.convert.forward_state import Attributes
from hipwright.program.convert.host_value import HostValue
from hipwright.program.convert.plan_writer import PlanLines

_DEPTH = 6


class Forward:
    """Converts one forward method, statement by statement; helpers of the file are inlined."""

    def __init__(
        self,
        tree: ast.Module,
        owner: ast.ClassDef,
        attributes: Attributes,
        extensions: Extensions,
        writer: PlanLines,
        constants: Mapping[str, Any],
    ) -> None:
        self.attributes = attributes
        self.extensions = extensions
        self.writer = writer
        self.constants = {k: v for k, v in constants.items() if isinstance(v, (bool, int, float, str, type(None)))}
        self.methods = {n.name: n for n in owner.body if isinstance(n, ast.FunctionDef)}
        self.functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
        self.classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
        self.depth = 0

    def convert(self, function: ast.FunctionDef) -> str:
        """The text of `def forward(self, ...)`."""
        args = copy.deepcopy(function.args)
        if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs:
            raise Inconvertible("forward takes *args, **kwargs or keyword-only parameters")
        for arg in args.args:
            arg.annotation = None
        names = {a.arg: a.arg for a in args.args}
        self.block(function.body, names, self.write_return)
        return f"def forward({ast.unparse(args)}):\n" + "\n".join(self.writer.lines)

    def write_return(self, value: str) -> None:
        """Writes a return of forward itself."""
        self.writer.line(f"return {value}")

    # ------------------------------------------------------------ statements

    def block(self, body: Sequence[ast.stmt], names: dict[str, str], on_return: Callable[[str], None]) -> None:
        """Writes statements in order. names: Python local -> plan local."""
        for index, node in enumerate(body):
            match node:
                case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Import() | ast.ImportFrom():
                    continue
                case ast.Return(value=ast.IfExp() as chosen):
                    self.block([_as_statement(node, chosen, ast.Return)], names, on_return)
                    return
                case ast.Assign(value=ast.IfExp() as chosen):
                    self.block([_as_statement(node, chosen, partial(ast.Assign, node.targets))], names, on_return)
                case ast.Return():
                    on_return("None" if node.value is None else self.text(node.value, names))
                    return
                case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)]) if "no_grad" in ast.unparse(call):
                    self.block([*node.body, *body[index + 1 :]], names, on_return)
                    return
                case ast.If():
                    if self.depth and any(isinstance(n, ast.Return) for n in ast.walk(node)):
                        self.branches_of_helper(node, body[index + 1 :], names, on_return)
                        return
                    if self.branch(node, names, on_return):
                        return
                case ast.For(orelse=[]):
                    self.loop(node, names, on_return)
                case _:
                    self.statement(node, names)

    def statement(self, node: ast.stmt, names: dict[str, str]) -> None:
        """Writes an assignment, an assert or a call statement."""
        match node:
            case ast.Assign(targets=[target]) if ast.unparse(target) in self.extensions.aliases:
                pass
            case ast.Assign(targets=[target]):
                value = self.text(node.value, names)
                self.writer.line(f"{self.target(target, names)} = {value}")
            case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as given):
                value = self.text(given, names)
                self.writer.line(f"{self.target(target, names)} = {value}")
            case ast.AugAssign(target=ast.Name() as target):
                updated = ast.BinOp(ast.Name(target.id, ast.Load()), node.op, node.value)
                value = self.text(ast.copy_location(updated, node), names)
                self.writer.line(f"{self.target(target, names)} = {value}")
            case ast.Assert():
                test = self.text(node.test, names)
                if test != "True":
                    message = node.msg.value if isinstance(node.msg, ast.Constant) else "an assertion of the file"
                    self.writer.line(f"assert {test}, {str(message)!r}")
            case ast.Expr(value=ast.Call() as call):
                before = len(self.writer.lines)
                text = self.text(call, names)
                if len(self.writer.lines) == before and not text.isidentifier() and text != "None":
                    raise Inconvertible(f"line {node.lineno}: a call whose value is not used")
            case _:
                raise Inconvertible(f"line {node.lineno}: {type(node).__name__} in forward")

    def target(self, node: ast.expr, names: dict[str, str]) -> str:
        """The text of an assignment target, with plan names."""
        if isinstance(node, ast.Name):
            names.setdefault(node.id, node.id if self.depth == 0 else self.writer.fresh(node.id))
            self.writer.used.add(names[node.id])
            return names[node.id]
        if isinstance(node, (ast.Tuple, ast.List)):
            return ", ".join(self.target(item, names) for item in node.elts)
        raise Inconvertible(f"line {node.lineno}: an assignment to {ast.unparse(node)}")

    def branch(self, node: ast.If, names: dict[str, str], on_return: Callable[[str], None]) -> bool:
        """Writes an if on shapes, dtypes and scalars; True when it is decided at conversion and the taken branch
        returns."""
        test = self.text(node.test, names)
        if test in ("True", "False"):
            taken = node.body if test == "True" else node.orelse
            self.block(taken, names, on_return)
            return bool(taken) and isinstance(taken[-1], ast.Return)
        if len(node.body) == 1 and isinstance(node.body[0], ast.Raise) and not node.orelse:
            self.writer.line(f"assert not ({test}), 'the file raises an error here'")
            return False
        for lead, body in ((f"if {test}:", node.body), ("else:", node.orelse)):
            if lead == "else:" and not body:
                continue
            self.writer.line(lead)
            self.indented(lambda part=body: self.block(part, names, on_return))  # type: ignore[misc]
        return False

    def branches_of_helper(
        self, node: ast.If, rest: Sequence[ast.stmt], names: dict[str, str], on_return: Callable[[str], None]
    ) -> None:
        """Writes the if of a helper with a return in it, and what follows it. Both sides must return at their end."""
        test = self.text(node.test, names)
        sides = [body if _returns(body) else [*body, *rest] for body in (node.body, node.orelse)]
        if test in ("True", "False"):
            self.block(sides[0] if test == "True" else sides[1], names, on_return)
            return
        if not all(map(_returns, sides)):
            raise Inconvertible(f"line {node.lineno}: a return inside an if of a helper, and none after it")
        result = self.writer.fresh("result")

        def keep(value: str) -> None:
            self.writer.line(f"{result} = {value}")

        for lead, body in zip((f"if {test}:", "else:"), sides, strict=True):
            self.writer.line(lead)
            self.indented(lambda part=body: self.block(part, dict(names), keep))  # type: ignore[misc]
        on_return(result)

    def loop(self, node: ast.For, names: dict[str, str], on_return: Callable[[str], None]) -> None:
        """Writes a for over host values."""
        iterated = self.text(node.iter, names)
        self.writer.line(f"for {self.target(node.target, names)} in {iterated}:")
        self.indented(lambda: self.block(node.body, names, on_return))

    def indented(self, write: Callable[[], None]) -> None:
        """Calls `write` with one more level of indentation."""
        indent, start = self.writer.indent, len(self.writer.lines)
        self.writer.indent += "    "
        write()
        if len(self.writer.lines) == start:
            self.writer.line("pass")
        self.writer.indent = indent

    # ------------------------------------------------------------ expressions

    def text(self, node: ast.expr, names: dict[str, str]) -> str:
        """Converts an expression to text; writes statements that must precede it."""
        converted = Expression(self, names).visit(copy.deepcopy(node))
        return ast.unparse(ast.fix_missing_locations(converted))

    def local(self, text: str) -> str:
        """A name for a value that is used more than once."""
        if text.isidentifier() or text.replace(".", "").isalnum():
            return text
        found = self.writer.fresh("arg")
        self.writer.line(f"{found} = {text}")
        return found

    def extension_call(self, index: int, name: str, args: list[str], keywords: dict[str, str]) -> str:
        """Inlines a call of a host function; returns the text of its value."""
        item = self.extensions.functions[index].get(name)
        if item is None:
            raise Inconvertible(f"the extension has no function {name} with a body")
        order = [n for _, n in parameters(item.head)]
        given = [HostValue("any", self.local(a)) for a in args]
        for param in order[len(args) :]:
            if param in keywords:
                given += [HostValue("any", self.local(keywords[param]))]
        host = self.extensions.hosts[index]
        value = host.run(item, [_literal_kind(v) for v in given])
        return value.text

    def own_call(self, function: ast.FunctionDef, args: list[str], keywords: dict[str, str], skip: int) -> str:
        """Inlines a call of a helper of the file, whose only return must be its last statement."""
        if self.depth >= _DEPTH:
            raise Inconvertible(f"{function.name} calls itself")
        params = [a.arg for a in function.args.args][skip:]
        if function.args.vararg or function.args.kwarg or len(args) > len(params):
            raise Inconvertible(f"{function.name} takes other arguments")
        names = dict(zip(params, map(self.local, args), strict=False))
        defaults = dict(zip(reversed(params), (ast.unparse(d) for d in reversed(function.args.defaults)), strict=False))
        for param in params[len(args) :]:
            if param not in keywords and param not in defaults:
                raise Inconvertible(f"{function.name} is called without {param}")
            names[param] = self.local(keywords.get(param, defaults.get(param, "")))
        returned: list[str] = []
        self.depth += 1
        self.block([n for n in function.body if not _is_ctx(n)], names, returned.append)
        self.depth -= 1
        return returned[0] if returned else "None"


def _literal_kind(value: HostValue) -> HostValue:
    """An argument of a call; the text None gives it the kind "none"."""
    if value.text == "None":
        return HostValue("none", "None")
    return value


def _as_statement(node: ast.stmt, chosen: ast.IfExp, made: Callable[[ast.expr], ast.stmt]) -> ast.If:
    """A statement whose value is `a if b else c` as an if with a statement for each."""
    yes, no = (ast.copy_location(made(side), node) for side in (chosen.body, chosen.orelse))
    return ast.copy_location(ast.If(chosen.test, [yes], [no]), node)


def _returns(body: Sequence[ast.stmt]) -> bool:
    """Whether a block returns at its end, on every way through its last statement."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return _returns(last.body) and _returns(last.orelse)
    return isinstance(last, ast.Return)


def _is_ctx(node: ast.stmt) -> bool:
    """Whether a statement saves something for an autograd function's backward."""
    return ast.unparse(node).startswith("ctx.")
