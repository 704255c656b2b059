"""Sizes: captured expressions are read into polynomials, and evaluated for given numbers."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from hipwright import syntax
from hipwright.engine.ir.index import ZERO, Fn, Ix, Sym, Var, ix, product, replace, split

_PLAIN = (ast.Constant, ast.Name, ast.Load, ast.UnaryOp, ast.USub, ast.BinOp, ast.Mult)

_SUMS = (*_PLAIN, ast.Add, ast.Sub)
_SIGNS: dict[type[ast.operator], int] = {ast.Add: 1, ast.Sub: -1}


class SizeNotSupported(Exception):
    """A symbolic size that the engine can neither express nor evaluate; captured sizes can be written for instead."""


class SizeReader:
    """Reads size expressions; a sum or quotient of symbols becomes a symbol itself, defined in `derived`.

    hints: captured sizes. What is negative there (an amount of padding that crops) is the negative of a symbol, as none
    is below zero.
    """

    def __init__(self, symbols: Sequence[str], hints: Mapping[str, int] | None = None) -> None:
        self.symbols = set(symbols)
        self._hints = dict(hints or {})
        self.steps: set[str] = set()  # symbols that count the steps of loops; sums of them are places, no sizes
        self.derived: dict[str, str] = {}
        self._sizes: dict[str, Ix] = {}
        self._read_before: dict[tuple[str, int, int], Ix] = {}

    def read(self, size: int | str) -> Ix:
        """A size as an expression over symbols. Raises SizeNotSupported for what it cannot read."""
        if isinstance(size, int):
            return ix(size)
        key = size, len(self.symbols), len(self.steps)
        if key not in self._read_before:
            self._read_before[key] = self._read(syntax.parse(str(size), mode="eval").body)
        return self._read_before[key]

    def _read(self, node: ast.expr) -> Ix:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return ix(node.value)
        if isinstance(node, ast.Name) and node.id in self.symbols:
            return ix(Sym(node.id))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._read(node.operand)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self._read(node.left) * self._read(node.right)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant):
            return product([self._read(node.left)] * int(node.right.value))  # type: ignore[arg-type]
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)) and self._counts(node):
            left, right = self._read(node.left), self._read(node.right)
            return left + right if isinstance(node.op, ast.Add) else left - right
        if isinstance(node, ast.Call) and (bound := self._bound(node)) is not None:
            return bound
        return self._derive(node)

    def _bound(self, node: ast.Call) -> Ix | None:
        """The least or largest of two sizes where all sizes have the same one, e.g. -1 of min(-1, n)."""
        if not (isinstance(node.func, ast.Name) and node.func.id in ("min", "max") and len(node.args) == 2):
            return None
        if not all(isinstance(part, _PLAIN) for one in node.args for part in ast.walk(one)):
            return None
        a, b = map(self._read, node.args)
        if a.value is not None and b.value is not None:
            return None
        for less, more in ((a, b), (b, a)):
            if all(count >= 0 for count in (more - less).terms.values()):
                return less if node.func.id == "min" else more
        return None

    def _counts(self, node: ast.expr) -> bool:
        """Whether an expression is a place that counts with the steps of a loop."""
        return any(isinstance(part, ast.Name) and part.id in self.steps for part in ast.walk(node))

    def _derive(self, node: ast.expr) -> Ix:
        left, right, text = None, None, ""
        if isinstance(node, ast.BinOp):
            left, right = self._read(node.left), self._read(node.right)
            if left.value is not None and right.value is not None:
                return ix(int(eval(compile(ast.Expression(node), "size", "eval"), {"__builtins__": {}})))
            if isinstance(node.op, ast.FloorDiv):
                q, rest = split(left, right)
                if rest == ZERO:
                    return q
        text = ast.unparse(node)
        for part in ast.walk(node):
            known = isinstance(part, ast.Name) and (part.id in self.symbols or part.id in ("min", "max"))
            allowed = (ast.BinOp, ast.Constant, ast.Call, ast.Load, ast.operator, ast.UnaryOp, ast.USub)
            if not known and not isinstance(part, allowed):
                raise SizeNotSupported(f"cannot read the size {text}")
        if text not in self._sizes:
            used = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in self.symbols]
            if not used:
                raise SizeNotSupported(f"no symbol in the size {text}")
            first = used[0]
            name = f"{first}_out" if f"{first}_out" not in self.derived else f"{first}_out{len(self.derived)}"
            negative = self._is_negative(text)
            self.derived[name] = f"-({text})" if negative else text
            self._sizes[text] = -ix(Sym(name)) if negative else ix(Sym(name))
        return self._sizes[text]

    def _is_negative(self, text: str) -> bool:
        try:
            return _number(text, self._hints) < 0
        except (NameError, ZeroDivisionError):  # a size that loops count, or one that is refused later
            return False

    def written_out(self, p: Ix) -> Ix:
        """p with the sums that have symbols of their own written out, so that such sums can be compared."""
        return replace(p, lambda atom: self._sum(atom.name) if isinstance(atom, Sym) else None)

    def _sum(self, name: str) -> Ix | None:
        """The sum or difference that a derived symbol stands for, None for another symbol."""
        if name not in self.derived:
            return None
        node = syntax.parse(self.derived[name], mode="eval").body
        parts = [part for part in ast.walk(node) if not isinstance(part, _SUMS)]
        return None if parts else self._sum_of(node)

    def _sum_of(self, node: ast.AST) -> Ix:
        if isinstance(node, ast.BinOp):
            left, right = self._sum_of(node.left), self._sum_of(node.right)
            return left * right if isinstance(node.op, ast.Mult) else left + right * _SIGNS[type(node.op)]
        return -self._sum_of(node.operand) if isinstance(node, ast.UnaryOp) else self._read(node)  # type: ignore[arg-type]

    def evaluate_derived(self, hints: dict[str, int]) -> None:
        """Add the captured value of each derived size to `hints`. Raises SizeNotSupported where one divides by zero."""
        for name, text in self.derived.items():
            if name not in hints:
                try:
                    hints[name] = _number(text, hints)
                except ZeroDivisionError as problem:
                    raise SizeNotSupported(f"the size {text} divides by zero") from problem


def _number(text: str, sizes: Mapping[str, int]) -> int:
    return int(eval(text, {"__builtins__": {}}, {"min": min, "max": max, **sizes}))


def _apply(operator: str, a: int, b: int) -> int:
    if operator in ("min", "max"):
        return min(a, b) if operator == "min" else max(a, b)
    if b == 0:
        raise SizeNotSupported(f"{a} {operator} 0 at the captured sizes")
    return a // b if operator == "//" else a % b


def evaluate(p: Ix, values: Mapping[str, int]) -> int:
    """The number for given sizes. Raises KeyError for an unknown name, SizeNotSupported for a division by zero."""
    total = 0
    for mono, c in p.terms.items():
        term = c
        for atom in mono:
            if isinstance(atom, Fn):
                a, b = evaluate(atom.a, values), evaluate(atom.b, values)
                term *= _apply(atom.op, a, b)
            elif isinstance(atom, (Var, Sym)):
                term *= values[atom.name]
            else:
                raise KeyError(atom.key)
        total += term
    return total
