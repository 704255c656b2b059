"""The miniature's tasks: chains of operators on rows of numbers, with splits that are disjoint by construction.

A *composition* is a sequence of operators with its data type; a task is a composition at a shape, written in the
KernelBench form. The splits:
- train: short compositions at the training shapes, without the held-out pairs of operators;
- shapes: compositions of train at rows and columns that train does not have;
- compositions: as short as train's, each with a held-out pair of operators;
- deeper: more operators than any of train, without the held-out pairs;
- larger: compositions of train on tensors of real sizes, with rows and columns that no other task has.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Literal
from zlib import crc32

from hipwright.train.records import TrainingProblem

Split = Literal["train", "shapes", "compositions", "deeper", "larger"]
HELD_OUT: tuple[Split, ...] = ("shapes", "compositions", "deeper", "larger")
OF_TRAIN: tuple[Split, ...] = ("shapes", "larger")
"""The held-out splits with the compositions of train."""

UNARY: dict[str, str] = {
    "relu": "torch.relu(x)",
    "gelu": "F.gelu(x)",
    "sigmoid": "torch.sigmoid(x)",
    "tanh": "torch.tanh(x)",
    "silu": "F.silu(x)",
    "abs": "torch.abs(x)",
    "square": "torch.square(x)",
    "leaky": "F.leaky_relu(x, 0.1)",
    "hardswish": "F.hardswish(x)",
    "softplus": "F.softplus(x)",
    "double": "x * 2.0",
    "half": "x * 0.5",
    "shift": "x + 1.0",
    "clamp": "torch.clamp(x, -1.0, 1.0)",
}
"""Expressions of one tensor of any shape."""
BINARY: dict[str, tuple[str, str]] = {
    "add": ("x + y", "y"),
    "mul": ("x * y", "y"),
    "sub": ("x - y", "y"),
    "maximum": ("torch.maximum(x, y)", "y"),
    "addrow": ("x + u", "u"),
    "mulrow": ("x * w", "w"),
}
"""Expressions with a second input: y of x's shape, u and w one row that is broadcast."""
ROWS: dict[str, tuple[str, bool]] = {
    "softmax": ("torch.softmax(x, dim=-1)", True),
    "layernorm": ("F.layer_norm(x, x.shape[-1:])", True),
    "rmsnorm": ("x * torch.rsqrt(torch.mean(x * x, dim=-1, keepdim=True) + 1e-5)", True),
    "sum": ("torch.sum(x, dim=-1)", False),
    "mean": ("torch.mean(x, dim=-1)", False),
    "amax": ("torch.amax(x, dim=-1)", False),
}
"""Expressions over the last dimension, and whether the result has x's shape."""
OPERATORS = (*UNARY, *BINARY, *ROWS)

MAX_TRAIN_OPERATORS, DEEPER = 3, (4, 5)
"""The most operators of a train task, and the numbers of operators in the deeper split and in deeper practice."""
PAIRS_HELD = 0.15
DTYPES = ("float32", "float16")


CORPUS, HELD, PRACTICE, LARGER = range(4)
"""Pools of sizes: of the corpus, of the shapes split, of the practice tasks of the arms with a judge, and of the larger
split."""
POOLS: dict[Split, int] = {"shapes": HELD, "larger": LARGER}
"""The pools of splits that do not have the corpus's."""
USUAL_ELEMENTS = 1 << 24
WEIGHED_ELEMENTS = 1 << 22
"""A task of more than USUAL_ELEMENTS in a tensor weighs 1 for each WEIGHED_ELEMENTS."""


@dataclass(frozen=True)
class Scale:
    """The shapes of tasks. rows, columns: sizes by pool; elements: least and most of a tensor; larger: of a tensor of
    the larger split.

    judged: least elements of a judged task; schedules of smaller ones cannot be distinguished by timing.
    """

    name: str
    rows: tuple[tuple[int, ...], ...]
    columns: tuple[tuple[int, ...], ...]
    elements: tuple[int, int]
    larger: tuple[int, int]
    judged: int

    def shapes(self, pool: int, *, judged: bool = False) -> list[tuple[int, int]]:
        """The shapes of a pool; no size is in two pools. judged: only those of judged tasks."""
        low, high = self.larger if pool == LARGER else self.elements
        low = max(low, self.judged) if judged else low
        return [(r, c) for r in self.rows[pool] for c in self.columns[pool] if low <= r * c <= high]


