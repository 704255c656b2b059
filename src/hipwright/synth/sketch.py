"""A task under composition: the statements of forward, the lines of the constructor, the inputs; and its text."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from hipwright.synth.values import Range, SketchValue, Unfit, normal, require, uniform

MAX_ELEMENTS = 1 << 21  # of one value
MAX_INPUTS = 5
MANY_DRAWS = 40  # draws per number from which on every number occurs almost surely
SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


@dataclass
class Sketch:
    """The parts of the file so far. sizes: {name: size}, all different, that the file can refer to by name."""

    rng: random.Random
    dtype: str
    sizes: dict[str, int]
    axis: str = ""  # that reductions take: "last", "middle", "first", "several"; "": any
    inputs: dict[str, str] = field(default_factory=dict)  # name: the expression in get_inputs
    setup: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    values: list[SketchValue] = field(default_factory=list)  # float values that later statements can use
    named: list[str] = field(default_factory=list)  # sizes that are arguments of the constructor
    taken: set[str] = field(default_factory=lambda: {"self", "torch", "nn"})
    used: list[str] = field(default_factory=list)  # names of the library's operators, in order

    def copy(self) -> Sketch:
        """A copy to try an operator on. The random generator is shared."""
        return replace(
            self,
            inputs=dict(self.inputs),
            setup=list(self.setup),
            lines=list(self.lines),
            values=list(self.values),
            named=list(self.named),
            taken=set(self.taken),
            used=list(self.used),
        )

    # ------------------------------------------------------------ names and sizes

    def new_name(self, hint: str) -> str:
        """`hint`, with a number appended when the name is taken."""
        name, count = hint, 2
        while name in self.taken or name in self.sizes:
            name, count = f"{hint}{count}", count + 1
        self.taken.add(name)
        return name

    def size(self, number: int) -> str:
        """The expression of a size in the constructor: a name, half or twice a name, or the number."""
        for name, value in self.sizes.items():
            for text, same in (
                (name, value == number),
                (f"{name} // 2", number > 1 and value == 2 * number),
                (f"2 * {name}", number == 2 * value),
            ):
                if same:
                    self.named += [] if name in self.named else [name]
                    return text
        return str(number)

    def sizes_of(self, shape: Sequence[int]) -> str:
        """The expressions of several sizes, comma-separated."""
        return ", ".join(self.size(n) for n in shape)

    # ------------------------------------------------------------ inputs and parameters

    def float_input(self, hint: str, shape: Sequence[int], *, kind: str = "normal") -> SketchValue:
        """A new float input. kind: "normal", "unit" (0 to 1) or "positive" (0.5 to 1.5)."""
        self._check_input_count()
        name, spec = self.new_name(hint), ", ".join(self._constant_name(n) for n in shape)
        dtype = "" if self.dtype == "float32" else f", dtype=torch.{self.dtype}"
        text, known = {
            "normal": (f"torch.randn({spec}{dtype})", normal()),
            "unit": (f"torch.rand({spec}{dtype})", uniform()),
            "positive": (f"0.5 + torch.rand({spec}{dtype})", uniform(0.5, 1.5)),
        }[kind]
        self.inputs[name] = text
        return self._add_value(SketchValue(name, tuple(shape), self.dtype, known))

    def index_input(self, hint: str, shape: Sequence[int], count: int, of: str = "") -> str:
        """An expression of a new input of integers below `count`. of: the expression of the size that bounds them.

        An input with few elements is taken modulo `of`: at a smaller derived shape the seed would decide whether all
        its indices are in range.
        """
        self._check_input_count()
        name = self.new_name(hint)
        spec = ", ".join(self._constant_name(n) for n in shape) + ("," if len(shape) == 1 else "")
        self.inputs[name] = f"torch.randint(0, {self._constant_name(count)}, ({spec}))"
        return f"{name} % {of}" if of and prod(shape) < MANY_DRAWS * count else name

    def mask_input(self, hint: str, shape: Sequence[int], share: float = 0.3) -> str:
        """A new boolean input, true for about `share` of its elements."""
        self._check_input_count()
        name = self.new_name(hint)
        self.inputs[name] = f"torch.rand({', '.join(self._constant_name(n) for n in shape)}) < {share}"
        return name

    def sign_input(self, hint: str, shape: Sequence[int]) -> str:
        """A new integer input of 1 and -1. The verifier perturbs float inputs, which would then be neither."""
        self._check_input_count()
        name = self.new_name(hint)
        spec = ", ".join(self._constant_name(n) for n in shape) + ("," if len(shape) == 1 else "")
        self.inputs[name] = f"2 * torch.randint(0, 2, ({spec})) - 1"
        return name

    def parameter(self, hint: str, shape: Sequence[int], *, mean: float = 0.0, std: float = 1.0) -> SketchValue:
        """A new nn.Parameter of normal numbers, named self.hint."""
        name = self.new_name(hint)
        shift = f"{mean:g} + " if mean else ""
        scale = f"{std:g} * " if std != 1.0 else ""
        self.setup.append(f"self.{name} = nn.Parameter({shift}{scale}torch.randn({self.sizes_of(shape)}))")
        return SketchValue(f"self.{name}", tuple(shape), self.dtype, normal(std, mean))

    def module(self, hint: str, text: str, *after: str) -> str:
        """A new submodule; returns its name. after: further lines of the constructor, in which `{}` is the name."""
        name = f"self.{self.new_name(hint)}"
        self.setup += [f"{name} = {text}", *(line.replace("{}", name) for line in after)]
        return name

    # ------------------------------------------------------------ statements

    def assign(
        self,
        hint: str,
        text: str,
        shape: Sequence[int],
        known: Range,
        *,
        dtype: str = "",
        constant_sums: bool = False,
        keep: bool = True,
    ) -> SketchValue:
        """Add the statement `hint = text`; the value it assigns. keep: later statements may use the value.

        Raises Unfit for a value that is empty or too large, or whose range is refused.
        """
        value = SketchValue(self.new_name(hint), tuple(shape), dtype or self.dtype, known, constant_sums)
        require(0 < value.elements <= MAX_ELEMENTS, "too large, or empty")
        value.check_range()
        self.lines.append(f"{value.name} = {text}")
        return self._add_value(value) if keep else value

    def statement(self, text: str) -> None:
        """Add a statement whose values are not tracked."""
        self.lines.append(text)

    def second_operand(self, value: SketchValue, hint: str = "other") -> SketchValue:
        """A second operand of the same shape: an earlier value, or a new input."""
        same = [v for v in self.values if v.shape == value.shape and v.name != value.name and v.dtype == value.dtype]
        if same and self.rng.random() < 0.7:
            return self.rng.choice(same)
        return self.float_input(hint, value.shape)

    def constant_sums_of(self, one: SketchValue, other: SketchValue) -> bool:
        """`constant_sums` of a sum of two values: false when `other` is an input that was added for it."""
        return (one.constant_sums or other.constant_sums) and self.values[-1].name != other.name

    def positive(self, value: SketchValue) -> tuple[str, Range]:
        """(a non-negative expression of `value`, its range)."""
        if value.range.low >= 0:
            return value.name, value.range
        if self.rng.random() < 0.5:
            return f"{value.name}.abs()", value.range.mapped(abs)
        return f"{value.name}.square()", value.range.mapped(lambda v: v * v)

    def dims(self, value: SketchValue, shortest: int = 2) -> tuple[int, ...]:
        """Axes to reduce, of the kind `axis` where one is set. shortest: least size of an axis."""
        rank = value.rank
        require(rank >= 1, "nothing to reduce")
        ways = {
            "last": [(rank - 1,)],
            "middle": [(k,) for k in range(1, rank - 1)],
            "first": [(0,)] if rank > 1 else [],
            "several": [(rank - 2, rank - 1), (0, *range(2, rank))] if rank > 2 else [],
        }
        kinds = [self.axis] if self.axis else ["last"] * 4 + ["middle"] * 3 + ["first"] + ["several"] * 2
        found = [axes for axes in ways[self.rng.choice(kinds)] if all(value.shape[k] >= shortest for k in axes)]
        require(bool(found), "no axis of that kind")
        return self.rng.choice(found)

    # ------------------------------------------------------------ internal

    def _add_value(self, value: SketchValue) -> SketchValue:
        self.values.append(value)
        return value

    def _check_input_count(self) -> None:
        if len(self.inputs) >= MAX_INPUTS:
            raise Unfit("too many inputs")

    def _constant_name(self, number: int) -> str:
        return next((name.upper() for name, value in self.sizes.items() if value == number), str(number))


def text_of(sketch: Sketch, outputs: Sequence[SketchValue], title: str) -> str:
    """The text of the file, in the KernelBench form."""
    body = "\n".join([*sketch.setup, *sketch.lines])
    constants = [f"{name.upper()} = {size}" for name, size in sketch.sizes.items() if _named(sketch, name)]
    parts = [f'"""{title}"""', "", "import torch", "from torch import nn"]
    parts += ["from torch.nn import functional as F"] if "F." in body else []
    parts += ["", *constants, "", ""] if constants else ["", ""]
    parts += ["class Model(nn.Module):", *_constructor(sketch)]
    parts += [f"    def forward(self, {', '.join(sketch.inputs)}):"]
    parts += [f"        {line}" for line in sketch.lines]
    parts += [f"        return {', '.join(v.name for v in outputs)}", "", ""]
    parts += ["def get_inputs():", *_listed(list(sketch.inputs.values())), "", ""]
    arguments = ", ".join(name.upper() for name in sketch.named)
    return "\n".join([*parts, "def get_init_inputs():", f"    return [{arguments}]", ""])


def _constructor(sketch: Sketch) -> list[str]:
    if not sketch.setup:
        return []
    arguments = "".join(f", {name}: int" for name in sketch.named)
    ends = [] if sketch.dtype == "float32" else [f"        self.to(torch.{sketch.dtype})"]
    head = [f"    def __init__(self{arguments}):", "        super().__init__()"]
    return [*head, *(f"        {line}" for line in sketch.setup), *ends, ""]


def _listed(made: list[str]) -> list[str]:
    line = f"    return [{', '.join(made)}]"
    if len(line) <= 110:
        return [line]
    return ["    return [", *(f"        {one}," for one in made), "    ]"]


def _named(sketch: Sketch, name: str) -> bool:
    import re

    pattern = re.compile(rf"\b{name.upper()}\b")
    return name in sketch.named or any(pattern.search(text) for text in sketch.inputs.values())
