"""Hazards of control flow: barriers that not every thread reaches, and stores without a bounds check.

A statement walk over the tokens of a function follows the thread index through assignments. Values that a block shares
(results of functions with a barrier, values in LDS) count as uniform. Doubtful cases are not reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hipwright.program.hazards.source import BlankedSource, HazardMatch, SourceFunction

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|<<=|>>=|->|\+\+|--|[-+*/%&|^=!<>]=|&&|\|\||::|<<|>>|\S")
_ASSIGN = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="))
_BARRIERS = frozenset(
    ("__syncthreads", "__syncthreads_or", "__syncthreads_and", "__syncthreads_count", "__builtin_amdgcn_s_barrier")
)
_AGREED = _BARRIERS | {"__ballot", "__any", "__all"}
_THREAD = frozenset(("threadIdx", "__lane_id", "threadIdx_x"))
_COMPARE = frozenset(("<", ">", "<=", ">=", "==", "!=", "min", "max"))
_DEEP = 100

Token = tuple[str, int]


@dataclass
class _Walk:
    """A walk over the statements of one function.

    thread, block: names that depend on the thread's or the block's index. guarded: an index was compared. left: a
    thread may have returned.
    """

    tokens: list[Token]
    uniform: frozenset[str]
    shared: frozenset[str]
    thread: set[str] = field(default_factory=set)
    block: set[str] = field(default_factory=set)
    found: list[HazardMatch] = field(default_factory=list)
    guarded: bool = False
    left: bool = False

    def differs(self, start: int, end: int) -> bool:
        """Whether the expression may have another value in another thread of the block."""
        return self._flows(start, end, _THREAD, self.thread)

    def _flows(self, start: int, end: int, seeds: frozenset[str], names: set[str]) -> bool:
        at = start
        while at < end:
            word = self.tokens[at][0]
            if word in self.uniform and at + 1 < end and self.tokens[at + 1][0] in ("(", "<"):
                at = self.closing(at + 1, end) if self.tokens[at + 1][0] == "(" else at + 1
            elif word in seeds or word in names:
                return True
            at += 1
        return False

    def closing(self, at: int, end: int) -> int:
        """The index of the bracket that closes the one at `at`, or `end`."""
        depth = 0
        for index in range(at, end):
            word = self.tokens[index][0]
            depth += (word in "([{") - (word in ")]}") if len(word) == 1 else 0
            if depth == 0:
                return index
        return end

    # ------------------------------------------------------------ statements

    def statements(self, at: int, end: int, branch: str, depth: int = 0) -> None:
        """Walks the statements in tokens[at:end].

        branch: "if" or "loop" where not all threads may reach them, else "".
        """
        while at < end and depth < _DEEP:
            at = self.statement(at, end, branch, depth)

    def statement(self, at: int, end: int, branch: str, depth: int) -> int:
        """Walks one statement; returns the index after it."""
        word = self.tokens[at][0]
        if depth >= _DEEP:
            return end
        if word == "{":
            close = self.closing(at, end)
            self.statements(at + 1, close, branch, depth + 1)
            return close + 1
        if word in ("if", "while", "for", "switch") and at + 1 < end:
            return self.controlled(at, end, branch, depth)
        if word == "do":
            return self.statement(at + 1, end, branch, depth + 1) if at + 1 < end else end
        stop = at
        while stop < end and self.tokens[stop][0] != ";":
            stop = self.closing(stop, end) + 1 if self.tokens[stop][0] in ("(", "[", "{") else stop + 1
        self.plain(at, min(stop, end), branch)
        return stop + 1

    def controlled(self, at: int, end: int, branch: str, depth: int) -> int:
        """Walks an if, while, for or switch; returns the index after it."""
        word, start = self.tokens[at][0], at + 1
        while start < end and self.tokens[start][0] != "(":  # if constexpr (...)
            start += 1
        close = self.closing(start, end)
        if word == "for":
            condition = self.header(start + 1, close)
        else:
            condition = (start + 1, close)
        self.compared(*condition)
        inner = branch
        if self.differs(*condition):
            inner = branch if branch == "if" else ("if" if word in ("if", "switch") else "loop")
        after = self.statement(close + 1, end, inner, depth + 1) if close + 1 < end else end
        if after < end and self.tokens[after][0] == "else" and word == "if":
            after = self.statement(after + 1, end, inner, depth + 1) if after + 1 < end else end
        return after

    def header(self, start: int, close: int) -> tuple[int, int]:
        """Walks the initialisation and step of a for; returns the condition's (start, end)."""
        places = [i for i in range(start, close) if self.tokens[i][0] == ";"]
        if len(places) < 2:
            return start, close
        self.plain(start, places[0], "")
        self.plain(places[1] + 1, close, "")
        return places[0] + 1, places[1]

    def plain(self, start: int, end: int, branch: str) -> None:
        """Walks a declaration, assignment or call."""
        words = [t[0] for t in self.tokens[start:end]]
        for offset, word in enumerate(words):
            if word in self.uniform - {"__ballot", "__any", "__all"} and words[offset + 1 : offset + 2] == ["("]:
                self.barrier(word, self.tokens[start + offset][1], branch)
        if "?" in words or "min" in words:
            self.compared(start, end)
        if words[:1] == ["return"] and branch == "if":
            self.left = True
        for name, first, last in self.assigned(start, end):
            if name not in self.shared:
                if self.differs(first, last):
                    self.thread.add(name)
                if self._flows(first, last, frozenset(("blockIdx",)), self.block):
                    self.block.add(name)

    def assigned(self, start: int, end: int) -> Iterator[tuple[str, int, int]]:
        """(name, start and end of its new value) for `a = x, b = y` and `a += x`; not for a[i] = x."""
        depth = 0
        for index in range(start, end):
            word = self.tokens[index][0]
            depth += (word in "([{") - (word in ")]}") if len(word) == 1 else 0
            if word in _ASSIGN and depth == 0 and index > start and re.match(r"[A-Za-z_]", self.tokens[index - 1][0]):
                last, inner = index + 1, 0
                while last < end and not (self.tokens[last][0] == "," and inner == 0):
                    inner += (self.tokens[last][0] in ("(", "[", "{")) - (self.tokens[last][0] in (")", "]", "}"))
                    last += 1
                yield self.tokens[index - 1][0], index + 1, last

    def compared(self, start: int, end: int) -> None:
        """Notes a comparison with an index, which guards the statements after it or inside."""
        if any(t[0] in _COMPARE for t in self.tokens[start:end]):
            indexed = self.differs(start, end) or self._flows(start, end, frozenset(("blockIdx",)), self.block)
            self.guarded = self.guarded or indexed

    def barrier(self, word: str, at: int, branch: str) -> None:
        """Reports a barrier, or a call of a function that has one, where not all threads reach it."""
        what = "__syncthreads()" if word in _BARRIERS else f"{word}(...), which has a barrier in it,"
        if branch == "if":
            self.found.append(
                HazardMatch("barrier_in_branch", f"{what} stands in a branch that not every thread takes", at, True)
            )
        elif branch == "loop":
            message = f"{what} stands in a loop whose length may differ between threads"
            self.found.append(HazardMatch("barrier_in_branch", message, at))
        elif self.left:
            message = f"{what} comes after threads may have returned"
            self.found.append(HazardMatch("barrier_in_branch", message, at))


