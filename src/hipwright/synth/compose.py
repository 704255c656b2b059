"""Composition: tasks from the operator library, valid by construction. Deterministic, without torch.

A task is a chain of operators on a main input. Second operands are earlier values, new inputs or parameters; further
outputs branch off earlier values. The range of every value is tracked (values.py): an operator that cannot take a value
raises Unfit, and another one is drawn.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log, prod
from typing import TypeVar

from hipwright.errors import BadInput
from hipwright.records import content_key
from hipwright.synth.constrain import TaskConstraints
from hipwright.synth.library import BY_NAME, LIBRARY, operators_named
from hipwright.synth.operators.base import SynthOperator
from hipwright.synth.operators.pointwise import ACTIVATIONS
from hipwright.synth.records import Draft
from hipwright.synth.sketch import SHORT, Sketch, text_of
from hipwright.synth.values import SketchValue, Unfit, require

T = TypeVar("T")

MAX_PLANS, MAX_DRAWS = 200, 40  # compositions planned for one draft; operators drawn for one place
LIBRARY_SHARE = 0.15  # of drafts that hold an operator which the engine leaves to the library
DTYPES = {"float32": 0.5, "bfloat16": 0.25, "float16": 0.25}
STEPS = {1: 8, 2: 16, 3: 24, 4: 20, 5: 14, 6: 9, 7: 5, 8: 4}
OUTPUTS = {1: 70, 2: 22, 3: 8}
INPUTS = {"normal": 76, "unit": 14, "positive": 10}
RANKS = {2: 40, 3: 32, 4: 28}
FAMILIES = {
    "pointwise": 5.0,
    "reductions": 3.0,
    "normalisations": 2.0,
    "softmax": 1.2,
    "scans": 0.7,
    "pooling": 1.5,
    "layout": 2.5,
    "indexing": 1.3,
    "losses": 1.2,
    "gates": 0.5,
    "distances": 0.5,
    "resizing": 0.8,
    "selection": 0.8,
    "attention": 0.5,
}
NAMES: dict[int, list[tuple[str, ...]]] = {
    2: [("rows", "features"), ("batch", "width"), ("tokens", "hidden")],
    3: [("batch", "steps", "width"), ("batch", "channels", "length"), ("heads", "queries", "keys")],
    4: [("batch", "channels", "height", "width")],
}
LEADING = (2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 24, 32)
CHANNELS = (6, 8, 12, 15, 16, 20, 24, 30, 32, 36, 48, 64)
INNER = (17, 23, 31, 32, 40, 47, 48, 63, 64, 80, 96, 97, 101, 127, 128, 160, 192, 200, 251, 256)
LAST = (*INNER, 320, 384, 500, 509, 512, 640, 768, 1000, 1021, 1024, 1536, 2048)
ROWS = (32, 48, 61, 64, 96, 100, 127, 128, 200, 250, 256, 331, 512, 600, 1000, 1024)
PIXELS = (7, 8, 9, 12, 14, 15, 16, 20, 21, 24, 28, 31, 32, 40, 45, 56, 64)
POOLS: dict[int, tuple[tuple[int, ...], ...]] = {
    2: (ROWS, LAST),
    3: (LEADING, INNER, INNER),
    4: (LEADING, CHANNELS, PIXELS, PIXELS),
}


def compose(rng: random.Random, *, constraints: TaskConstraints | None = None, lead: str = "") -> Draft:
    """One draft, decided by one number drawn from rng (its `seed`). lead: an operator or family that must occur.

    Raises BadInput for an operator that the library does not have, and where no composition meets the constraints.
    """
    seed = rng.getrandbits(48)
    why = "nothing fits"
    for attempt in range(MAX_PLANS):
        inner = random.Random(f"composition {seed} {attempt}")
        try:
            return _draft(inner, seed, _plan(inner, constraints or TaskConstraints(), lead), constraints is not None)
        except Unfit as unfit:
            why = str(unfit)
    raise BadInput(
        f"no composition of {lead or 'the library'} meets what is wanted: {why}",
        hint="leave out one of the constraints",
    )


def lead_operator(index: int) -> str:
    """The name of the operator that the draft of an index must hold; len(LIBRARY) drafts in a row hold all.

    Consecutive ones are of different families, and those that stay library calls are spread evenly.
    """
    return LIBRARY[index * 37 % len(LIBRARY)].name


# ---------------------------------------------------------------- the plan


@dataclass(frozen=True)
class _Plan:
    """What is decided before operators are drawn. sizes: {name: size}; leads: operators that must occur."""

    dtype: str
    sizes: dict[str, int]
    steps: int
    outputs: int
    leads: tuple[SynthOperator, ...]
    axis: str


def _plan(rng: random.Random, constraints: TaskConstraints, lead: str) -> _Plan:
    leads = _leads(rng, constraints, lead)
    rank = _rank(rng, leads, constraints.ndim)
    low, high = constraints.elements or (1500, 300_000)
    if not constraints.elements and rng.random() < 0.04:
        high = 1_500_000
    least, most = constraints.fused or (1, 8)
    if any(one.library for one in leads):
        least = min(most, max(3, least))
    steps = min(most, max(least, len(leads), _draw(rng, STEPS)))
    return _Plan(
        dtype=constraints.dtype or _draw(rng, DTYPES),
        sizes=_sizes(rng, rank, low, high),
        steps=steps,
        outputs=constraints.outputs or _draw(rng, OUTPUTS),
        leads=leads,
        axis=constraints.reduction_axis or "",
    )


def _leads(rng: random.Random, constraints: TaskConstraints, lead: str) -> tuple[SynthOperator, ...]:
    """Operators that must occur: those of the constraints and `lead`, else one drawn evenly from the library."""
    names = [*constraints.operators, *([lead] if lead else [])]
    found = []
    for name in names:
        if not (choice := operators_named(name)):
            raise BadInput(f"the library has no operator or family {name}", hint="see docs/synth.md")
        found.append(rng.choice(choice))
    if constraints.reduction_axis and not any(one.family == "reductions" for one in found):
        found.append(rng.choice([BY_NAME[name] for name in ("sum", "mean", "amax", "var", "linalg_vector_norm")]))
    if constraints.bound == "compute" and not any(one.family == "products" for one in found):
        found.insert(0, BY_NAME["matmul"])
    if not found:
        library = rng.random() < LIBRARY_SHARE
        found = [rng.choice([one for one in LIBRARY if one.library == library])]
    return tuple(
        sorted(dict.fromkeys(found), key=lambda one: (one.family == "losses" or one.non_float, found.index(one)))
    )


def _rank(rng: random.Random, leads: Sequence[SynthOperator], rank: int | None) -> int:
    ranks = {n: weight for n, weight in RANKS.items() if all(n in one.ranks for one in leads)}
    if rank is not None:
        require(rank in ranks, f"rank {rank} does not go with the operators")
        return rank
    require(bool(ranks), "the operators take no rank in common")
    return _draw(rng, ranks)


def _sizes(rng: random.Random, rank: int, low: int, high: int) -> dict[str, int]:
    """{name: size}, all different, with a product from low to high."""
    names = rng.choice(NAMES[rank])
    pools = POOLS[rank]
    least = max(low, 1)  # "at most N elements" has the lower bound 0
    target = least * (high / least) ** rng.random()
    best: tuple[float, tuple[int, ...]] = (1e9, ())
    for _ in range(12):
        drawn = tuple(rng.choice(pool) for pool in pools)
        if low <= prod(drawn) <= high and len(set(drawn)) == rank:
            best = min(best, (abs(log(prod(drawn) / target)), drawn))
    require(bool(best[1]), f"no sizes with {low} to {high} elements")
    return dict(zip(names, best[1], strict=True))


def _draw(rng: random.Random, weights: Mapping[T, float]) -> T:
    return rng.choices(list(weights), list(weights.values()))[0]


# ---------------------------------------------------------------- the draft


def _draft(rng: random.Random, seed: int, plan: _Plan, constrained: bool) -> Draft:
    sketch = Sketch(rng=rng, dtype=plan.dtype, sizes=dict(plan.sizes), axis=plan.axis)
    sketch.taken |= set(plan.sizes)
    x = sketch.float_input("x", tuple(plan.sizes.values()), kind=_draw(rng, INPUTS))
    sketch, last = _chain(sketch, x, plan)
    sketch, outputs = _branches(sketch, last, plan.outputs)
    require(any(not BY_NAME[name].view for name in sketch.used), "it only moves numbers")
    title = _sentence([BY_NAME[name].phrase for name in sketch.used])
    source = text_of(sketch, outputs, f"{title}, in {plan.dtype}.")
    short = "_".join(name.strip("_").replace("_", "") for name in sketch.used[:4])
    return Draft(
        name=f"{short}_{SHORT[plan.dtype]}_{content_key('draft', source)[:6]}",
        source=source,
        mode="constraint" if constrained else "composition",
        operators=tuple(dict.fromkeys(sketch.used)),
        seed=seed,
        detail=title,
    )


def _chain(sketch: Sketch, x: SketchValue, plan: _Plan) -> tuple[Sketch, SketchValue]:
    """Apply the plan's steps to x: drawn operators, with the leads in order among them."""
    pending = list(plan.leads)
    start = sketch.rng.randint(0, plan.steps - len(pending))
    for step in range(plan.steps):
        left = plan.steps - step
        if pending and (step >= start or left <= len(pending)):
            chosen = pending.pop(0)
            require(_accepts(chosen, x), "the value does not suit the operator asked for")
            sketch, x = _apply(sketch, chosen, x)
        else:
            sketch, x = _apply_drawn(sketch, x, pending, last=left == 1)
        if x.dtype == "int64" or x.rank == 0:
            require(not pending, "an operator that was asked for has no place")
            break
    return sketch, x


