"""Values of a plan's expressions at given shapes, with the outcome of each comparison of sizes noted."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hipwright.program.language import dotted
from hipwright.tensors import HostTensor, Tree
from hipwright.verify.admitted.plan_tests import PlanTests
from hipwright.verify.admitted.plan_values import (
    KEEPING,
    MAKING,
    SHAPED,
    Plain,
    SizedTensor,
    Value,
    indexed,
    is_sequence,
    made,
)
from hipwright.verify.admitted.reach import Compared, Reach, binary, compared, constant, hull, of_function, truth

_OPS: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "/",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
_LARGEST_POWER = 64


class PlanExpressions(PlanTests):
    """Evaluates expressions of one plan. constants: knobs and constants. state: the state table."""

    env: dict[str, Value]

    def __init__(self, constants: Mapping[str, Value], state: Tree) -> None:
        super().__init__()
        self.constants = dict(constants)
        self.state = state

    def value(self, node: ast.expr) -> Value:
        """A value; None where it is not known."""
        known = _VALUES.get(type(node))
        return known(self, node) if known is not None else None

    def bind(self, target: ast.expr, value: Value) -> None:
        """Sets a name, or the names of a tuple."""
        if isinstance(target, ast.Name):
            self.env[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts: Sequence[Value] = value.shape if isinstance(value, SizedTensor) else value
            fits = is_sequence(parts) and len(parts) == len(target.elts)
            for index, item in enumerate(target.elts):
                self.bind(item, parts[index] if fits else None)

    def on_launch(self, kernel: str, call: ast.Call) -> None:
        """Called for each launch."""
        raise NotImplementedError

    # ---------------------------------------------------------------- values

    def on_constant(self, node: ast.Constant) -> Value:
        """A number, text or None."""
        return constant(node.value) if isinstance(node.value, int) else Plain(node.value)

    def on_name(self, node: ast.Name) -> Value:
        """A local, knob or constant."""
        return self.env.get(node.id)

    def on_attribute(self, node: ast.Attribute) -> Value:
        """A size of a tensor, or something of self."""
        path = _self_path(node)
        if path is not None:
            return self.of_self(path)
        owner = self.value(node.value)
        if not isinstance(owner, SizedTensor):
            return None
        if node.attr == "shape":
            return owner.shape
        if node.attr == "ndim":
            return constant(len(owner.shape))
        return SHAPED["t"](owner, ()) if node.attr in ("T", "mT") and len(owner.shape) == 2 else None

    def of_self(self, path: str) -> Value:
        """A parameter, buffer or plain attribute of the model."""
        path, _, rest = path.partition(".shape")
        for kind in ("params", "buffers", "attrs"):
            found = self.state.get(kind, {}).get(path)
            if isinstance(found, HostTensor):
                shape = tuple(constant(n) for n in found.shape)
                return shape if rest == "" and _ else SizedTensor(shape)
            if isinstance(found, int):
                return constant(found)
            if found is not None and not isinstance(found, (dict, list, tuple)):
                return Plain(found)
        return None

    def on_subscript(self, node: ast.Subscript) -> Value:
        """An item of a tuple, or a part of a tensor."""
        path = _self_path(node)
        if path is not None:
            return self.of_self(path)
        owner = self.value(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        keys = [self.index(part) for part in parts]
        if isinstance(owner, SizedTensor):
            return indexed(owner, keys)
        if not is_sequence(owner) or len(keys) != 1:
            return None
        key = keys[0]
        if isinstance(key, Reach) and key.single and -len(owner) <= key.low < len(owner):
            return owner[key.low]
        if isinstance(key, slice):
            ends = (key.start, key.stop, key.step)
            if all(end is None or (isinstance(end, Reach) and end.single) for end in ends):
                return owner[slice(*(None if end is None else end.low for end in ends))]
        return None

    def index(self, node: ast.expr) -> Value:
        """The inside of brackets."""
        if isinstance(node, ast.Slice):
            return slice(*(None if part is None else self.value(part) for part in (node.lower, node.upper, node.step)))
        return self.value(node)

    def on_tuple(self, node: ast.Tuple | ast.List) -> Value:
        """A tuple or list; unknown where it has a starred item of unknown length."""
        out: list[Value] = []
        for item in node.elts:
            found = self.value(item.value if isinstance(item, ast.Starred) else item)
            if not isinstance(item, ast.Starred):
                out.append(found)
            elif is_sequence(found):
                out += found
            else:
                return None
        return tuple(out)

    def on_binary(self, node: ast.BinOp) -> Value:
        """Arithmetic of sizes; whether a remainder or a quotient by a constant is 0 counts as a comparison."""
        a, b = self.value(node.left), self.value(node.right)
        if is_sequence(a) and is_sequence(b) and isinstance(node.op, ast.Add):
            return a + b
        if not (isinstance(a, Reach) and isinstance(b, Reach)):
            return None
        if isinstance(node.op, ast.Pow):
            if not (a.single and b.single and 0 <= b.low < _LARGEST_POWER and abs(a.low) < 1 << 16):
                return None
            return Reach(a.low**b.low, a.low**b.low, a.sized or b.sized)
        op = _OPS.get(type(node.op), "")
        found = binary(op, a, b, floor=True) if op else None
        if found is not None and op in ("/", "%") and found.sized and not b.sized:
            self.trace.note(self.key(node), truth(found))
        return found

    def on_unary(self, node: ast.UnaryOp) -> Value:
        """-x, +x, not x."""
        if isinstance(node.op, ast.Not):
            return _flag(self.test(node))
        value = self.value(node.operand)
        if not isinstance(value, Reach):
            return None
        return Reach(-value.high, -value.low, value.sized) if isinstance(node.op, ast.USub) else value

    def on_condition(self, node: ast.expr) -> Value:
        """A comparison, or `and` and `or`, as a number."""
        return _flag(self.test(node))

    def on_choice(self, node: ast.IfExp) -> Value:
        """a if test else b."""
        found = self.test(node.test)
        if found is not None and not (found.true and found.false):
            value = self.value(node.body if found.true else node.orelse)
            return Reach(value.low, value.high, value.sized or found.sized) if isinstance(value, Reach) else value
        a, b = self.value(node.body), self.value(node.orelse)
        if isinstance(a, Reach) and isinstance(b, Reach):
            return hull(a, b)
        return a if a == b else None

    def items(self, node: ast.expr) -> list[Value] | None:
        """What a loop runs over."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            bounds = [self.value(arg) for arg in node.args]
            if not all(isinstance(bound, Reach) and bound.single for bound in bounds):
                return None
            sized = any(bound.sized for bound in bounds)
            if len(bounds) == 3 and bounds[2].low == 0:
                return None
            steps = range(*(bound.low for bound in bounds))
            return [Reach(item, item, sized) for item in steps[:1000]]
        value = self.value(node)
        return list(value) if is_sequence(value) else None

    # ---------------------------------------------------------------- calls

    def on_call(self, node: ast.Call) -> Value:
        """A launch, a host function, a method or a library call."""
        function = node.func
        if isinstance(function, ast.Subscript) and isinstance(function.value, ast.Name):
            self.on_launch(function.value.id, node)
            return None
        if isinstance(function, ast.Name):
            return self.host_call(function.id, node)
        args = [self.value(arg) for arg in node.args]
        for keyword in node.keywords:
            self.value(keyword.value)
        if not isinstance(function, ast.Attribute):
            return None
        path = dotted(function)
        if path is not None and path[0] in ("torch", "F", "nn"):
            return self.library_call(function.attr, args)
        owner = self.value(function.value)
        return self.method(owner, function.attr, args) if isinstance(owner, SizedTensor) else None

    def host_call(self, name: str, node: ast.Call) -> Value:
        """min, max, cdiv and the like; which argument of min and max wins counts as a comparison."""
        args = [self.value(arg) for arg in node.args]
        if name == "len" and len(args) == 1 and is_sequence(args[0]):
            return constant(len(args[0]))
        if name in ("int", "bool") and len(args) == 1 and isinstance(args[0], Reach):
            return args[0] if name == "int" else _flag(truth(args[0]))
        if name == "tuple" and len(args) == 1:
            return args[0]
        if name in ("min", "max", "sum") and len(args) == 1 and is_sequence(args[0]):
            args = list(args[0])
        if not args or not all(isinstance(arg, Reach) for arg in args):
            return None
        if name == "sum":
            total: Value = constant(0)
            for arg in args:
                total = binary("+", total, arg, floor=True) if total is not None else None
            return total
        if name in ("min", "max") and len(args) == 2:
            found = compared("<=", args[0], args[1])
            if found.sized:
                self.trace.note(self.key(node), found)
        return of_function(name, args)

    def method(self, owner: SizedTensor, name: str, args: Sequence[Value]) -> Value:
        """A method of a tensor."""
        if name == "size":
            return self._size(owner, args)
        if name in ("numel", "nelement"):
            return owner.numel
        if name in ("dim", "ndimension"):
            return constant(len(owner.shape))
        if name in KEEPING:
            return owner
        if name in SHAPED:
            return SHAPED[name](owner, args)
        return made(args) if name in MAKING else None

    def _size(self, owner: SizedTensor, args: Sequence[Value]) -> Value:
        if not args:
            return owner.shape
        at = args[0]
        known = isinstance(at, Reach) and at.single and -len(owner.shape) <= at.low < len(owner.shape)
        return owner.shape[at.low] if known else None

    def library_call(self, name: str, args: Sequence[Value]) -> Value:
        """A function of torch."""
        if name in MAKING:
            return made(args)
        if not args or not isinstance(args[0], SizedTensor):
            return None
        if name in KEEPING:
            return args[0]
        return SHAPED[name](args[0], args[1:]) if name in SHAPED else None


def _flag(found: Compared | None) -> Value:
    return None if found is None else Reach(int(not found.false), int(found.true), found.sized)


def _self_path(node: ast.expr) -> str | None:
    """a.b.0 for self.a.b[0]; None for anything else."""
    parts: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        elif isinstance(node.slice, ast.Constant):
            parts.append(str(node.slice.value))
        else:
            return None
        node = node.value
    return ".".join(reversed(parts)) if isinstance(node, ast.Name) and node.id == "self" else None


_VALUES: dict[type[ast.expr], Callable[[PlanExpressions, Any], Value]] = {
    ast.Constant: PlanExpressions.on_constant,
    ast.Name: PlanExpressions.on_name,
    ast.Attribute: PlanExpressions.on_attribute,
    ast.Subscript: PlanExpressions.on_subscript,
    ast.Tuple: PlanExpressions.on_tuple,
    ast.List: PlanExpressions.on_tuple,
    ast.BinOp: PlanExpressions.on_binary,
    ast.UnaryOp: PlanExpressions.on_unary,
    ast.BoolOp: PlanExpressions.on_condition,
    ast.Compare: PlanExpressions.on_condition,
    ast.IfExp: PlanExpressions.on_choice,
    ast.Call: PlanExpressions.on_call,
}
