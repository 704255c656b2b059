"""A generated module of one operator while it is written."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TypeVar

from benchmarks.corpora.generated.chain_steps import ELEMENTS, Sizes

OPERATIONS = (1 << 21, 1 << 39)
"""The most multiply-adds: small, real."""
T = TypeVar("T")


TEXT = '''"""{title}."""

import torch
import torch.nn as nn
import torch.nn.functional as F


{blocks}class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, {names}):
        {body}


def get_inputs():
    return [{inputs}]
'''


class Draft:
    """One module as it is written. made: statements of the constructor; body: of forward; inputs: name to expression.

    `real` decides sizes alone: the options that are drawn are the same at both sizes, as each draw takes one number.
    """

    elements = ELEMENTS
    operations = OPERATIONS

    def __init__(self, rng: random.Random, real: bool, dtype: str) -> None:
        self.rng, self.real, self.dtype = rng, real, dtype
        self.made: list[str] = []
        self.body: list[str] = []
        self.inputs: dict[str, str] = {}
        self.affordable = True

    def pick(self, options: Sequence[T], real: Sequence[T] | None = None) -> T:
        """One of the options. real: those at real sizes."""
        chosen = real if self.real and real is not None else options
        return chosen[int(self.rng.random() * len(chosen))]

    def size(self) -> int:
        """The size of a dimension: odd ones too."""
        return self.pick((5, 8, 12, 16, 17), (63, 128, 255, 256, 512, 768, 1000, 1024, 2048, 3072, 4096, 8192))

    def given(self, shape: Sizes, name: str = "x", made: str = "torch.randn", rest: str = "") -> str:
        """Adds an input; its name. rest: further arguments of what makes it."""
        self.holds(shape)
        dtype = "" if self.dtype == "float32" or "int" in made else f", dtype=torch.{self.dtype}"
        self.inputs[name] = f"{made}({', '.join(map(str, shape))}{dtype}){rest}"
        return name

    def numbers(self, below: int, shape: Sizes, name: str) -> str:
        """Adds an input of indices; its name."""
        self.inputs[name] = f"torch.randint(0, {below}, ({', '.join(map(str, shape))},))"
        return name

    def holds(self, shape: Sizes) -> None:
        """Notes a tensor of a shape: too large ones are not affordable, and shapes are at least 1."""
        self.affordable &= min(shape, default=1) > 0 and math.prod(shape) <= self.elements[self.real]

    def costs(self, operations: int) -> None:
        """Notes multiply-adds."""
        self.affordable &= operations <= self.operations[self.real]

    def layer(self, call: str, *arguments: str) -> None:
        """The module is one layer."""
        self.made.append(f"self.layer = {call}")
        self.gives(f"self.layer({', '.join(arguments or ('x',))})")

    def gives(self, value: str) -> None:
        """What forward returns."""
        self.body.append(f"return {value}")

    def image(self, rank: int) -> Sizes:
        """Batch, channels and spatial sizes."""
        top = {1: (33, 32768), 2: (14, 224), 3: (8, 40)}[rank][self.real]
        batch, channels = self.pick((2, 3), (1, 8, 16, 32, 64)), self.pick((4, 6, 8), (3, 16, 32, 64, 96, 128, 256))
        return batch, channels, *(self.pick((top // 2, top * 3 // 4, top - 1, top)) for _ in range(rank))

    def rows(self) -> Sizes:
        """The shape of a tensor of 2 to 4 dimensions."""
        rank = self.pick((2, 2, 3, 4))
        if rank == 2:
            return self.pick((3, 16), (64, 1024, 4096, 16384)), self.size()
        few = tuple(self.pick((2, 3, 4), (2, 8, 12, 16, 32, 64)) for _ in range(rank - 2))
        return *few, self.size(), self.size()

    def text(self, title: str, made: list[str], blocks: str = "") -> str:
        """The task's file. made: the statements of the constructor; blocks: classes before the model's."""
        lines = "\n        "
        names, values = ", ".join(self.inputs), ", ".join(self.inputs.values())
        body = {"made": lines.join(made), "names": names, "body": lines.join(self.body), "inputs": values}
        return TEXT.format(title=title, blocks=blocks, **body)
