"""A module as it is drawn: statements, parameters and inputs as text, with each value's shape and dtype known.

Every expression is evaluated on torch's meta device when it is added, so what the strategies draw is a module that
torch accepts. Sizes are those around every border of vectors, waves and blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import strategies as st

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025)
MOST = 1 << 14
"""Elements of a value, at most: every thread is a fiber on the processor."""
PRODUCTS = 1 << 21
"""Multiplications of an operator, at most."""
FLOATS = ("float32", "float32", "float16", "bfloat16")
LAYOUTS = ("dense", "dense", "transposed", "sliced", "stepped", "expanded")


class Unfit(Exception):
    """An operator that does not take what was drawn; another is drawn."""


@dataclass(frozen=True)
class Value:
    """A value of the forward: its name, and a meta tensor."""

    name: str
    meta: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return tuple(self.meta.shape)

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return self.meta.ndim

    @property
    def dtype(self) -> str:
        """torch's name of its dtype, without the prefix."""
        return str(self.meta.dtype).removeprefix("torch.")


@dataclass
class GraphSketch:
    """A module in the making. draw: Hypothesis' draw; dtype: of its float inputs and parameters."""

    draw: Any
    dtype: str
    inputs: list[tuple[str, str]] = field(default_factory=list)
    init: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    model: SimpleNamespace = field(default_factory=SimpleNamespace)

    # ---------------------------------------------------------------- what is drawn

    def one_of(self, options: Any) -> Any:
        """One of a sequence."""
        return self.draw(st.sampled_from(list(options)))

    def maybe(self) -> bool:
        """True or False."""
        return bool(self.draw(st.booleans()))

    def size(self, most: int) -> int:
        """A size up to `most`."""
        return int(self.one_of([n for n in SIZES if n <= max(most, 1)]))

    def shape(self, ranks: tuple[int, ...] = (1, 2, 3, 4), most: int = MOST) -> tuple[int, ...]:
        """A shape of up to `most` elements."""
        sizes: list[int] = []
        for _ in range(self.one_of(ranks)):
            sizes.append(self.size(most // max(prod(sizes), 1)))
        return tuple(sizes)

    def dim(self, value: Value) -> int:
        """A dimension of a value, counted from either end."""
        if value.rank == 0:
            raise Unfit
        return int(self.one_of([*range(value.rank), -1]))

    def float_value(self, ranks: tuple[int, ...] = ()) -> Value:
        """A float value that is there; of these ranks where any are given."""
        fitting = [v for v in self.values if v.meta.is_floating_point() and (not ranks or v.rank in ranks)]
        if not fitting:
            raise Unfit
        found: Value = self.one_of(fitting[-4:])
        return found

    # ---------------------------------------------------------------- what is added

    def add(self, expression: str, *, keep: bool = True) -> Value:
        """A statement that names an expression's value. Unfit where torch refuses it, or where it is too large."""
        try:
            meta = self._evaluated(expression)
        except Exception as problem:  # torch raises many types for a shape or dtype that it does not take
            raise Unfit(str(problem)) from problem
        if not isinstance(meta, torch.Tensor) or not 0 < meta.numel() <= MOST:
            raise Unfit("no tensor, or one of another size than is wanted")
        value = Value(f"t{len(self.forward)}", meta)
        self.forward.append(f"{value.name} = {expression}")
        if keep:
            self.values.append(value)
        return value

    def statement(self, text: str) -> None:
        """A statement without a value, such as an update in place."""
        self.forward.append(text)

    def input(self, shape: tuple[int, ...], *, layout: str | None = None, positive: bool = False) -> Value:
        """A float input of this shape, which lies in memory in any way."""
        dtype = "" if self.dtype == "float32" else f", dtype=torch.{self.dtype}"
        call = "torch.rand({}%s) + 0.5" if positive else "torch.randn({}%s)"
        drawn = layout or self.one_of(LAYOUTS)
        return self.raw_input(_laid_out(call % dtype, shape, drawn, self))

    def integers(self, shape: tuple[int, ...], below: int, dtype: str = "int64") -> Value:
        """An input of integers from 0 on."""
        return self.raw_input(f"torch.randint(0, {below}, {shape}, dtype=torch.{dtype})")

    def mask(self, shape: tuple[int, ...]) -> Value:
        """An input of booleans."""
        return self.raw_input(f"torch.rand({shape}) < 0.6")

    def raw_input(self, text: str) -> Value:
        """An input by the expression that makes it."""
        with torch.device("meta"):
            meta = eval(text, {"torch": torch})
        value = Value(f"x{len(self.inputs)}", meta)
        self.inputs.append((value.name, text))
        return value

    def parameter(self, shape: tuple[int, ...], scale: float = 1.0) -> str:
        """A parameter; returns how the forward reads it."""
        name = f"w{len(self.init)}"
        dtype = "" if self.dtype == "float32" else f", dtype=torch.{self.dtype}"
        self.init.append(f"self.{name} = torch.nn.Parameter(torch.randn({shape}{dtype}) * {scale:.3g})")
        setattr(self.model, name, torch.empty(shape, dtype=getattr(torch, self.dtype), device="meta"))
        return f"self.{name}"

    def module(self, text: str) -> str:
        """A submodule by the expression that makes it; returns how the forward reads it."""
        name = f"m{len(self.init)}"
        cast = "" if self.dtype == "float32" else f".to(torch.{self.dtype})"
        with torch.device("meta"):
            made = eval(text + cast, {"torch": torch})
        self.init.append(f"self.{name} = {text}{cast}")
        setattr(self.model, name, made)
        return f"self.{name}"

    def _evaluated(self, expression: str) -> Any:
        found = {value.name: value.meta for value in self.values}
        found |= {name: self._input_metas[name] for name, _ in self.inputs}
        with torch.no_grad(), torch.device("meta"):
            scope = {"torch": torch, "F": torch.nn.functional, "self": self.model, **found}
            return eval(expression, scope)

    @property
    def _input_metas(self) -> dict[str, torch.Tensor]:
        with torch.device("meta"):
            return {name: eval(text, {"torch": torch}) for name, text in self.inputs}

    # ---------------------------------------------------------------- the file

    def text(self, returned: list[str]) -> str:
        """The task file."""
        init = [f"        {line}" for line in self.init]
        made = ["    def __init__(self):", "        super().__init__()", *init, ""] if init else []
        arguments = ", ".join(["self", *(name for name, _ in self.inputs)])
        lines = [
            "import torch",
            "import torch.nn.functional as F",
            "",
            "",
            "class Model(torch.nn.Module):",
            *made,
            f"    def forward({arguments}):",
            *(f"        {line}" for line in self.forward),
            f"        return {', '.join(returned)}",
            "",
            "",
            "def get_inputs():",
            "    return [",
            *(f"        {text}," for _, text in self.inputs),
            "    ]",
        ]
        return "\n".join(lines) + "\n"


def _laid_out(call: str, shape: tuple[int, ...], layout: str, sketch: GraphSketch) -> str:
    """The expression of a tensor of a shape that lies in memory as `layout` says."""
    rank = len(shape)
    plus = "(" + call + ")" if " + " in call else call
    if layout == "transposed" and rank >= 2:
        a, b = sketch.one_of([(a, b) for a in range(rank) for b in range(a + 1, rank)])
        swapped = list(shape)
        swapped[a], swapped[b] = swapped[b], swapped[a]
        return f"{plus.format(tuple(swapped))}.transpose({a}, {b})"
    if layout in ("sliced", "stepped") and rank:
        at = sketch.one_of(range(rank))
        larger = tuple(n + 3 if k == at else n for k, n in enumerate(shape))
        doubled = tuple(2 * n if k == at else n for k, n in enumerate(shape))
        cut = [":"] * rank
        cut[at] = f"1:{shape[at] + 1}" if layout == "sliced" else "::2"
        return f"{plus.format(larger if layout == 'sliced' else doubled)}[{', '.join(cut)}]"
    if layout == "expanded" and rank >= 2:
        at = sketch.one_of(range(rank))
        narrow = tuple(1 if k == at else n for k, n in enumerate(shape))
        return f"{plus.format(narrow)}.expand({', '.join(map(str, shape))})"
    return plus.format(shape)
