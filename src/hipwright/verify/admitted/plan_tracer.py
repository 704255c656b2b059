"""Follows a plan at given input shapes, without data: its guards, comparisons, launches and their kernels' comparisons.

Values that shapes do not tell (data, layouts, results of library calls) are unknown; where a branch depends on one,
both sides are followed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from hipwright.program import Parsed
from hipwright.tensors import HostTensor, Tree
from hipwright.verify.admitted.expressions import KernelExpression, c_text, outcome
from hipwright.verify.admitted.kernel_conditions import kernel_conditions
from hipwright.verify.admitted.plan_expressions import PlanExpressions
from hipwright.verify.admitted.plan_values import Plain, SizedTensor, Value, is_sequence
from hipwright.verify.admitted.reach import Compared, Reach, constant, hull
from hipwright.verify.admitted.trace import ShapeTrace, SizeCondition

MOST_ROUNDS = 64  # of a loop of the plan that are followed
_SIMPLE = 15  # nodes of a comparison of thread indices whose sides are searched
_AXES = ("x", "y", "z")


class _Refused(Exception):
    """A guard declines the shapes."""


class _Returned(Exception):
    """The plan has returned."""


class PlanTracer(PlanExpressions):
    """Follows one program's plan.

    inputs: forward's arguments in the task's structure. knobs: the chosen values. state: the state table.
    """

    def __init__(self, parsed: Parsed, knobs: Mapping[str, int], inputs: Tree, state: Tree) -> None:
        values = parsed.values(knobs)
        super().__init__({name: constant(int(value)) for name, value in values.items()}, state)
        self.parsed, self.knobs = parsed, knobs
        self.defines = {name: constant(value) for name, value in parsed.defines(knobs).items()}
        self.inputs = inputs
        self.kernels = {
            kernel: [
                (one, SizeCondition(kernel, one.line, c_text(one.tree))) for one in conditions if _searched(one.tree)
            ]
            for kernel, conditions in kernel_conditions(parsed).items()
        }
        self._outcomes: dict[int, tuple[list[str], dict[tuple[Reach | None, ...], Compared | None]]] = {}
        self.wanted: Set[SizeCondition] | None = None
        self.launches: dict[SizeCondition, tuple[ast.Call, Any]] = {}

    def of(self, parsed: Parsed) -> PlanTracer:
        """The tracer of another program for the same task and knobs."""
        return PlanTracer(parsed, self.knobs, self.inputs, self.state)

    def follow(self, shapes: Sequence[Sequence[int]], wanted: Set[SizeCondition] | None = None) -> ShapeTrace:
        """What the plan does where the inputs' tensors have these shapes, in order.

        wanted: the comparisons of kernels that are needed; None for all.
        """
        self.trace, self.wanted = ShapeTrace(), wanted
        self.env = dict(self.constants)
        forward = self.parsed.functions["forward"]
        leaves = iter(shapes)
        arguments = _sized(self.inputs, leaves)
        names = [argument.arg for argument in forward.args.args[1:]]
        self.env |= dict(zip(names, arguments, strict=False))
        try:
            self.statements(forward.body)
        except _Refused as refused:
            self.trace.refused = str(refused) or "an assert"
        except _Returned:
            pass
        except RecursionError:
            self.trace.refused = "nested too deeply"
        return self.trace

    # ---------------------------------------------------------------- statements

    def statements(self, body: Sequence[ast.stmt]) -> None:
        """Follows statements in order."""
        for node in body:
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        """Follows one statement."""
        known = _STATEMENTS.get(type(node))
        if known is not None:
            known(self, node)

    def on_assign(self, node: ast.Assign) -> None:
        """name = value, and tuples of names."""
        value = self.value(node.value)
        for target in node.targets:
            self.bind(target, value)

    def on_annotated(self, node: ast.AnnAssign) -> None:
        """name: type = value."""
        if node.value is not None:
            self.bind(node.target, self.value(node.value))

    def on_augmented(self, node: ast.AugAssign) -> None:
        """name += value."""
        if isinstance(node.target, ast.Name):
            left = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
            self.env[node.target.id] = self.value(ast.copy_location(ast.BinOp(left, node.op, node.value), node))

    def on_expression(self, node: ast.Expr) -> None:
        """A launch or another call."""
        self.value(node.value)

    def on_return(self, node: ast.Return) -> None:
        """The end of the plan."""
        if node.value is not None:
            self.value(node.value)
        raise _Returned

    def on_assert(self, node: ast.Assert) -> None:
        """A guard. Raises _Refused where it cannot hold.

        What it requires outright is no comparison with two sides, since the other side is declined.
        """
        test = node.test
        parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        for part in parts:
            alone = isinstance(part, ast.Compare)
            before = dict(self.trace.compared) if alone else {}
            found = self.test(part)
            if alone:
                self.trace.compared = before
            if found is not None and not found.true:
                said = node.msg.value if isinstance(node.msg, ast.Constant) else ""
                raise _Refused(str(said) or f"line {node.lineno}")

    def on_if(self, node: ast.If) -> None:
        """A branch; both sides where its condition is not known."""
        found = self.test(node.test)
        sides = [node.body] if found is None or found.true else []
        self.either([*sides, node.orelse] if found is None or found.false else sides)

    def either(self, sides: Sequence[Sequence[ast.stmt]]) -> None:
        """Follows each of some alternatives, from the same start; raises where all of them do."""
        before, results, endings = self.env, [], []
        for body in sides:
            self.env = dict(before)
            try:
                self.statements(body)
            except (_Refused, _Returned) as end:
                endings.append(end)
                continue
            results.append(self.env)
        if not results:
            raise next((end for end in endings if isinstance(end, _Returned)), endings[0])
        self.env = results[0]
        for other in results[1:]:
            names = {**self.env, **other}
            self.env = {name: merged(self.env.get(name), other.get(name)) for name in names}

    def on_for(self, node: ast.For) -> None:
        """A loop, over at most `MOST_ROUNDS` items."""
        items = self.items(node.iter)
        if items is None:
            self.bind(node.target, None)
            self.either([node.body, []])
            return
        for item in items[:MOST_ROUNDS]:
            self.bind(node.target, item)
            self.statements(node.body)

    # ---------------------------------------------------------------- launches

    def on_launch(self, kernel: str, call: ast.Call) -> None:
        """Notes how the comparisons of a launched kernel come out."""
        geometry = self.value(call.func.slice) if isinstance(call.func, ast.Subscript) else None
        args = [self.value(argument) for argument in call.args]
        signature = self.parsed.signatures.get(kernel)
        if signature is None:
            return
        parts: tuple[Value, ...] = geometry if isinstance(geometry, tuple) else (None, None)
        values = dict(self.defines)
        for name, part in zip(("grid", "block"), parts, strict=False):
            sizes = part if is_sequence(part) else (part,)
            for axis, size in zip(_AXES, (*sizes, constant(1), constant(1)), strict=False):
                if isinstance(size, Reach):
                    values[f"{name}Dim.{axis}"] = size
                    values[f"{'blockIdx' if name == 'grid' else 'threadIdx'}.{axis}"] = Reach(
                        0, max(size.high - 1, 0), size.sized
                    )
        values |= {
            param.name: value
            for param, value in zip(signature.params, args, strict=False)
            if isinstance(value, Reach) and not param.pointer
        }
        for condition, key in self.kernels.get(kernel, ()):
            if self.wanted is not None and key not in self.wanted:
                continue
            if all(_possible(self.outcome(tree, values), taken) for tree, taken in condition.path):
                found = self.outcome(condition.tree, values)
                if found is not None and found.sized:
                    self.trace.note(key, found)
                    self.launches.setdefault(key, (call, condition.tree))

    def outcome(self, tree: KernelExpression, values: Mapping[str, Reach]) -> Compared | None:
        """What a kernel's condition may come to, computed once for the same values of its names."""
        names, known = self._outcomes.setdefault(id(tree), (sorted(tree.names), {}))
        key = tuple([values.get(name) for name in names])
        if key not in known:
            known[key] = outcome(tree, values)
        return known[key]