def _apply_drawn(
    sketch: Sketch, x: SketchValue, pending: Sequence[SynthOperator], *, last: bool
) -> tuple[Sketch, SketchValue]:
    """Apply one drawn operator that the engine fuses and whose result the pending operators take."""
    for _ in range(MAX_DRAWS):
        if (chosen := _draw_operator(sketch, x, [one.name for one in pending], last=last)) is None:
            continue
        try:
            tried, value = _apply(sketch, chosen, x)
        except Unfit:
            continue
        if all(_accepts(one, value) for one in pending):
            return tried, value
    raise Unfit("no operator fits")


def _draw_operator(sketch: Sketch, x: SketchValue, later: Sequence[str], *, last: bool) -> SynthOperator | None:
    family = _draw(sketch.rng, FAMILIES)
    before = sketch.used[-1] if sketch.used else ""
    after_view = bool(before) and BY_NAME[before].view
    found = [
        one
        for one in LIBRARY
        if one.family == family
        and not one.library
        and _accepts(one, x)
        and one.name not in (*sketch.used[-2:], *later)
        and (last or not (one.non_float or one.family == "losses"))
        and not (one.name in ACTIVATIONS and before in ACTIVATIONS)
        and not (one.view and (after_view or last))
    ]
    return sketch.rng.choice(found) if found else None