GPU = Scale(
    "gpu",
    (
        (2048, 4096, 8192, 16384, 32768),
        (3072, 6144, 10000, 12288, 24576),
        (5120, 9000, 20480),
        (2200, 3300, 4400, 6600, 10400, 16640, 22000, 36000, 50000, 65536, 100000, 131072),
    ),
    (
        (256, 512, 768, 1000, 1024, 1536, 2048, 4096),
        (384, 640, 896, 1280, 1500, 1792, 2560, 3074),
        (320, 600, 1152, 1920, 2304, 3584),
        (448, 832, 1344, 2000, 2816, 4608, 6000, 7680, 10240, 16000),
    ),
    (1 << 21, 1 << 24),
    (1 << 25, 1 << 26),
    1 << 22,
)
"""16 to 64 MB a float32 tensor that is judged, about 5 to 100 microseconds of an H200's memory traffic; 128 to 256 MB
in the larger split."""
CPU = Scale(
    "cpu",
    ((8, 16, 24, 32), (12, 20, 28), (10, 18, 30), (44, 52, 64)),
    ((32, 64, 100, 128), (48, 80, 96, 130), (40, 72, 112), (160, 200, 256)),
    (256, 4096),
    (8192, 16384),
    0,
)
"""For machines without a GPU: small enough to interpret."""
SCALES = {"gpu": GPU, "cpu": CPU}


@dataclass(frozen=True)
class Composition:
    """A sequence of operators with a data type."""

    operators: tuple[str, ...]
    dtype: str

    @property
    def family(self) -> str:
        """Its row operator, else "pointwise"."""
        return next((o for o in self.operators if o in ROWS), "pointwise")

    @property
    def inputs(self) -> list[str]:
        """x and the used second inputs."""
        used = {BINARY[o][1] for o in self.operators if o in BINARY}
        return ["x", *(name for name in "yuw" if name in used)]

    @property
    def pairs(self) -> set[frozenset[str]]:
        """All pairs of different operators in it."""
        return {frozenset(p) for p in combinations(sorted(set(self.operators)), 2)}

    def source(self, shape: tuple[int, int]) -> str:
        """The task file at a shape (rows, columns)."""
        rows, columns = shape
        dtype = "" if self.dtype == "float32" else f", dtype=torch.{self.dtype}"
        sizes = {"x": f"{rows}, {columns}", "y": f"{rows}, {columns}", "u": f"{columns}", "w": f"{columns}"}
        lines = [f"        x = {text(o)}" for o in self.operators[:-1]]
        lines.append(f"        return {text(self.operators[-1])}")
        made = ", ".join(f"torch.randn({sizes[name]}{dtype})" for name in self.inputs)
        return _FILE.format(names=", ".join(self.inputs), body="\n".join(lines), made=made)

    def problem(self, shape: tuple[int, int], split: Split) -> TrainingProblem:
        """The task as a training problem."""
        rows, columns = shape
        name = "-".join([*self.operators, self.dtype.replace("float", "f"), f"{rows}x{columns}"])
        facts = {"family": self.family, "depth": len(self.operators), "dtype": self.dtype, "shape": list(shape)}
        return TrainingProblem(name=name, source=self.source(shape), split=split, facts=facts)


_FILE = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, {names}):
{body}


def get_inputs():
    return [{made}]


def get_init_inputs():
    return []
