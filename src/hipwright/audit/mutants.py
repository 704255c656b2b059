"""Automatic mutants of HIP source: one small change at one place, as in mistakes of people and models.

Changes are made on tokens; a mutant need not compile (then it is not counted, and another takes its place). Changes
stay inside function bodies; LDS declarations, preprocessor lines and comments are not changed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hipwright.program import Parsed
from hipwright.program.blanking import blank

_SWAPS = {
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "*",
    "%": "/",
    "+=": "-=",
    "-=": "+=",
    "*=": "+=",
    "/=": "*=",
    "&&": "||",
    "||": "&&",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    ">>=": "<<=",
    "<<=": ">>=",
}
_OPERATOR = re.compile(r"(?<= )(?:" + "|".join(sorted(map(re.escape, _SWAPS), key=len, reverse=True)) + r")(?= )")
_BOUND = re.compile(r"(?<= )(?:<|<=) (?P<bound>[A-Za-z_]\w*(?:\.[xyz])?|\d+)(?=[;)\s&|?])")
_FUNCTION_SWAPS = {
    "fmaxf": "fminf",
    "fminf": "fmaxf",
    "max": "min",
    "min": "max",
    "__shfl_xor": "__shfl_up",
    "__shfl_down": "__shfl_up",
    "__shfl_up": "__shfl_down",
    "rsqrtf": "sqrtf",
    "sqrtf": "rsqrtf",
    "fabsf": "",
}
_CALLED = re.compile(r"\b(?:" + "|".join(_FUNCTION_SWAPS) + r")(?=\()")
_SHUFFLE = re.compile(r"\b__shfl\w*\([^,()]+, (?P<distance>\w+)\)")
_BARRIER = re.compile(r"\b__syncthreads\(\);")
_ATOMIC = re.compile(r"\batomicAdd\((?P<to>[^;]*?), (?P<value>[^,;]*)\);")
_CONDITION = re.compile(r"\bif \((?P<test>[^()]*(?:\([^()]*\)[^()]*)*)\)")
_SUBSCRIPT = re.compile(r"(?<=[\w\])])\[(?P<index>[^\[\];]+)\]")
_NUMBER = re.compile(r"(?<![\w.])(?:\d+\.\d*f?|\d+)(?![\w.\]])")
_AXES = re.compile(r"\b(?P<what>threadIdx|blockIdx|blockDim)\.(?P<axis>[xy])\b")
_CAST = re.compile(r"\((?:float|int)\)(?=[\w(])")
_TERM = re.compile(r"(?m)(?<=[;{}])(?P<indent>\s*)(?P<statement>[\w\[\]. *+()]+ (?:\+=|=) [^;{}]+;)(?=\s)")
_DECLARES = re.compile(
    r"^\s*(?:const |static |unsigned |extern )*(?:__shared__|float4|float2|float|double|int|long|bool|dim3|auto)\b"
)


@dataclass(frozen=True)
class Mutant:
    """One change. program: the stem of the honest program; line counts from 1 in its file."""

    program: str
    operator: str
    line: int
    before: str
    after: str
    text: str

    def description(self) -> str:
        """The change in one line."""
        return f"{self.program}:{self.line}: {self.operator}: `{self.before.strip()}` -> `{self.after.strip()}`"


def mutants(program: str, parsed: Parsed) -> list[Mutant]:
    """Every mutant of a program, in the order of its text."""
    hip = parsed.hip
    code = blank(hip)
    start = parsed.text.index(hip)
    found = []
    for operator, at, before, after in sorted(
        set(_changes(code)), key=lambda change: (change[1], change[0], change[3])
    ):
        changed = hip[:at] + after + hip[at + len(before) :]
        text = parsed.text[:start] + changed + parsed.text[start + len(hip) :]
        line = parsed.hip_line + hip.count("\n", 0, at)
        whole = _line_of(hip, at), _line_of(changed, at)
        found.append(Mutant(program, operator, line, *whole, text))
    return found


def sample(groups: Sequence[list[Mutant]], seed: int) -> list[Mutant]:
    """All mutants in an order that alternates between programs, and within each between kinds of change."""
    rng = random.Random(seed)
    queues = [_by_operator(group, rng) for group in groups if group]
    rng.shuffle(queues)
    order = []
    while queues:
        order += [queue.pop(0) for queue in queues]
        queues = [queue for queue in queues if queue]
    return order


def _by_operator(group: list[Mutant], rng: random.Random) -> list[Mutant]:
    kinds: dict[str, list[Mutant]] = {}
    for mutant in group:
        kinds.setdefault(mutant.operator, []).append(mutant)
    lists = list(kinds.values())
    for one in lists:
        rng.shuffle(one)
    rng.shuffle(lists)
    order = []
    while lists:
        order += [one.pop() for one in lists]
        lists = [one for one in lists if one]
    return order


Change = tuple[str, int, str, str]  # operator, offset, text before, text after


def _changes(code: str) -> Iterator[Change]:
    for begin, end in _bodies(code):
        for name, at, before, after in _body_changes(code[begin:end]):
            yield name, begin + at, before, after


def _bodies(code: str) -> Iterator[tuple[int, int]]:
    """The outermost braces that follow a parameter list."""
    depth, begin = 0, 0
    for match in re.finditer(r"[{}]", code):
        if match.group() == "{":
            if depth == 0:
                begin = match.start()
            depth += 1
        else:
            depth -= 1
            if depth == 0 and ")" in code[max(0, begin - 40) : begin]:
                yield begin, match.end()


def _body_changes(body: str) -> Iterator[Change]:
    for match in _BARRIER.finditer(body):
        yield "dropped barrier", match.start(), match.group(), ";"
    for match in _OPERATOR.finditer(body):
        if not (match.group() == "*" and _DECLARES.match(_line_of(body, match.start()))):
            yield _operator_kind(match.group()), match.start(), match.group(), _SWAPS[match.group()]
    for match in _BOUND.finditer(body):
        for sign in "+-":
            yield "changed bound", match.start("bound"), match["bound"], f"({match['bound']} {sign} 1)"
    for match in _CALLED.finditer(body):
        yield "swapped function", match.start(), match.group(), _FUNCTION_SWAPS[match.group()]
    for match in _SHUFFLE.finditer(body):
        # xor with d + 1 still visits every lane once: another order of the same sum, which is no mistake
        wrong = f"({match['distance']} / 2)" if "xor" in match.group() else f"({match['distance']} + 1)"
        yield "shuffle distance", match.start("distance"), match["distance"], wrong
    for match in _ATOMIC.finditer(body):
        to = match["to"]
        yield "lost atomic", match.start(), match.group(), f"*({to}) += {match['value']};"
    for match in _CONDITION.finditer(body):
        yield "negated condition", match.start("test"), match["test"], f"!({match['test']})"
    yield from _off_by_one(body)
    for match in _AXES.finditer(body):
        other = {"threadIdx": "blockIdx", "blockIdx": "threadIdx", "blockDim": "gridDim"}[match["what"]]
        yield "wrong index", match.start(), match.group(), f"{other}.{match['axis']}"
    for match in _CAST.finditer(body):
        yield "removed cast", match.start(), match.group(), ""
    for match in _TERM.finditer(body):
        if not _DECLARES.match(match["statement"]):
            yield "dropped statement", match.start("statement"), match["statement"], ";"


def _off_by_one(body: str) -> Iterator[Change]:
    for match in _SUBSCRIPT.finditer(body):
        if "__shared__" not in _line_of(body, match.start()) and not _declared_array(body, match.start()):
            yield "off by one", match.start("index"), match["index"], f"{match['index']} + 1"
    for match in _NUMBER.finditer(body):
        if "__shared__" not in _line_of(body, match.start()):
            yield "changed constant", match.start(), match.group(), _other_number(match.group())


def _declared_array(body: str, at: int) -> bool:
    """Whether the bracket belongs to a declaration such as `float means[64]`."""
    return bool(re.search(r"\b(?:float|double|int|bool|half|unsigned|long)\s+[\w\[\], ]*$", body[max(0, at - 60) : at]))


def _operator_kind(operator: str) -> str:
    return "changed bound" if operator in ("<", "<=", ">", ">=") else "swapped operator"


def _other_number(number: str) -> str:
    if "." not in number:
        return str(int(number) + 1)
    value = float(number.rstrip("f"))
    return f"{1.0 if value == 0.0 else value * 1.01!r}{'f' if number.endswith('f') else ''}"


def _line_of(text: str, at: int) -> str:
    begin = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    return text[begin : len(text) if end < 0 else end]
