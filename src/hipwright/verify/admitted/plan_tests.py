"""How the conditions of a plan come out at given shapes."""

from __future__ import annotations

import ast

from hipwright.verify.admitted.plan_values import Plain, Value, is_sequence
from hipwright.verify.admitted.reach import Compared, Reach, compared, truth
from hipwright.verify.admitted.trace import ShapeTrace, SizeCondition

_COMPARISONS: dict[type, str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


class PlanTests:
    """Outcomes of a plan's conditions at given shapes, each comparison of sizes noted."""

    trace: ShapeTrace

    def __init__(self) -> None:
        self._keys: dict[int, SizeCondition] = {}
        self.nodes: dict[SizeCondition, ast.expr] = {}

    def value(self, node: ast.expr) -> Value:
        """A value; None where it is not known."""
        raise NotImplementedError

    def key(self, node: ast.expr, text: str = "") -> SizeCondition:
        """The identity of a comparison of the plan. text: of one that is no expression of its own."""
        found = self._keys.get(id(node))
        if found is None:
            found = SizeCondition("plan", node.lineno, text or ast.unparse(node))
            self._keys[id(node)] = found
            self.nodes[found] = node
        return found

    def test(self, node: ast.expr) -> Compared | None:
        """What a condition may come to, noted where sizes decide it; None where it is not known."""
        if isinstance(node, ast.BoolOp):
            return self._boolean(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            found = self.test(node.operand)
            return None if found is None else Compared(found.false, found.true, found.sized, found.gap)
        if isinstance(node, ast.Compare):
            return self._compare(node)
        value = self.value(node)
        if not isinstance(value, Reach):
            return Compared(bool(value.value), not value.value, False) if isinstance(value, Plain) else None
        found = truth(value)
        if found.sized:
            self.trace.note(self.key(node), found)
        return found

    def _boolean(self, node: ast.BoolOp) -> Compared | None:
        """`and`, `or`: later parts are followed where earlier ones leave the result open."""
        stops = isinstance(node.op, ast.Or)
        certain, sized, unknown, gap = True, False, False, 0
        for part in node.values:
            found = self.test(part)
            if found is None:
                unknown = True
                continue
            sized, gap = sized or found.sized, found.gap
            may_stop, may_go = (found.true, found.false) if stops else (found.false, found.true)
            if may_stop and not may_go:
                return Compared(stops, not stops, sized, gap)
            certain = certain and not may_stop
        if unknown:
            return None
        return Compared(not stops or not certain, stops or not certain, sized, gap)

    def _compare(self, node: ast.Compare) -> Compared | None:
        values = [self.value(part) for part in (node.left, *node.comparators)]
        results = []
        for op, a, b in zip(node.ops, values, values[1:], strict=False):
            word = _COMPARISONS.get(type(op))
            if word is None:
                return self._identity(op, a, b)
            if is_sequence(a) and is_sequence(b) and word in ("==", "!="):
                results.append(self._tuples(a, b, word))
            elif isinstance(a, Reach) and isinstance(b, Reach):
                results.append(compared(word, a, b))
            else:
                return None
        if any(result is None for result in results):
            return None
        known = [result for result in results if result is not None]
        sized = any(result.sized for result in known)
        gap = max((result.gap for result in known), key=abs)
        found = Compared(all(r.true for r in known), any(r.false for r in known), sized, gap)
        if sized:
            self.trace.note(self.key(node), found)
        return found

    def _tuples(self, a: tuple[Value, ...], b: tuple[Value, ...], word: str) -> Compared | None:
        if len(a) != len(b):
            return Compared(word == "!=", word == "==", False)
        if not all(isinstance(item, Reach) for item in (*a, *b)):
            return None
        pairs = [compared("==", x, y) for x, y in zip(a, b, strict=True)]
        sized = any(pair.sized for pair in pairs)
        gap = max((pair.gap for pair in pairs), key=abs, default=0)
        equal, unequal = all(pair.true for pair in pairs), any(pair.false for pair in pairs)
        return Compared(equal, unequal, sized, gap) if word == "==" else Compared(unequal, equal, sized, gap)

    def _identity(self, op: ast.cmpop, a: Value, b: Value) -> Compared | None:
        if not isinstance(op, (ast.Is, ast.IsNot)) or a is None or b is None:
            return None
        same = isinstance(a, Plain) and isinstance(b, Plain) and a.value is b.value
        return Compared(same, not same, False) if isinstance(op, ast.Is) else Compared(not same, same, False)