def _searched(tree: KernelExpression) -> bool:
    """Whether shapes are searched for both sides: not for an address in a tile, which has few regimes of its own."""
    return tree.weight <= _SIMPLE or not any(name.startswith(("threadIdx", "blockIdx")) for name in tree.names)


def _possible(found: Compared | None, taken: bool) -> bool:
    return found is None or (found.true if taken else found.false)


def merged(a: Value, b: Value) -> Value:
    """What two alternatives have in common."""
    if a is b or a == b:
        return a
    if isinstance(a, Reach) and isinstance(b, Reach):
        return hull(a, b)
    if isinstance(a, SizedTensor) and isinstance(b, SizedTensor) and len(a.shape) == len(b.shape):
        return SizedTensor(tuple(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)))
    return None


def _sized(inputs: Tree, leaves: Any) -> Any:
    def one(tree: Tree) -> Value:
        if isinstance(tree, HostTensor):
            return SizedTensor(tuple(Reach(n, n, True) for n in next(leaves)))
        if isinstance(tree, (list, tuple)):
            return tuple(one(item) for item in tree)
        if isinstance(tree, dict):
            for item in tree.values():
                one(item)
            return None
        return constant(tree) if isinstance(tree, int) else Plain(tree)

    return one(list(inputs))


_STATEMENTS: dict[type[ast.stmt], Callable[[PlanTracer, Any], None]] = {
    ast.Assign: PlanTracer.on_assign,
    ast.AnnAssign: PlanTracer.on_annotated,
    ast.AugAssign: PlanTracer.on_augmented,
    ast.Expr: PlanTracer.on_expression,
    ast.Return: PlanTracer.on_return,
    ast.Assert: PlanTracer.on_assert,
    ast.If: PlanTracer.on_if,
    ast.For: PlanTracer.on_for,
}