def _accepts(chosen: SynthOperator, x: SketchValue) -> bool:
    return x.rank in chosen.ranks or (chosen.pointwise and x.rank >= 1)


def _apply(sketch: Sketch, chosen: SynthOperator, x: SketchValue) -> tuple[Sketch, SketchValue]:
    """(a copy of the sketch with one more operator, its result). Raises Unfit."""
    tried = sketch.copy()
    value = chosen.make(tried, x)
    tried.used.append(chosen.name)
    return tried, value


def _branches(sketch: Sketch, last: SketchValue, count: int) -> tuple[Sketch, list[SketchValue]]:
    """Add outputs up to `count`: each is one more operator on an earlier value."""
    outputs = [last]
    for _ in range(count - 1):
        for _ in range(MAX_DRAWS):
            start = sketch.rng.choice([v for v in sketch.values if v.name != last.name] or [last])
            try:
                tried, value = _apply_drawn(sketch, start, (), last=True)
            except Unfit:
                continue
            if value.elements and not BY_NAME[tried.used[-1]].view:
                sketch = tried
                outputs.append(replace(value))
                break
        else:
            raise Unfit("no further output")
    return sketch, outputs


def _sentence(phrases: Sequence[str]) -> str:
    listed = list(dict.fromkeys(phrases))
    text = listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"
    return text[0].upper() + text[1:]