"""


def weight(problem: TrainingProblem) -> int:
    """The tasks of usual size that a task counts as, among those that a judge keeps open: by the memory of a GPU."""
    rows, columns = problem.facts["shape"]
    elements = rows * columns
    return 1 if elements <= USUAL_ELEMENTS else -(-elements // WEIGHED_ELEMENTS)


def practised(operators: Iterable[str]) -> bool:
    """Whether a composition of these operators, in any order, is one of the deeper ones for practice.

    The digest of a set of operators decides, so that the deeper split and the deeper practice tasks have no set in
    common.
    """
    return bool(crc32(" ".join(sorted(set(operators))).encode()) & 1)


def text(operator: str) -> str:
    """An operator as an expression of x and its second input."""
    if operator in UNARY:
        return UNARY[operator]
    return (BINARY[operator] if operator in BINARY else ROWS[operator])[0]


@dataclass(frozen=True)
class Grammar:
    """The tasks of a seed, from which the held-out pairs, compositions and shapes are drawn."""

    seed: int
    scale: Scale = GPU

    @property
    def held_pairs(self) -> frozenset[frozenset[str]]:
        """Pairs of operators that train does not have together, at most five of each operator."""
        pairs = [frozenset(p) for p in combinations(OPERATORS, 2) if not set(p) <= set(ROWS)]
        random.Random(f"pairs {self.seed}").shuffle(pairs)
        kept: list[frozenset[str]] = []
        for pair in pairs:
            if len(kept) < PAIRS_HELD * len(pairs) and all(sum(o in k for k in kept) < 5 for o in pair):
                kept.append(pair)
        return frozenset(kept)

    def compositions(self, split: Split) -> Iterator[Composition]:
        """An endless sequence of different compositions of a split. Those of OF_TRAIN have train's."""
        if split == "deeper":
            return (one for one in self._drawn("deeper", DEEPER) if not practised(one.operators))
        return self._drawn("train" if split in OF_TRAIN else split, (1, MAX_TRAIN_OPERATORS), split == "compositions")

    def deeper_practice(self) -> Iterator[Composition]:
        """An endless sequence of different compositions as deep as the deeper split's, of sets of operators that it
        never has.
        """
        return (one for one in self._drawn("deeper practice", DEEPER) if practised(one.operators))

    def _drawn(self, name: str, depth: tuple[int, int], with_held: bool = False) -> Iterator[Composition]:
        """Different compositions, each with a held-out pair of operators or each without one."""
        rng = random.Random(f"compositions {self.seed} {name}")
        held, seen = self.held_pairs, set[Composition]()
        while True:
            made = _draw(rng, depth)
            if made is None or made in seen or bool(made.pairs & held) != with_held:
                continue
            seen.add(made)
            yield made

    def problems(self, split: Split, count: int, compositions: int | None = None) -> list[TrainingProblem]:
        """`count` different judged tasks. compositions: the number of train's, which OF_TRAIN draw from."""
        rng = random.Random(f"problems {self.seed} {split}")
        shapes = self.scale.shapes(POOLS.get(split, CORPUS), judged=True)
        source = self.compositions(split)
        pool = [next(source) for _ in range(compositions or count)]
        found: dict[str, TrainingProblem] = {}
        while len(found) < min(count, len(pool) * len(shapes)):
            problem = rng.choice(pool).problem(rng.choice(shapes), split)
            found[problem.name] = problem
        return list(found.values())

    def practice(self, count: int, compositions: int, deeper: float = 0.0) -> list[TrainingProblem]:
        """`count` different tasks for the arms with a judge, the share `deeper` of them of `deeper_practice`.

        The others are train's: about half of them have shapes, and half of them compositions, that the corpus (with the
        first `compositions`) does not have. The deeper ones have the same shapes.
        """
        many = round(deeper * count)
        source = self.compositions("train")
        pool = [next(source) for _ in range(2 * compositions)]
        found = self._practice(f"practice {self.seed}", pool, count - many)
        pool = list(islice(self.deeper_practice(), many))
        return found + self._practice(f"deeper practice {self.seed}", pool, many)

    def _practice(self, name: str, pool: Sequence[Composition], count: int) -> list[TrainingProblem]:
        """`count` different tasks of the compositions, at shapes of the corpus and of practice."""
        rng = random.Random(name)
        shapes = [self.scale.shapes(one, judged=True) for one in (CORPUS, PRACTICE)]
        found: dict[str, TrainingProblem] = {}
        while len(found) < min(count, len(pool) * sum(map(len, shapes))):
            problem = rng.choice(pool).problem(rng.choice(rng.choice(shapes)), "train")
            found[problem.name] = problem
        return list(found.values())


def _draw(rng: random.Random, depth: tuple[int, int]) -> Composition | None:
    """A random composition; None where the drawn operators cannot be combined."""
    count = rng.randint(*depth)
    row = rng.choice(list(ROWS)) if rng.random() < 0.5 else ""
    names = [rng.choice([*UNARY, *UNARY, *BINARY]) for _ in range(count - bool(row))]
    if len(set(names)) < len(names):
        return None
    at = rng.randint(0, len(names))
    if row:
        if not ROWS[row][1] and any(name in BINARY for name in names[at:]):
            return None  # a result of one value a row has no second input
        names.insert(at, row)
    return Composition(tuple(names), rng.choice(DTYPES))
