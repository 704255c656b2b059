"""Canonical hashes of captured graphs, and their steps for comparing two of them.

`graph_hash` is the same for graphs that differ only in names, in the order of independent operators and of commutative
arguments, in views without effect, and in spellings of one operator (rules.py). It depends on shapes, dtypes and
constants; `shapeless_hash` depends on operators, wiring, ranks and axes, not on sizes, widths and constants.

The hash is taken of the colours of colour refinement (Weisfeiler and Leman 1968): isomorphic graphs have equal hashes.
Other graphs have equal hashes only where refinement does not separate them, which needs cycles of shared operands under
equal operators.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hipwright.records import content_key
from hipwright.synth.graphs.form import COMMUTATIVE, LAYOUT, Argument, DimArgument, FormValue, NormalForm, Ref, refs
from hipwright.synth.graphs.normalise import normal_form

Label = Callable[[NormalForm, FormValue], str]

_MAX_ROUNDS = 8  # of refinement
_NUMBERS_COUNT = frozenset(
    {"pow", "item", "linalg_vector_norm"}
)  # operators whose numeric arguments count in `shapeless_hash`


def graph_hash(graph: Mapping[str, Any]) -> str:
    """20 hex digits of a captured graph (capture.graph.Graph.to_dict()) with its sizes, dtypes and constants."""
    form = normal_form(graph)
    ends = Counter((place, f"output {k}") for k, place in enumerate(form.outputs))
    ends.update((place, "write") for place in form.writes)
    return content_key("graph", *_colours(form, ends, _full))


def shapeless_hash(graph: Mapping[str, Any]) -> str:
    """20 hex digits of a captured graph's operators and wiring, without sizes, widths, constants and output order."""
    form = normal_form(graph, widths=False)
    form.writes = []
    ends = Counter((place, "output") for place in form.outputs)
    return content_key("shapeless graph", *_colours(form, ends, _shapeless))


def graph_steps(graph: Mapping[str, Any]) -> frozenset[str]:
    """The steps of a graph: its operators and its chains of two and three operators along the data; no views and casts.

    Each occurrence is numbered ("relu#2"), so that set operations work as on multisets.
    """
    form = normal_form(graph, widths=False)
    sources: dict[int, tuple[int, ...]] = {}  # of each value, the computed values it is read from, through views
    names: dict[int, str] = {}
    found: list[str] = []
    form.writes = []
    for place in form.used():
        value = form.values[place]
        above = tuple(dict.fromkeys(s for ref in refs(value.args) for s in sources[ref]))
        if value.op in LAYOUT or value.op == "item":
            sources[place] = above
        elif value.leaf:
            names[place] = "in"
            sources[place] = (place,) if value.op == "input" else ()
        else:
            names[place] = _step(value)
            sources[place] = (place,)
            found += chains(names[place], [(names[s], [names[t] for t in _above(form, s, sources)]) for s in above])
    return counted(found)


def _above(form: NormalForm, place: int, sources: Mapping[int, tuple[int, ...]]) -> list[int]:
    return list(dict.fromkeys(s for ref in refs(form.values[place].args) for s in sources[ref]))


def chains(name: str, above: Iterable[tuple[str, Iterable[str]]]) -> list[str]:
    """The steps of one operator. above: (operator, the operators above it) for each operator that feeds it."""
    found = [name]
    for source, further in above:
        found.append(f"{name}<{source}")
        found += [f"{name}<{source}<{last}" for last in further]
    return found


def counted(found: Iterable[str]) -> frozenset[str]:
    """A multiset as a set: each occurrence with its number appended."""
    seen: Counter[str] = Counter()
    marked = []
    for item in found:
        seen[item] += 1
        marked.append(f"{item}#{seen[item]}")
    return frozenset(marked)


def _step(value: FormValue) -> str:
    exponent = value.args[1] if value.op == "pow" and len(value.args) > 1 else None
    return f"pow {exponent:g}" if isinstance(exponent, (int, float)) else value.op