def _walked(source: BlankedSource, function: SourceFunction, uniform: frozenset[str]) -> _Walk:
    body = _without_directives(source.body(function))
    tokens = [(m.group(), function.start + m.start()) for m in _TOKEN.finditer(body)]
    shared = frozenset(re.findall(r"\b__shared__\s+[\w\s()]*?\b(\w+)\s*(?:[\[;=,])", body))
    walk = _Walk(tokens, uniform, shared)
    walk.statements(1, max(len(tokens) - 1, 1), "")
    walk.found.clear()
    walk.left = False
    walk.statements(1, max(len(tokens) - 1, 1), "")  # the second walk knows at a loop's start what its end assigns
    return walk


def _without_directives(body: str) -> str:
    return re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lambda m: re.sub(r"[^\n]", " ", m.group()), body, flags=re.MULTILINE)


def _uniform(source: BlankedSource) -> frozenset[str]:
    """Functions whose results are uniform: barriers, votes, and the program's functions that contain a barrier."""
    known = set(_AGREED)
    bodies = {f.name: set(re.findall(r"\b[A-Za-z_]\w*\b", source.body(f))) for f in source.functions if not f.kernel}
    for _ in range(4):
        known |= {name for name, words in bodies.items() if words & known - {"__ballot", "__any", "__all"}}
    return frozenset(known)


def barriers(source: BlankedSource) -> Iterator[HazardMatch]:
    """Finds barriers that some threads of a block may not reach."""
    uniform = _uniform(source)
    for function in source.functions:
        if any(name in source.body(function) for name in uniform - {"__ballot", "__any", "__all"}):
            yield from _walked(source, function, uniform).found


def tails(source: BlankedSource) -> Iterator[HazardMatch]:
    """Finds kernels that store by block and thread index and compare no index."""
    uniform = _uniform(source)
    if "%" in " ".join(line for line in source.parsed.text.split("\n") if line.lstrip().startswith("assert ")):
        return  # the plan asserts whole tiles
    for function in source.functions:
        signature = source.parsed.signatures.get(function.name)
        if not function.kernel or signature is None:
            continue
        body = source.body(function)
        walk = _walked(source, function, uniform)
        pointers = "|".join(re.escape(p.name) for p in signature.params if p.pointer and not p.const)
        if walk.guarded or not pointers:
            continue
        for match in re.finditer(rf"\b(?:{pointers})\s*\[([^;=]{{1,300}})\]\s*[-+*|&^]?=(?!=)", body):
            names = set(re.findall(r"\b[A-Za-z_]\w*", match[1]))
            if names & (walk.thread | _THREAD) and names & (walk.block | {"blockIdx"}):
                message = f"kernel {function.name} compares no index with a size: the last block may run past the end"
                yield HazardMatch("missing_tail_guard", message, function.start + match.start())
                break
