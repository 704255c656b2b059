"""Program sets: several programs of one task combined into one that dispatches by shape. Torch-free.

The first member whose guards hold runs: its `assert` statements, and `when`, a further condition on the inputs' shapes,
dtypes and scalars. The set is itself a program, in which each guard is an `if`, so verification, timing and export need
no special case. The last member is the fallback and keeps its guards.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from hipwright import syntax
from hipwright.errors import ProgramError
from hipwright.program import merge
from hipwright.program.parse import parse
from hipwright.program.parsed import Parsed
from hipwright.records import Program, Record


class SetMember(Record, frozen=True, kw_only=True):
    """A program of a set. when: a condition in the plan language on forward's parameters, "" for none."""

    program: Program
    when: str = ""


def combine(members: Sequence[SetMember]) -> Program:
    """Combines programs into one; the kernels and knobs of member i end with `_s<i>`.

    Raises ProgramError for members that cannot be combined: other parameters, a backward, a guard after a launch.
    """
    if len(members) < 2:
        raise ProgramError("a set has at least two programs: one for its shapes, and a fallback")
    sources = [parse(member.program.text) for member in members]
    _check(sources)
    parts = [
        merge.rename_apart(parsed, member.program.knobs, f"_s{i}", rename_locals=True)
        for i, (parsed, member) in enumerate(zip(sources, members, strict=True))
    ]
    functions = []
    if any("prepare" in part.functions for part in parts):
        functions.append(_prepare(parts))
    functions.append(_forward(parts, members))
    program = Program(text=merge.join(parts, functions))
    parse(program.text)  # the result must be a valid program
    return program


def owner(launches: Sequence[str]) -> int | None:
    """The member that served a call, from the kernels it launched; None if it launched none."""
    found = {int(name.rpartition("_s")[2]) for name in launches}
    return found.pop() if len(found) == 1 else None


def _check(sources: Sequence[Parsed]) -> None:
    first = [a.arg for a in sources[0].functions["forward"].args.args]
    for number, parsed in enumerate(sources):
        given = [a.arg for a in parsed.functions["forward"].args.args]
        if given != first:
            raise ProgramError(f"member {number} takes {', '.join(given[1:])}, the first {', '.join(first[1:])}")
        if parsed.has_backward:
            raise ProgramError(f"member {number} has a backward; the members of a set have none")


# ---------------------------------------------------------------- prepare


def _prepare(parts: Sequence[merge.RenamedProgram]) -> ast.FunctionDef:
    """One prepare that returns every member's packed weights, with suffixed names."""
    body: list[ast.stmt] = []
    keys: list[ast.expr | None] = []
    values: list[ast.expr] = []
    for number, part in enumerate(parts):
        if "prepare" not in part.functions:
            continue
        *before, last = part.functions["prepare"].body
        if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Dict) or _returns(before):
            raise ProgramError(f"member {number}: prepare of a set's member ends with its only return, of a dict")
        body += before
        keys += [ast.Constant(f"{k.value!s}_s{number}") for k in last.value.keys if isinstance(k, ast.Constant)]
        values += last.value.values
    return _function("prepare", ["self"], [], [*body, ast.Return(ast.Dict(keys, values))])


class _Prepared(ast.NodeTransformer):
    """Renames self.prepared.w to self.prepared.w_s1."""

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """self.prepared.w."""
        if ast.unparse(node.value) == "self.prepared":
            return ast.Attribute(node.value, node.attr + self.suffix, node.ctx)
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """self.prepared["w"]."""
        if ast.unparse(node.value) == "self.prepared" and isinstance(node.slice, ast.Constant):
            return ast.Subscript(node.value, ast.Constant(f"{node.slice.value!s}{self.suffix}"), node.ctx)
        return self.generic_visit(node)


# ---------------------------------------------------------------- forward


def _forward(parts: Sequence[merge.RenamedProgram], members: Sequence[SetMember]) -> ast.FunctionDef:
    """The members' bodies in order, each inside its guards."""
    body: list[ast.stmt] = []
    for number, (part, member) in enumerate(zip(parts, members, strict=True)):
        function = _Prepared(f"_s{number}").visit(part.functions["forward"])
        own = [node for node in function.body if not _is_docstring(node)]
        own = _renamed_inputs(own, [a.arg for a in function.args.args][1:], f"_s{number}")
        if number == len(parts) - 1:
            body += own
            continue
        if member.when:
            own = [ast.Assert(_condition(member.when, number), None), *own]
        guarded = _guarded(own, number)
        if not any(isinstance(node, ast.If) for node in guarded):
            raise ProgramError(f"member {number} claims every call: give it a guard, or make it the last")
        body += guarded
    args = parts[0].functions["forward"].args
    return _function("forward", [a.arg for a in args.args], args.defaults, body)


def _guarded(body: Sequence[ast.stmt], number: int) -> list[ast.stmt]:
    """Turns `assert c; rest` into `if c: rest`. Statements before it always run, so they must have no effect."""
    for place, node in enumerate(body):
        if isinstance(node, ast.Assert):
            return [*body[:place], ast.If(node.test, _guarded(body[place + 1 :], number), [])]
        later = any(isinstance(node, ast.Assert) for node in body[place + 1 :])
        if later and isinstance(node, (ast.Expr, ast.If, ast.For)):
            raise ProgramError(
                f"member {number}: its guards must stand before its first launch, if or loop", node.lineno
            )
    if any(isinstance(inner, ast.Assert) for node in body for inner in ast.walk(node)):
        raise ProgramError(f"member {number}: a guard inside an if or a loop cannot hand the call on")
    return list(body)


def _renamed_inputs(body: list[ast.stmt], inputs: Sequence[str], suffix: str) -> list[ast.stmt]:
    """Copies inputs that a member reassigns to names of its own, so that the next member gets them unchanged."""
    bound = {n.id for node in body for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    own = {name: f"{name}{suffix}" for name in inputs if f"{name}{suffix}" in bound}
    start = [ast.Assign([ast.Name(new, ast.Store())], ast.Name(old, ast.Load())) for old, new in own.items()]
    return [*start, *body]


def _condition(text: str, number: int) -> ast.expr:
    try:
        return syntax.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ProgramError(f"member {number}: `{text}` is no condition: {error.msg}") from None


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _returns(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(inner, ast.Return) for node in body for inner in ast.walk(node))


def _function(name: str, args: list[str], defaults: list[ast.expr], body: list[ast.stmt]) -> ast.FunctionDef:
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(a) for a in args], kwonlyargs=[], kw_defaults=[], defaults=defaults
    )
    function = ast.FunctionDef(name=name, args=arguments, body=body, decorator_list=[])
    return ast.fix_missing_locations(function)