# ---------------------------------------------------------------- colours


def _colours(form: NormalForm, ends: Counter[tuple[int, str]], label: Label) -> list[str]:
    """The refined colours of all used values, sorted. ends: how often each value is which output."""
    used = form.used()
    tails: dict[int, list[str]] = {}
    for (place, what), count in ends.items():
        tails.setdefault(place, []).append(f"{what} x{count}")
    colours = {place: label(form, form.values[place]) for place in used}
    classes = 0
    for _ in range(_MAX_ROUNDS):
        colours = _down(form, used, _up(form, used, colours), tails)
        if (now := len(set(colours.values()))) == classes:
            break
        classes = now
    return sorted(colours.values())


def _up(form: NormalForm, used: list[int], labels: Mapping[int, str]) -> dict[int, str]:
    """Each value's colour from its label and its operands' colours."""
    colours: dict[int, str] = {}
    for place in used:
        value = form.values[place]
        operands = [colours[ref] for ref in refs(value.args)]
        if value.op in COMMUTATIVE:
            operands.sort()
        colours[place] = _digest(labels[place], *operands)
    return colours


def _down(form: NormalForm, used: list[int], up: Mapping[int, str], tails: Mapping[int, list[str]]) -> dict[int, str]:
    """Each value's colour from its own and from its users with the argument positions at which they read it."""
    users: dict[int, list[str]] = {place: list(tails.get(place, ())) for place in used}
    colours: dict[int, str] = {}
    for place in reversed(used):
        colours[place] = _digest(up[place], *sorted(users[place]))
        value = form.values[place]
        for position, ref in enumerate(refs(value.args)):
            users[ref].append(f"{0 if value.op in COMMUTATIVE else position} {colours[place]}")
    return colours


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


# ---------------------------------------------------------------- labels


def _full(form: NormalForm, value: FormValue) -> str:
    content = value.args if value.op == "const" else () if value.leaf else value.args
    return f"{value.op} {value.dtype} {value.shape} {_sorted_text(value.op, content)}"


def _shapeless(form: NormalForm, value: FormValue) -> str:
    if value.leaf:
        return f"{value.op} {value.dtype} {len(value.shape)}"
    if value.op == "slice":
        x, axis, start, end, *_ = value.args
        place = f"{start == 0} {end == form.values[x.id].shape[axis.index]}"
        return f"slice {axis} {place} {len(value.shape)}"
    if value.op == "clamp":
        limits = [isinstance(limit, Ref) or limit is not None for limit in value.args[1:3]]
        return f"clamp {value.dtype} {len(value.shape)} {limits}"
    args = value.args if value.op in _NUMBERS_COUNT else _without_numbers(value.args)
    return f"{value.op} {value.dtype} {len(value.shape)} {_sorted_text(value.op, args)}"


def _sorted_text(op: str, args: tuple[Argument, ...]) -> str:
    """The arguments with operands as "."; sorted for commutative operators."""
    parts = [_text(a) for a in args]
    return ", ".join(sorted(parts) if op in COMMUTATIVE else parts)


def _text(argument: Argument) -> str:
    if isinstance(argument, Ref):
        return "."
    if isinstance(argument, tuple):
        return f"({', '.join(map(_text, argument))})"
    if isinstance(argument, float) and argument.is_integer():
        return str(int(argument))  # 2.0 * x is 2 * x
    return str(argument) if isinstance(argument, DimArgument) else repr(argument)


def _without_numbers(args: tuple[Argument, ...]) -> tuple[Argument, ...]:
    kept: list[Argument] = []
    for a in args:
        if isinstance(a, tuple):
            kept += [inner] if (inner := _without_numbers(a)) else []
        elif isinstance(a, bool) or not isinstance(a, (int, float)):
            kept.append(a)
    return tuple(kept)
