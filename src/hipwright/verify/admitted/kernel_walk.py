"""The walk over the statements of a kernel and of the functions that it calls.

Locals are replaced by what they stand for. Values read from memory are unknown; a local that a loop changes is unknown
inside and after it, except the counter, which has a range.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hipwright.program.hazards.source import SourceFunction
from hipwright.verify.admitted.expressions import COMPARISONS, UNKNOWN, KernelExpression, node, number
from hipwright.verify.admitted.kernel_parser import ASSIGNMENTS, KernelExpressionParser
from hipwright.verify.admitted.kernel_source import (
    FLOATING,
    KernelCondition,
    KernelProgram,
    PathStep,
    TokenSpans,
    parameter_names,
    template_names,
)

MOST_CONDITIONS = 400  # per kernel
_DEEPEST_CALLS = 6
_DEEPEST_STATEMENTS = 60
_ROOTS = frozenset(("threadIdx", "blockIdx", "blockDim", "gridDim"))
_TESTS = COMPARISONS | {"?", "&&", "||", "!"}
_CALLS = 300  # of device functions that are followed, per kernel


class FunctionWalk(TokenSpans):
    """The walk over one function's statements, for one list of arguments."""

    def __init__(
        self,
        program: KernelProgram,
        kernel: str,
        function: SourceFunction,
        path: tuple[tuple[KernelExpression, bool], ...] = (),
        depth: int = 0,
    ) -> None:
        self.program, self.kernel, self.function, self.depth = program, kernel, function, depth
        self.tokens = program.body(function)
        self.names = [name for name, pointer in parameter_names(function) if not pointer]
        self.env: dict[str, KernelExpression] = dict(program.constants)
        self.path = path
        self.value = UNKNOWN
        self.noted: dict[int, KernelExpression] = {}
        self.branches = self.returns = 0

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
        if name not in program.launched and not any(arg.names & program.sized for arg in (*templates, *args)):
            return UNKNOWN
        key = (name, tuple(templates), tuple(args), self.path)
        if key not in program.seen:
            program.seen[key] = UNKNOWN  # of a recursive call
            program.calls += 1
            walk = FunctionWalk(program, self.kernel, function, self.path, self.depth + 1)
            places = zip(parameter_names(function), args, strict=False)
            walk.env |= {name: arg for (name, pointer), arg in places if not pointer}
            walk.env |= dict(zip(template_names(function), templates, strict=False))
            program.seen[key] = walk.run()
        return program.seen[key]

    def parse(self, start: int, end: int) -> KernelExpression:
        """The expression of tokens[start:end], with its comparisons noted."""
        if start >= end or not self._matters(start, end):
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

    def _matters(self, start: int, end: int) -> bool:
        """Whether tokens[start:end] name something known, or a function of the program."""
        env, functions = self.env, self.program.functions
        for word, _ in self.tokens[start:end]:
            if word in functions or word[:1].isdigit() or word in _ROOTS:
                return True
            known = env.get(word)
            if known is not None and (known.known or known.names):
                return True
        return False

    def note(self, tree: KernelExpression, start: int, *, as_test: bool = False) -> None:
        """Notes the comparisons inside an expression, each with what must hold before it is evaluated."""
        if not tree.names & self.program.sized or id(tree) in self.noted or len(self.program.found) >= MOST_CONDITIONS:
            return
        self.noted[id(tree)] = tree  # a local's value was noted where it was computed
        if tree.kind == "logical":
            self.note(tree.parts[0], start, as_test=True)
            with PathStep(self, tree.parts[0], tree.op == "&&"):
                self.note(tree.parts[1], start, as_test=True)
        elif tree.kind == "not":
            self.note(tree.parts[0], start, as_test=True)
        elif tree.kind == "choice":
            self.note(tree.parts[0], start, as_test=True)
            for part, side in ((tree.parts[1], True), (tree.parts[2], False)):
                with PathStep(self, tree.parts[0], side):
                    self.note(part, start)
        else:
            comparison = tree.kind == "binary" and tree.op in COMPARISONS
            if (comparison or as_test) and tree.known:
                line = self.program.source.line(self.tokens[start][1])
                self.program.found.append(KernelCondition(self.kernel, line, tree, self.path))
            for part in tree.parts:
                self.note(part, start)

    # ---------------------------------------------------------------- statements

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

    def branch(self, start: int, close: int, end: int) -> int:
        """Walks an if: locals that it sets become a choice between their values."""
        test = self.parse_test(start, close)
        before, first = dict(self.env), close + 1
        after = self.after(first, end)
        with PathStep(self, test, True):
            self.inner(first, after, end)
        yes, self.env = self.env, dict(before)
        last = after
        if after < end and self.tokens[after][0] == "else":
            last = self.after(after + 1, end)
            with PathStep(self, test, False):
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
        self.branches += 1
        if start < min(stop, end) and self.branches < _DEEPEST_STATEMENTS:
            self.statement(start, min(stop, end))
        self.branches -= 1

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
        with PathStep(self, test, True):
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
            with PathStep(self, test, True):
                self.env[name] = node("binary", word, initial[name], step)
                again = KernelExpressionParser(self.tokens, test_start, test_end, self).expression()
                self.note(again, test_start, as_test=True)
            self.env[name] = self._range(test, initial[name])
        with PathStep(self, test, True):
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
            self.returns += 1
            self.value = value if self.returns == 1 and self.branches == 1 else UNKNOWN
            return []
        names: list[str] = []
        depth, at = 0, start
        while at < end:
            word = self.tokens[at][0]
            depth += (word in "([{") - (word in ")]}") if len(word) == 1 else 0
            if word in ASSIGNMENTS and depth == 0 and at > start:
                last = self.part_end(at + 1, end)
                name = self.tokens[at - 1][0]
                floating = bool(FLOATING & {token[0] for token in self.tokens[start : at - 1]})
                value = UNKNOWN if floating and self._plain_number(at + 1, last) else self.parse(at + 1, last)
                if name == "]":
                    self.parse(start, at)
                elif re.match(r"[A-Za-z_]", name) and (at - 1 == start or self.tokens[at - 2][0] not in (".", "->")):
                    self.env[name] = UNKNOWN if floating else self._assigned(name, word, value)
                    names.append(name)
                at = last
            at += 1
        if names:
            return names
        if any(word in ("++", "--") for word, _ in words):
            self.forget(start, end)
        if not self._plain_number(start, end):
            self.parse(self._called_from(start, end), end)
        return []

    def _plain_number(self, start: int, end: int) -> bool:
        """Whether tokens[start:end] hold neither a comparison nor a call of the program's functions."""
        functions = self.program.functions
        return not any(word in _TESTS or word in functions for word, _ in self.tokens[start:end])

    def _assigned(self, name: str, word: str, value: KernelExpression) -> KernelExpression:
        if word == "=":
            return value
        return node("binary", word[:-1], self.env.get(name, UNKNOWN), value)

    def _called_from(self, start: int, end: int) -> int:
        """Where the expression of a statement starts: after the type of `T name(args)` or `T name{args}`."""
        known = self.program.functions
        for at in range(start, min(end, start + 8)):
            word = self.tokens[at][0]
            if word in ("(", "{", "[") or word in known:
                return start if word in known or at < start + 2 else at
        return start
