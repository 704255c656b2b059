"""A generated network while it is written, and the texts of the blocks that it may have."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.corpora.generated.single_drafts import Draft, Sizes

WEIGHTS = 1 << 29
"""The most parameters."""


class Network(Draft):
    """One network as it is written. Costs are estimates: weights times the places where they are used.

    weights, operations_so_far: parameters and multiply-adds so far.
    """

    elements = (1 << 18, 1 << 29)
    operations = (1 << 27, 1 << 40)

    def __init__(self, rng: random.Random, real: bool, dtype: str) -> None:
        super().__init__(rng, real, dtype)
        self.weights = self.operations_so_far = 0

    def make(self, name: str, call: str, weights: int = 0, places: int = 0, holds: Sizes = ()) -> None:
        """The constructor makes a part. weights: its parameters; places: how often each is used; holds: a result."""
        self.made.append(f"self.{name} = {call}")
        self.takes(weights, places, holds)

    def takes(self, weights: int, places: int, holds: Sizes = ()) -> None:
        """Notes parameters, multiply-adds and a tensor."""
        self.weights += weights
        self.affordable &= self.weights <= WEIGHTS
        self.costs(weights * places)
        self.holds(holds)

    def costs(self, operations: int) -> None:
        """Notes multiply-adds; all of them together are limited."""
        self.operations_so_far += operations
        super().costs(self.operations_so_far)

    def sequence(self, name: str, calls: Sequence[str], kind: str = "Sequential") -> None:
        """The constructor makes a sequence of parts, or a list of them."""
        lines = "".join(f"    {call},\n        " for call in calls)
        inner = f"\n        {lines}"
        self.made.append(f"self.{name} = nn.{kind}({f'[{inner}]' if kind == 'ModuleList' else inner})")

    def say(self, *statements: str) -> None:
        """Appends statements of forward."""
        self.body += statements

    def images(self, large: bool, channels: int = 3) -> tuple[int, int]:
        """Adds images as input; batch and pixels. large: for a network that begins with a quarter of the pixels."""
        pixels = self.pick((32,) if large else (16, 32), (224, 256) if large else (32,))
        batch = self.pick((2, 3, 4), (8, 16, 32, 64) if large else (128, 256, 512, 1024))
        self.given((batch, channels, pixels, pixels))
        return batch, pixels

    def classes(self) -> int:
        """How many classes a head has."""
        return self.pick((5, 10), (10, 100, 1000))

    def pooled(self, wide: int) -> None:
        """Ends an image network by means over the pixels and a linear layer."""
        classes = self.classes()
        self.make("head", f"nn.Linear({wide}, {classes})", wide * classes, 1)
        self.gives("self.head(x.mean(dim=(2, 3)))")

    def width(self) -> tuple[int, int]:
        """The width of tokens, and heads that divide it."""
        size = self.pick((4, 8), (64, 64, 128))
        heads = self.pick((2, 4), (8, 12, 16))
        return size * heads, heads

    def tokens(self) -> tuple[int, int]:
        """A batch and a length."""
        return self.pick((2, 3), (4, 8, 16, 32)), self.pick((8, 12, 16), (197, 256, 512, 1024, 2048))


@functools.cache
def library() -> dict[str, str]:
    """The text of every block by its name."""
    found = {}
    for path in sorted((Path(__file__).parent / "blocks").glob("*.py")):
        for text in path.read_text(encoding="utf-8").strip().split("\n\n\n"):
            if name := re.match(r"(?:class|def) (\w+)", text):
                found[name[1]] = text
    return found


def used_blocks(text: str) -> list[str]:
    """The texts of the blocks that a text calls, and of those that these call, each behind those that it calls."""
    seen: set[str] = set()
    order: list[str] = []

    def visit(text: str) -> None:
        for name in re.findall(r"(\w+)\(", text):
            if name in library() and name not in seen:
                seen.add(name)
                visit(library()[name])
                order.append(library()[name])

    visit(text)
    return order
