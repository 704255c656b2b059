"""Expressions become C statements: shared values get names, the rest is written in place."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from hipwright.engine.emit.builder import StatementBuilder, cname
from hipwright.engine.emit.c_names import LIBRARY
from hipwright.engine.emit.device_code import ARITHMETIC, INDEX, INTEGER, MATH
from hipwright.engine.ir import small_ints
from hipwright.engine.ir.expr import ROUNDING, STORAGE, E, SerialLoop, walk
from hipwright.engine.ir.index import Atom, Ind, Ix
from hipwright.engine.ir.index_text import to_c
from hipwright.engine.ir.rounding import Rounding

PRECEDENCE = {
    "*": 12,
    "/": 12,
    "%": 12,
    "+": 11,
    "-": 11,
    ">>": 10,
    "<": 9,
    ">": 9,
    "<=": 9,
    ">=": 9,
    "==": 8,
    "!=": 8,
    "&": 7,
    "^": 6,
    "|": 5,
    "&&": 4,
    "||": 3,
}
TERNARY, UNARY, ATOM = 2, 14, 16
LONG_TEXT = 88
COMPARISONS = ("<", ">", "<=", ">=", "==", "!=")


def literal(value: float | bool, ctype: str) -> str:
    """A constant as C writes it."""
    if ctype == "bool":
        return "true" if value else "false"
    if ctype in ("int", "long"):
        return f"{int(value)}L" if abs(int(value)) >= 1 << 31 else str(int(value))
    if math.isnan(value):
        return "NAN" if ctype == "float" else "(double)NAN"
    if math.isinf(value):
        text = "INFINITY" if ctype == "float" else "(double)INFINITY"
        return text if value > 0 else f"-{text}"
    text = repr(float(value))
    if ctype == "float" and abs(value) > 3.5e38:
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{text}f" if ctype == "float" else text


class Emitter(StatementBuilder):
    """Writes the statements of one kernel. `read` prints a load; scopes hold what already has a name."""

    def __init__(self, read: Callable[[E, str], str], row: Callable[[str], str], index_type: str) -> None:
        super().__init__()
        self.read = read
        self.row = row
        self.index_type = index_type
        self.used: set[str] = set()
        self.shared: dict[int, int] = {}
        self.aliases: dict[str, str] = {}
        self.instead: dict[int, str] = {}  # calls by another function than their own
        self.shared_divisors: dict[int, tuple[str, str]] = {}  # division -> the names of its divisor and reciprocal
        self.bytes: set[str] = set()  # packs of bytes that were read as words
        self.rounding = Rounding()

    def count(self, roots: Sequence[E]) -> None:
        """Count how often the roots of one block use each expression: what is used twice gets a name."""
        self.shared = {}
        for e in walk(roots):
            for a in e.args:
                self.shared[a.id] = self.shared.get(a.id, 0) + 1
        for root in roots:
            self.shared[root.id] = self.shared.get(root.id, 0) + 1

    def bind(self, e: E) -> str:
        """The name of e, which is declared if it has none."""
        found = self.known(e)
        if found is None:
            text, _ = self.text(e)
            found = self.known(e)  # guards and loops are named by their own statements
            if found is None:
                found = text if re.fullmatch(r"\w+", text) else self._declare(e, text)
        return found

    def _declare(self, e: E, text: str) -> str:
        label = e.label or (f"{cname(e.attr[0])}_value" if e.op == "load" else "t")
        name = self.fresh(label)
        self.line(f"const {e.ctype} {name} = {text};")
        self.name(e, name)
        return name

    # ------------------------------------------------------------ expressions

    def text(self, e: E) -> tuple[str, int]:
        """(text, precedence) of e; shared expressions in it are declared first."""
        found = self.known(e)
        if found is not None:
            return found, ATOM
        text, rank = self._write(e)
        found = self.known(e)
        if found is not None:
            return found, ATOM
        trivial = e.op in ("const", "row") or (e.op == "index" and len(text) < 12)
        if not trivial and (self.shared.get(e.id, 0) > 1 or len(text) > LONG_TEXT):
            return self._declare(e, text), ATOM
        return text, rank

    def _write(self, e: E) -> tuple[str, int]:
        if e.op == "const":
            text = literal(e.attr, e.ctype)
            return text, UNARY if text.startswith(("-", "(")) else ATOM
        if e.op == "row":
            return self.row(e.attr), ATOM
        if e.op == "load":
            return self._load(e)
        if e.op == "index":
            text = self.position(e.attr)
            return text, ATOM if re.fullmatch(r"\w+", text) else (12 if len(e.attr.terms) == 1 else 11)
        if e.op == "bin":
            return self._binary(e)
        if e.op == "un":
            return f"{e.attr}{self._operand(e.args[0], UNARY + 1)}", UNARY
        if e.op == "cast":
            if small_ints.converted(e) is not None:
                return self._small(e.args[0], 0.0), ATOM
            short = self._distance(e.args[0]) if e.ctype in ("float", "double") else None
            return f"({e.attr}){f'({short})' if short else self._operand(e.args[0], UNARY)}", UNARY
        if e.op == "fn":
            return self._call(e), ATOM
        if e.op == "sel":
            self._bind_fast(e.args[1:])
            test, a, b = (self._operand(x, TERNARY + 1) for x in e.args)
            return f"{test} ? {a} : {b}", TERNARY
        if e.op == "guard":
            return self._guard(e)
        return self._loop(e), ATOM

    def _bind_fast(self, choices: Sequence[E]) -> None:
        """Declares sides of a choice that call fast functions: compilers would branch, which costs more than both."""
        for e in (e for e in choices if self.instead and any(a.id in self.instead for a in walk([e]))):
            self.bind(e)

    def _operand(self, e: E, least: int) -> str:
        text, rank = self.text(e)
        return text if rank >= least else f"({text})"

    def _binary(self, e: E) -> tuple[str, int]:
        apart = self.rounding.separately_rounded(e)
        if apart:
            self.used.add("sub_rn")
            return f"sub_rn({', '.join(self.text(a)[0] for a in apart)})", ATOM
        if e.id in self.shared_divisors:
            return f"divide_by({', '.join((self.text(e.args[0])[0], *self.shared_divisors[e.id]))})", ATOM
        small, number = small_ints.converted(e.args[0]), small_ints.whole(e.args[1])
        alone = self.known(e.args[0]) is None and self.shared.get(e.args[0].id, 0) <= 1
        if small is not None and number is not None and alone and e.attr in ("+", "-"):
            return self._small(small, number if e.attr == "-" else -number), ATOM
        rank = PRECEDENCE[e.attr]
        short = self._distance(e.args[0]) if e.attr in COMPARISONS and small_ints.is_short(e.args[1]) else None
        left, right = short or self._operand(e.args[0], rank), self._operand(e.args[1], rank + 1)
        if e.attr not in COMPARISONS:
            left, right = (self._widened(a, t) for a, t in zip(e.args, (left, right), strict=True))
        return f"{left} {e.attr} {right}", rank

    def _small(self, e: E, less: float) -> str:
        """A small integer converted to float, minus a whole number."""
        text = self.text(e)[0]
        pack = re.fullmatch(r"(\w+)\.v\[(.*)\]", text)
        if pack and pack[1] in self.bytes:
            return f"byte_to_float({pack[1]}.v, {pack[2]}, {literal(less, 'float')})"
        name = f"small_{'int' if (small_ints.bounds(e) or (0, 0))[0] < 0 else 'uint'}_to_float"
        self.used.add("math.h")
        return f"{name}({text}, {literal(less, 'float')})"

    def _distance(self, e: E) -> str | None:
        """The difference of two positions in 32 bits; None for other expressions."""
        if self.index_type != "int" or not small_ints.is_distance(e) or self.known(e) is not None:
            return None
        rank = PRECEDENCE["-"]
        return f"{self._operand(e.args[0], rank)} - {self._operand(e.args[1], rank + 1)}"

    def _widened(self, e: E, text: str) -> str:
        """An operand whose arithmetic is 64-bit where it is an index or a large number, as for int64 tensors."""
        if e.op == "const" and e.ctype == "long" and abs(e.attr) >= 1 << 29 and text.lstrip("-").isdigit():
            return f"{text}L"
        if e.op == "index" and self.index_type == "int":
            return f"(long){text}" if re.fullmatch(r"\w+|\(.*\)", text) else f"(long)({text})"
        return text

    def _load(self, e: E) -> tuple[str, int]:
        _, position, dtype = e.attr
        text = self.read(e, self.position(position))
        if STORAGE.get(dtype, e.ctype) != e.ctype:
            return (f"(float){text}" if dtype in ROUNDING else text), UNARY
        return text, ATOM

    def position(self, p: Ix) -> str:
        """An index as text; values that it reads are declared first."""
        if p.key in self.aliases:
            return self.aliases[p.key]
        names: dict[str, str] = {}
        self._bind_indirect(p, names)
        return to_c(p, names)

    def _bind_indirect(self, p: Ix, names: dict[str, str]) -> None:
        atoms: list[Atom] = sorted(p.atoms(), key=lambda a: a.key)
        for atom in atoms:
            if isinstance(atom, Ind):
                names[atom.key] = self.bind(atom.value)

    def _call(self, e: E) -> str:
        name = self.instead.get(e.id, e.attr)
        args = [self.text(a)[0] for a in e.args]
        kind = e.args[0].ctype
        if name in LIBRARY:
            if e.ctype == "float":
                name += "f"
        elif name in INDEX:
            self.used.add(name)
        elif name in INTEGER and kind in ("int", "long"):
            self.used.add("integer.h")
            args = [self._typed(a, t) for a, t in zip(e.args, args, strict=True)]
        elif name in ARITHMETIC:
            self.used.add(name)
            args = [self._typed(a, t) for a, t in zip(e.args, args, strict=True)]
        elif name in MATH:
            self.used.add("math.h" if name in INTEGER else name)
        else:
            raise RuntimeError(f"no device function {name}")
        return f"{name}({', '.join(args)})"

    def _typed(self, e: E, text: str) -> str:
        """An argument with a cast where its C type would choose another instance of a function template."""
        return f"({e.ctype})({text})" if small_ints.wants_type(e, self.known) else text

    # ------------------------------------------------------------ blocks

    def _guard(self, e: E) -> tuple[str, int]:
        test, yes, no = e.args
        condition = self._operand(test, TERNARY + 1)
        if e.attr and self.shared.get(no.id, 0) > 1:
            self.bind(no)
        held = self.known_under(test)
        self.scopes.append(held)
        chosen = self._in_place(yes) if self._inline(yes) else None
        self.scopes.pop()
        if chosen is not None and self._inline(no):
            return f"{condition} ? {chosen} : {self._in_place(no)}", TERNARY
        name = self.fresh(e.label or "t")
        simple = no.op == "const"
        self.line(f"{e.ctype} {name}{' = ' + literal(no.attr, no.ctype) if simple else ''};")
        self.open(f"if ({condition})")
        self.scopes[-1] |= held
        self.line(f"{name} = {self.text(yes)[0]};")
        if not simple:
            self.otherwise()
            self.line(f"{name} = {self.text(no)[0]};")
        self.close()
        self.name(e, name)
        return name, ATOM

    def _inline(self, e: E) -> bool:
        """Whether e can be written inside a conditional expression: it needs no statements."""
        if e.op == "const" or e.op == "row" or self.known(e) is not None:
            return True
        if e.op == "load":
            return not e.args
        return False

    def _in_place(self, e: E) -> str:
        """The text of an `_inline` expression, never declared outside its condition."""
        text = self.known(e) or self._write(e)[0]
        return f"({text})" if text.startswith("-") and e.op != "const" else text

    def _loop(self, e: E) -> str:
        attr: SerialLoop = e.attr
        name, body = self.fresh(e.label or attr.kind), e.args[0]
        best = attr.kind.startswith("arg")
        start = {
            "sum": 0,
            "prod": 1,
            "max": -math.inf,
            "min": math.inf,
            "any": 0,
            "all": 1,
            "argmax": -math.inf,
            "argmin": math.inf,
        }[attr.kind]
        bounds = [(self.position(a), self.position(b)) for a, b in attr.bounds]
        if best:
            top = self.fresh("best")
            self.line(f"{body.ctype} {top} = {literal(start, body.ctype)};")
            self.line(f"long {name} = -1;")
        else:
            self.line(f"{body.ctype} {name} = {literal(start, body.ctype)};")
        for variable, (low, high) in zip(attr.variables, bounds, strict=True):
            self.open(f"for ({self.index_type} {variable.name} = {low}; {variable.name} < {high}; ++{variable.name})")
        outer, self.shared = self.shared, dict(self.shared)
        if best:
            value = self.bind(body)
            token = ">" if attr.kind == "argmax" else "<"
            self.open(f"if ({name} < 0 || {value} {token} {top} || {value} != {value})")
            self.line(f"{top} = {value};")
            self.line(f"{name} = {_window_position(attr, [high for _, high in bounds])};")
            self.close()
        else:
            self.line(accumulate(attr.kind, name, self.text(body)[0], self.used))
        self.shared = outer
        for _ in attr.variables:
            self.close()
        self.name(e, name)
        return name


def _window_position(attr: SerialLoop, highs: Sequence[str]) -> str:
    text = ""
    for variable, high in zip(attr.variables, highs, strict=True):
        text = f"({text}) * {_factor(high)} + {variable.name}" if text else variable.name
    return text


def accumulate(kind: str, name: str, value: str, used: set[str]) -> str:
    """The statement that combines a value into the variable `name` by a reduction."""
    if kind == "sum":
        return f"{name} += {_factor(value)};"
    return f"{name} = {combine(kind, name, value, used)};"


def _factor(value: str) -> str:
    """The value as an operand of + or *: in parentheses unless it is a name, an element or a call."""
    return value if re.fullmatch(r"[\w\[\]().]+", value) else f"({value})"


def combine(kind: str, a: str, b: str, used: set[str]) -> str:
    """a and b combined by a reduction, as text."""
    if kind in ("sum", "prod"):
        return f"{a} {'+' if kind == 'sum' else '*'} {_factor(b)}"
    if kind in ("max", "min"):
        used.add(f"nan_{kind}")
        return f"nan_{kind}({a}, {b})"
    return f"{a} {'||' if kind == 'any' else '&&'} ({b})"
