"""Constraints on tasks: text in a small fixed vocabulary is parsed, and finished tasks are checked. No model is used.

The text has comma- or and-separated phrases ("memory-bound, three outputs, bf16, reduction over a middle axis"), pairs
(`bound=memory, outputs=3, dtype=bfloat16, axis=middle, fused=3-6, ndim=3, elements=1k-64k, operators=softmax+gelu`)
and names of operators and families of the library. Words outside the vocabulary are returned, never interpreted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Literal

from hipwright.records import Record
from hipwright.synth.records import SyntheticTask

Bound = Literal["memory", "compute"]
Axis = Literal["last", "middle", "first", "several"]

_NUMBER_WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
_MAX_OUTPUTS, _MAX_FUSED, _MAX_NDIM = 4, 8, 5
_MAX_ELEMENTS = 1 << 24
_DTYPES = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float32": "float32",
}
_AXES: dict[str, Axis] = {
    "last": "last",
    "inner": "last",
    "innermost": "last",
    "contiguous": "last",
    "middle": "middle",
    "first": "first",
    "leading": "first",
    "outer": "first",
    "several": "several",
    "multiple": "several",
    "two": "several",
    "all": "several",
}
_FILLER_WORDS = (
    "a an the with and of over on in to that which has have must be is are task tasks kernel input inputs tensor "
    "tensors using use uses containing contains some its from for"
)
_FILLERS = frozenset(_FILLER_WORDS.split())
_NUMBER = r"(\d+|" + "|".join(_NUMBER_WORDS) + r")"
_DIM = r"(?:axis|axes|dims?|dimensions?)"
_COUNT = r"([\d.]+)\s*([km]?)"


class TaskConstraints(Record, frozen=True, kw_only=True):
    """What a task must be; None or empty: no constraint.

    operators: names or families of the library that must all occur. fused, elements: inclusive bounds; elements are
    those of all inputs together, ndim is the rank of the largest one. bound: on the first of `describe.DEVICES`.
    reduction_axis: of at least one reduction.
    """

    bound: Bound | None = None
    outputs: int | None = None
    dtype: str | None = None
    operators: tuple[str, ...] = ()
    reduction_axis: Axis | None = None
    fused: tuple[int, int] | None = None
    ndim: int | None = None
    elements: tuple[int, int] | None = None


# ---------------------------------------------------------------- parsing


def parse_constraints(text: str) -> tuple[TaskConstraints, tuple[str, ...]]:
    """(the constraints of a text, its words outside the vocabulary)."""
    left = _pairs_as_phrases(text.lower())
    found: dict[str, object] = {}
    for pattern, read in _RULES:
        while (match := re.search(pattern, left)) is not None:
            fields = read(match)
            if fields is None or any(found.get(key, value) != value for key, value in fields.items()):
                break  # out of range or contradictory: its words stay and are returned as unknown
            found |= fields
            left = f"{left[: match.start()]} | {left[match.end() :]}"
    names, left = _operators(left)
    words = [word for word in re.findall(r"[\w.+=-]+", left) if word not in _FILLERS]
    return TaskConstraints(operators=names, **found), tuple(dict.fromkeys(words))  # type: ignore[arg-type]


def _pairs_as_phrases(text: str) -> str:
    """The text with its key=value pairs written as phrases."""
    spelled = {
        "bound": "{}-bound",
        "outputs": "{} outputs",
        "dtype": "{}",
        "axis": "reduction over {} axis",
        "ndim": "{}-d",
        "reduction_axis": "reduction over {} axis",
        "fused": "{} fused operators",
        "elements": "{} elements",
    }

    def phrase(match: re.Match[str]) -> str:
        key, value = match[1], match[2].strip()
        if key == "operators":
            return ", ".join(value.split("+"))
        return spelled[key].format(value) if key in spelled else match[0]

    return re.sub(r"\b(\w+)\s*=\s*([^,;\s]+)", phrase, text)


def _number(word: str) -> int:
    return _NUMBER_WORDS.get(word) or int(word)


def _outputs(match: re.Match[str]) -> dict[str, object] | None:
    count = _number(match[1])
    return {"outputs": count} if 1 <= count <= _MAX_OUTPUTS else None


def _ndim(match: re.Match[str]) -> dict[str, object] | None:
    rank = _number(next(filter(None, match.groups())))
    return {"ndim": rank} if 1 <= rank <= _MAX_NDIM else None


def _bounds(how: str, low: int, high: int | None, most: int) -> tuple[int, int]:
    if high is not None:
        return low, high
    return {
        "at least": (low, most),
        "over": (low, most),
        "more than": (low + 1, most),
        "at most": (0, low),
        "up to": (0, low),
        "under": (0, low),
        "about": (low // 2, low * 2),
    }.get(how, (low, low))


def _fused(match: re.Match[str]) -> dict[str, object] | None:
    how = "at least" if match[4] else match[1] or ""
    low, high = _bounds(how, _number(match[2]), _number(match[3]) if match[3] else None, _MAX_FUSED)
    return {"fused": (low, high)} if low <= high and high >= 1 and low <= _MAX_FUSED else None


def _elements(match: re.Match[str]) -> dict[str, object] | None:
    scale = {"": 1, "k": 1_000, "m": 1_000_000}
    low = int(float(match[2]) * scale[match[3]])
    high = int(float(match[4]) * scale[match[5]]) if match[4] else None
    low, high = _bounds(match[1] or "", low, high, _MAX_ELEMENTS)
    return {"elements": (low, high)} if low <= high and 1 <= high <= _MAX_ELEMENTS else None


_HOW_MANY = r"(?:(at least|at most|up to|over|under|more than|about|between)\s+)?"
_RULES: tuple[tuple[str, Callable[[re.Match[str]], dict[str, object] | None]], ...] = (
    (r"\b(memory|compute)[- ]bound\b", lambda m: {"bound": m[1]}),
    (r"\bbandwidth[- ]bound\b", lambda m: {"bound": "memory"}),
    (rf"\b{_NUMBER} outputs?\b", _outputs),
    (
        rf"\breduc\w+ (?:over|along|across|on) (?:an? |the )?({'|'.join(_AXES)}) {_DIM}\b",
        lambda m: {"reduction_axis": _AXES[m[1]]},
    ),
    (rf"\b({'|'.join(_AXES)})[- ]{_DIM} reductions?\b", lambda m: {"reduction_axis": _AXES[m[1]]}),
    (
        rf"\b{_HOW_MANY}{_NUMBER}(?:\s*(?:-|to|and)\s*{_NUMBER})?( or more)? "
        r"(?:fused )?(?:operators?|operations|ops)\b",
        _fused,
    ),
    (rf"\b{_HOW_MANY}{_COUNT}(?:\s*(?:-|to|and)\s*{_COUNT})? elements\b", _elements),
    (rf"\b{_NUMBER}[- ]?(?:d|dimensional)\b", _ndim),
    (rf"\brank {_NUMBER}\b", _ndim),
    (rf"\b({'|'.join(_DTYPES)})\b", lambda m: {"dtype": _DTYPES[m[1]]}),
)


def _operators(left: str) -> tuple[tuple[str, ...], str]:
    """(names of operators and families in the text, the rest of it). Spaces and hyphens stand for underscores."""
    from hipwright.synth.library import LIBRARY

    names = {one.name for one in LIBRARY} | {one.family for one in LIBRARY}
    found = []
    for name in sorted(names, key=lambda name: (-len(name), name)):
        pattern = r"\b_?" + re.escape(name.lstrip("_")).replace("_", "[_ -]") + r"s?(?![\w-])"
        left, count = re.subn(pattern, " | ", left)
        found += [name] if count else []
    return tuple(sorted(found)), left


# ---------------------------------------------------------------- checking


def violation(task: SyntheticTask, constraints: TaskConstraints) -> str:
    """Which constraint a finished task does not meet, or "" when it meets all."""
    missing = [name for name in constraints.operators if not _occurs(name, task)]
    if missing:
        return f"it has no {', '.join(missing)}"
    size = sum(prod(spec.shape) for spec in task.inputs)
    rank = len(max(task.inputs, key=lambda spec: prod(spec.shape)).shape) if task.inputs else 0
    exact: tuple[tuple[str, object, object], ...] = (
        ("bound", constraints.bound, task.provenance.get("bound")),
        ("outputs", constraints.outputs, len(task.outputs)),
        ("dtype", constraints.dtype, task.dtype),
        ("ndim", constraints.ndim, rank),
    )
    for name, required, actual in exact:
        if required is not None and required != actual:
            return f"{name} is {actual}, not {required}"
    for name, span, number in (("fused", constraints.fused, task.fused), ("elements", constraints.elements, size)):
        if span is not None and not span[0] <= number <= span[1]:
            return f"{name} is {number}, not {span[0]} to {span[1]}"
    axes = task.provenance.get("reduction_axes") or ()
    if constraints.reduction_axis is not None and constraints.reduction_axis not in axes:
        return f"it reduces over {' and '.join(axes) or 'nothing'}, not {constraints.reduction_axis}"
    return ""


def _occurs(name: str, task: SyntheticTask) -> bool:
    """Whether the captured graph, not the draft's own list, holds an operator of that name or family."""
    from hipwright.synth.library import LIBRARY

    names = {_base(one.aten) for one in LIBRARY if one.name == name}
    if names:
        return bool(names & set(map(_base, task.operators)))
    return name in task.families


def _base(aten: str) -> str:
    return aten.removeprefix("aten.").split(".")[0]


PRESETS: tuple[str, ...] = (
    "memory-bound, three outputs, bf16, reduction over a middle axis",
    "two outputs, reduction over the first axis",
    "float16, reduction over the last axis, at least 3 operators",
    "4-d, reduction over several axes",
    "bf16, at least 4 operators, reduction over the last axis",
    "three outputs, float32, 3-d",
    "float16, reduction over a middle axis, 3-d",
    "at least 5 operators, at most 64k elements",
    "bf16, two outputs, 2-d",
    "float32, at least 100k elements, reduction over the first axis",
)
"""Constraints that the constraint mode cycles through when none is given."""
