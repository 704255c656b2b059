"""Finds the comparisons of a kernel whose outcome depends on its integer arguments or its launch.

A walk over the statements of a kernel and of the functions that it calls replaces locals by what they stand for, so
that each comparison is an expression over parameters, indices of threads and blocks, and numbers. Values read from
memory are unknown; a local that a loop changes is unknown inside and after it, except the counter, which has a range.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from hipwright.program import Parsed
from hipwright.program.blanking import blank
from hipwright.program.hazards.source import BlankedSource, SourceFunction
from hipwright.verify.admitted.expressions import (
    COMPARISONS,
    UNKNOWN,
    KernelExpression,
    named,
    node,
    number,
)
from hipwright.verify.admitted.kernel_parser import ASSIGNMENTS, TOKEN, KernelExpressionParser, KernelToken, expanded

MOST_CONDITIONS = 400  # per kernel
_DEEPEST_CALLS = 6
_DEEPEST_STATEMENTS = 60
_CALLS = 300  # of device functions that are followed, per kernel
_AXES = ("x", "y", "z")
_SIZED_ROOTS = frozenset(f"{root}.{axis}" for root in ("blockIdx", "gridDim", "blockDim") for axis in _AXES)
_WAVE = 64  # lanes, as on the cpu target
_FLOATING = frozenset(("float", "double", "half", "__half", "float2", "float4", "T"))


@dataclass(frozen=True)
class KernelCondition:
    """A comparison of a kernel. line: of the program. path: what must hold for it to be reached, with the outcome."""

    kernel: str
    line: int
    tree: KernelExpression
    path: tuple[tuple[KernelExpression, bool], ...] = ()


def kernel_conditions(parsed: Parsed) -> dict[str, tuple[KernelCondition, ...]]:
    """The conditions of every launched kernel. Knobs stand in them by name."""
    found = {}
    for kernel in parsed.launched or parsed.signatures:
        walked = _walked(parsed.hip, kernel, tuple(parsed.knobs))
        start = parsed.hip_line - 1
        found[kernel] = tuple(replace(one, line=one.line + start) for one in walked)
    return found


@lru_cache(maxsize=64)
def _source(hip: str) -> tuple[BlankedSource, dict[str, tuple[tuple[str, ...] | None, str]]]:
    from hipwright.program.signature import KernelSignatures

    bare = Parsed("", hip, 1, {}, {}, KernelSignatures(), {})
    return BlankedSource.of(bare), dict(_macros(blank(hip)))


_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)\n]*\))?((?:\\\n|[^\n])*)", re.MULTILINE)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)


def _macros(code: str) -> Iterator[tuple[str, tuple[tuple[str, ...] | None, str]]]:
    for name, params, body in _DEFINE.findall(code):
        names = tuple(p.strip() for p in params[1:-1].split(",")) if params else None
        yield name, (names, body.replace("\\\n", " ").strip())


@lru_cache(maxsize=256)
def _walked(hip: str, kernel: str, knobs: tuple[str, ...]) -> tuple[KernelCondition, ...]:
    source, macros = _source(hip)
    constants = {"warpSize": number(_WAVE)} | {name: named(name) for name in knobs}
    program = _KernelProgram(source, macros, constants)
    function = program.functions.get(kernel)
    if function is None:
        return ()
    walk = _FunctionWalk(program, kernel, function)
    walk.env |= {name: named(name) for name in walk.names}
    walk.run()
    return tuple(dict.fromkeys(one for one in program.found if one.tree.names & (_SIZED_ROOTS | set(walk.names))))


@dataclass
class _KernelProgram:
    """A source's functions, and what was found in them for one kernel."""

    source: BlankedSource
    macros: Mapping[str, tuple[tuple[str, ...] | None, str]]
    constants: dict[str, KernelExpression]
    functions: dict[str, SourceFunction] = field(default_factory=dict)
    found: list[KernelCondition] = field(default_factory=list)
    tokens: dict[str, list[KernelToken]] = field(default_factory=dict)
    calls: int = 0
    seen: dict[object, KernelExpression] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.functions = {f.name: f for f in self.source.functions}
        for name, value in self.source.constants.items():
            self.constants.setdefault(name, number(value))

    def body(self, function: SourceFunction) -> list[KernelToken]:
        """The tokens of a function's body, macros expanded."""
        if function.name not in self.tokens:
            text = self.source.body(function)
            if "#" in text:
                text = _DIRECTIVE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
            plain = [(m.group(), function.start + m.start()) for m in TOKEN.finditer(text)]
            self.tokens[function.name] = expanded(plain, self.macros) if self.macros else plain
        return self.tokens[function.name]


_TEMPLATE = re.compile(r"template\s*<([^{}]*?)>\s*(?:__device__|__global__|static|inline|__forceinline__|\w)")


def _parameters(function: SourceFunction) -> list[tuple[str, bool]]:
    """(name, whether it is a pointer or a tensor's element type) of each parameter."""
    head = re.sub(r"__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)", " ", function.head)
    match = re.search(rf"\b{re.escape(function.name)}\s*\((.*)\)", head, re.DOTALL)
    found = []
    for part in _split(match[1]) if match else ():
        words = re.findall(r"\w+", part.split("=")[0])
        if words and words != ["void"]:
            found.append((words[-1], "*" in part or "[" in part or bool(_FLOATING & set(words[:-1]))))
    return found


def _template_names(function: SourceFunction) -> list[str]:
    match = _TEMPLATE.search(function.head)
    return [re.findall(r"\w+", part.split("=")[0])[-1] for part in _split(match[1]) if part.strip()] if match else []


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, ch in enumerate(text):
        depth += (ch in "([{<") - (ch in ")]}>")
        if ch == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


class _FunctionWalk:
    """The walk over one function's statements, for one list of arguments."""

    def __init__(
        self,
        program: _KernelProgram,
        kernel: str,
        function: SourceFunction,
        path: tuple[tuple[KernelExpression, bool], ...] = (),
        depth: int = 0,
    ) -> None:
        self.program, self.kernel, self.function, self.depth = program, kernel, function, depth
        self.tokens = program.body(function)
        self.names = [name for name, pointer in _parameters(function) if not pointer]
        self.env: dict[str, KernelExpression] = dict(program.constants)
        self.path = path
        self.value = UNKNOWN
        self.branches = 0

    def run(self) -> KernelExpression:
        """Walks the body; the value that the function returns, where it returns once and outside branches."""
        self.statements(1, len(self.tokens) - 1)
        return self.value

    # ---------------------------------------------------------------- what a parser asks

    def template(self, name: str) -> bool:
        """Whether `name<` starts template arguments."""
        function = self.program.functions.get(name)
        return function is not None and "template" in function.head

    def called(
        self, name: str, templates: Sequence[KernelExpression], args: Sequence[KernelExpression]
    ) -> KernelExpression:
        """Walks a function of the program for these arguments."""
        program, function = self.program, self.program.functions.get(name)
        if function is None or self.depth >= _DEEPEST_CALLS or program.calls >= _CALLS:
            return UNKNOWN
        key = (name, tuple(templates), tuple(args), self.path)
        if key not in program.seen:
            program.seen[key] = UNKNOWN  # of a recursive call
            program.calls += 1
            walk = _FunctionWalk(program, self.kernel, function, self.path, self.depth + 1)
            places = zip(_parameters(function), args, strict=False)
            walk.env |= {name: arg for (name, pointer), arg in places if not pointer}
            walk.env |= dict(zip(_template_names(function), templates, strict=False))
            program.seen[key] = walk.run()
        return program.seen[key]

    def parse(self, start: int, end: int) -> KernelExpression:
        """The expression of tokens[start:end], with its comparisons noted."""
        if start >= end:
            return UNKNOWN
        parser = KernelExpressionParser(self.tokens, start, end, self)
        tree = parser.expression()
        self.note(tree, start)
        while parser.at < end:  # a comma, or text that was not understood
            before = parser.at
            parser.at += parser.peek() == ","
            self.note(parser.expression(), start)
            if parser.at <= before:
                break
        return tree

    def note(self, tree: KernelExpression, start: int, *, as_test: bool = False) -> None:
        """Notes the comparisons inside an expression, each with what must hold before it is evaluated."""
        if len(self.program.found) >= MOST_CONDITIONS:
            return
        if tree.kind == "logical":
            self.note(tree.parts[0], start, as_test=True)
            with _Path(self, tree.parts[0], tree.op == "&&"):
                self.note(tree.parts[1], start, as_test=True)
        elif tree.kind == "not":
            self.note(tree.parts[0], start, as_test=True)
        elif tree.kind == "choice":
            self.note(tree.parts[0], start, as_test=True)
            for part, side in ((tree.parts[1], True), (tree.parts[2], False)):
                with _Path(self, tree.parts[0], side):
                    self.note(part, start)
        else:
            comparison = tree.kind == "binary" and tree.op in COMPARISONS
            if (comparison or as_test) and tree.known and tree.names:
                line = self.program.source.line(self.tokens[start][1])
                self.program.found.append(KernelCondition(self.kernel, line, tree, self.path))
            for part in tree.parts:
                self.note(part, start)

    # ---------------------------------------------------------------- statements

    def closing(self, at: int, end: int) -> int:
        """The index of the bracket that closes the one at `at`, or `end`."""
        depth = 0
        for index in range(at, end):
            word = self.tokens[index][0]
            if len(word) == 1:
                depth += (word in "([{") - (word in ")]}")
                if depth == 0:
                    return index
        return end

    def statements(self, at: int, end: int) -> None:
        """Walks the statements of tokens[at:end]; what follows `if (x) return;` is reached where x does not hold."""
        path = self.path
        self.branches += 1
        while at < end and self.branches < _DEEPEST_STATEMENTS:
            at = max(self.statement(at, end), at + 1)
        self.branches -= 1
        self.path = path

    def statement(self, at: int, end: int) -> int:
        """Walks one statement; returns the index after it."""
        word = self.tokens[at][0]
        if word == "{":
            close = self.closing(at, end)
            self.statements(at + 1, close)
            return close + 1
        if word in ("if", "while", "switch", "for"):
            opened = at + 1
            while opened < end and self.tokens[opened][0] != "(":
                opened += 1
            close = self.closing(opened, end)
            walk = {"if": self.branch, "while": self.repeated, "switch": self.switch, "for": self.loop}[word]
            return walk(opened + 1, close, end)
        if word == "do":
            self.forget(at + 1, self.after(at + 1, end))
            return self.statement(at + 1, end) if at + 1 < end else end
        if word in ("else", ";", "case", "default"):
            return at + 1
        stop = self.after(at, end)
        self.plain(at, min(stop, end))
        return stop

    def after(self, at: int, end: int) -> int:
        """The index after the statement at `at`."""
        word = self.tokens[at][0] if at < end else ""
        if word == "{":
            return self.closing(at, end) + 1
        if word in ("if", "while", "switch", "for"):
            while at < end and self.tokens[at][0] != "(":
                at += 1
            at = self.after(self.closing(at, end) + 1, end)
            return self.after(at + 1, end) if word == "if" and at < end and self.tokens[at][0] == "else" else at
        while at < end and self.tokens[at][0] != ";":
            at = self.closing(at, end) + 1 if self.tokens[at][0] in ("(", "[", "{") else at + 1
        return at + 1

    def branch(self, start: int, close: int, end: int) -> int:
        """Walks an if: locals that it sets become a choice between their values."""
        test = self.parse_test(start, close)
        before, first = dict(self.env), close + 1
        after = self.after(first, end)
        with _Path(self, test, True):
            self.inner(first, after, end)
        yes, self.env = self.env, dict(before)
        last = after
        if after < end and self.tokens[after][0] == "else":
            last = self.after(after + 1, end)
            with _Path(self, test, False):
                self.inner(after + 1, last, end)
        for name in {**yes, **self.env}:
            a, b = yes.get(name, UNKNOWN), self.env.get(name, UNKNOWN)
            if a is not b:
                self.env[name] = a if a == b else node("choice", "", test, a, b)
        if self._leaves(first, after) and test.known:
            self.path = (*self.path, (test, False))
        return last

    def _leaves(self, start: int, end: int) -> bool:
        words = [word for word, _ in self.tokens[start:end]]
        return words[:1] in (["return"], ["continue"], ["break"]) or (
            words[:1] == ["{"] and bool({"return", "continue", "break"} & set(words[-4:])) and "if" not in words
        )

    def inner(self, start: int, stop: int, end: int) -> None:
        """Walks the one statement of a branch or a loop."""
        if start < min(stop, end):
            self.statement(start, min(stop, end))

    def parse_test(self, start: int, close: int) -> KernelExpression:
        """A condition, noted as one even where it is no comparison."""
        for place in range(start, close):
            if self.tokens[place][0] == ";":  # if (int n = f(); n > 0)
                self.plain(start, place)
                start = place + 1
                break
        parser = KernelExpressionParser(self.tokens, start, close, self)
        tree = parser.expression()
        self.note(tree, start, as_test=True)
        return tree

    def repeated(self, start: int, close: int, end: int) -> int:
        """Walks a while: its test at the first entry, its body with what it changes unknown."""
        after = self.after(close + 1, end)
        test = self.parse_test(start, close)
        self.forget(start, after)
        with _Path(self, test, True):
            self.inner(close + 1, after, end)
        self.forget(start, after)
        return after

    def switch(self, start: int, close: int, end: int) -> int:
        """Walks a switch: its value against each number after `case`."""
        value, after = self.parse(start, close), self.after(close + 1, end)
        for place in range(close + 1, min(after, end)):
            if self.tokens[place][0] == "case":
                parser = KernelExpressionParser(self.tokens, place + 1, min(after, end), self)
                self.note(node("binary", "==", value, parser.expression()), place)
        self.forget(close + 1, after)
        self.inner(close + 1, after, end)
        self.forget(close + 1, after)
        return after

    def loop(self, start: int, close: int, end: int) -> int:
        """Walks a for: whether it is entered, whether it goes round again, and its body with the counter's range."""
        after = self.after(close + 1, end)
        places = [i for i in range(start, close) if self.tokens[i][0] == ";"]
        if len(places) < 2:
            self.forget(start, after)
            self.inner(close + 1, after, end)
            return after
        self.plain(start, places[0])
        initial = dict(self.env)
        test_start, test_end = places[0] + 1, places[1]
        parser = KernelExpressionParser(self.tokens, test_start, test_end, self)
        test = parser.expression()
        self.note(test, test_start, as_test=True)
        counter = self._counter(places[1] + 1, close, initial)
        self.forget(places[1] + 1, after)
        if counter is not None:
            name, step, word = counter
            with _Path(self, test, True):
                self.env[name] = node("binary", word, initial[name], step)
                again = KernelExpressionParser(self.tokens, test_start, test_end, self).expression()
                self.note(again, test_start, as_test=True)
            self.env[name] = self._range(test, initial[name])
        with _Path(self, test, True):
            self.inner(close + 1, after, end)
        self.forget(start, after)
        return after

    def _counter(
        self, start: int, end: int, initial: Mapping[str, KernelExpression]
    ) -> tuple[str, KernelExpression, str] | None:
        """(name, step, operator) of `i += step`, `++i` and the like, for a counter with a known first value."""
        words = [word for word, _ in self.tokens[start:end]]
        for op in ("++", "--"):
            if len(words) == 2 and op in words:
                name = words[0] if words[1] == op else words[1]
                return (name, number(1), op[0]) if initial.get(name, UNKNOWN).known else None
        if len(words) > 2 and words[1] in ("+=", "-=") and initial.get(words[0], UNKNOWN).known:
            return words[0], KernelExpressionParser(self.tokens, start + 2, end, self).expression(), words[1][0]
        return None

    def _range(self, test: KernelExpression, first: KernelExpression) -> KernelExpression:
        """The values of a counter in the body: from the first up to the bound of the test."""
        if test.kind == "logical":
            test = test.parts[0]
        if test.kind == "binary" and test.op in ("<", "<=", "!=") and test.parts[0] == first:
            last = test.parts[1] if test.op == "<=" else node("binary", "-", test.parts[1], number(1))
            return node("range", "", first, last)
        return UNKNOWN

    def forget(self, start: int, end: int) -> None:
        """Makes the locals unknown that tokens[start:end] assign."""
        for index in range(start, min(end, len(self.tokens))):
            word = self.tokens[index][0]
            if word in ASSIGNMENTS or word in ("++", "--"):
                for place in (index - 1, index + 1):
                    if place < len(self.tokens) and (place < index or word in ("++", "--")):
                        name = self.tokens[place][0]
                        if name in self.env:
                            self.env[name] = UNKNOWN

    def plain(self, start: int, end: int) -> list[str]:
        """Walks a declaration, assignment, return or call; returns the names that it sets."""
        words = self.tokens[start:end]
        if words[:1] and words[0][0] == "return":
            value = self.parse(start + 1, end)
            self.value = value if self.branches == 1 and not self.value.known else UNKNOWN
            return []
        names, floating = [], bool(_FLOATING & {word for word, _ in words[:4]})
        depth, at = 0, start
        while at < end:
            word = self.tokens[at][0]
            depth += (word in "([{") - (word in ")]}") if len(word) == 1 else 0
            if word in ASSIGNMENTS and depth == 0 and at > start:
                last = self._part_end(at + 1, end)
                value, name = self.parse(at + 1, last), self.tokens[at - 1][0]
                if name == "]":
                    self.parse(start, at)
                elif re.match(r"[A-Za-z_]", name) and self.tokens[at - 2][0] not in (".", "->") or at - 1 == start:
                    self.env[name] = UNKNOWN if floating else self._assigned(name, word, value)
                    names.append(name)
                at = last
            at += 1
        if names:
            return names
        if any(word in ("++", "--") for word, _ in words):
            self.forget(start, end)
        self.parse(self._called_from(start, end), end)
        return []

    def _assigned(self, name: str, word: str, value: KernelExpression) -> KernelExpression:
        if word == "=":
            return value
        return node("binary", word[:-1], self.env.get(name, UNKNOWN), value)

    def _part_end(self, at: int, end: int) -> int:
        while at < end and self.tokens[at][0] != ",":
            at = self.closing(at, end) + 1 if self.tokens[at][0] in ("(", "[", "{") else at + 1
        return min(at, end)

    def _called_from(self, start: int, end: int) -> int:
        """Where the expression of a statement starts: after the type of `T name(args)` or `T name{args}`."""
        known = self.program.functions
        for at in range(start, min(end, start + 8)):
            word = self.tokens[at][0]
            if word in ("(", "{", "[") or word in known:
                return start if word in known or at < start + 2 else at
        return start


class _Path:
    """A context in which a condition has an outcome."""

    def __init__(self, walk: _FunctionWalk, test: KernelExpression, outcome: bool) -> None:
        self.walk, self.before = walk, walk.path
        self.step = ((test, outcome),) if test.known and test.names else ()

    def __enter__(self) -> None:
        self.walk.path = (*self.before, *self.step)

    def __exit__(self, *_: object) -> None:
        self.walk.path = self.before
