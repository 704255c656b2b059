"""Generated modules: one product or convolution, or none, and a chain of further operators, as people write layers.

Everything is drawn from the task's number, so that a number is the same task on every machine; no task is chosen or
tuned. Small and real sizes are of the same modules.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from benchmarks.corpora.corpus import CorpusTask
from benchmarks.corpora.generated.chain_steps import ELEMENTS, STEPS, Module, Sizes
from benchmarks.corpora.generated.numbered import Numbered

COUNT = 600
"""Tasks of the corpus."""
DTYPES = ("float32", "float32", "float32", "bfloat16", "float16")
"""Data types, float32 three times as often as each of the others."""
OPERATIONS = (1 << 22, 1 << 39)
"""The most multiply-adds of the head: small, real."""


# ---------------------------------------------------------------- heads

SPATIAL = {1: (40, 65536), 2: (14, 256), 3: (7, 40)}
"""The largest spatial size by the number of spatial dimensions: small, real."""


def _drawn_shape(rng: random.Random, real: bool, rank: int) -> Sizes:
    """Batch, channels and `rank` spatial sizes within ELEMENTS."""
    top = SPATIAL[rank][real] if rank else 0
    while True:
        batch = (
            rng.choice((1, 4, 8, 16, 32, 64, 128) if rank else (64, 128, 1000, 1024, 4096, 16384))
            if real
            else rng.randint(2, 5)
        )
        channels = (
            rng.choice((3, 16, 32, 48, 64, 96, 128, 256) if rank else (512, 1000, 1024, 2048, 4096, 8192))
            if real
            else rng.choice((4, 8, 12))
        )
        low = max(top // 8, 4)
        spatial = tuple(rng.choice((low, top // 2, top // 2 + 1, top * 3 // 4, top)) for _ in range(rank))
        if math.prod((batch, channels, *spatial)) <= ELEMENTS[real]:
            return (batch, channels, *spatial)


def _linear(module: Module) -> bool:
    rng, wide = module.rng, module.shape[1]
    out = rng.choice((256, 768, 1024, 4096, 5000, 8192) if module.real else (6, 8, 15))
    module.layer(f"nn.Linear({wide}, {out}{rng.choice((', bias=False', '', ''))})")
    cost = module.shape[0] * wide * out
    module.shape = (module.shape[0], out)
    return cost <= OPERATIONS[module.real]


def _matmul(module: Module) -> bool:
    """A product with a parameter, transposed or not, or of a batch with itself."""
    rng, (rows, wide) = module.rng, module.shape[:2]
    out = rng.choice((512, 1024, 3000, 4096) if module.real else (6, 9))
    if rng.random() < 0.5:
        module.say(f"x = torch.matmul(x, {module.parameter((wide, out))})")
    else:
        module.say(f"x = x @ {module.parameter((out, wide))}.t()")
    module.shape = (rows, out)
    return rows * wide * out <= OPERATIONS[module.real]


def _convolution(module: Module) -> bool:
    rng, rank, wide = module.rng, len(module.spatial), module.shape[1]
    kernel = [rng.choice((1, 3, 3, 5, 7) if rank < 3 else (1, 3, 3)) for _ in range(rank)]
    if rng.random() < 0.75:
        kernel = kernel[:1] * rank
    stride, dilation = rng.choice((1, 1, 1, 2)), rng.choice((1, 1, 1, 2))
    out = rng.choice((16, 32, 64, 128, 256) if module.real else (4, 8, 12))
    groups = rng.choice((1, 1, 1, wide, math.gcd(wide, out)))
    out = wide if groups == wide else out
    padding = [k // 2 * dilation if rng.random() < 0.8 else 0 for k in kernel[:1]] * rank
    sizes = tuple(
        (s + 2 * p - dilation * (k - 1) - 1) // stride + 1
        for s, p, k in zip(module.spatial, padding, kernel, strict=True)
    )
    if min(sizes) < 2:
        return False
    facts = (
        f"stride={stride}, padding={tuple(padding)}, dilation={dilation}, groups={groups}, bias={rng.random() < 0.8}"
    )
    module.layer(f"nn.Conv{rank}d({wide}, {out}, {tuple(kernel)}, {facts})")
    module.shape = (module.shape[0], out, *sizes)
    return math.prod(module.shape) * wide // groups * math.prod(kernel) <= OPERATIONS[module.real]


def _transposed(module: Module) -> bool:
    rng, rank, wide = module.rng, len(module.spatial), module.shape[1]
    kernel = [rng.choice((2, 3, 3, 4, 5)) for _ in range(rank)]
    if rng.random() < 0.7:
        kernel = kernel[:1] * rank
    stride = rng.choice((1, 2, 2))
    padding, more = rng.choice((0, 1)), rng.choice((0, stride - 1))
    out = rng.choice((16, 32, 64, 128) if module.real else (4, 8))
    sizes = tuple((s - 1) * stride - 2 * padding + k + more for s, k in zip(module.spatial, kernel, strict=True))
    facts = f"stride={stride}, padding={padding}, output_padding={more}"
    module.layer(f"nn.ConvTranspose{rank}d({wide}, {out}, {tuple(kernel)}, {facts})")
    cost = math.prod(module.shape) * out * math.prod(kernel)
    module.shape = (module.shape[0], out, *sizes)
    return min(sizes) > 1 and cost <= OPERATIONS[module.real] // 2


HEADS: dict[str, tuple[Callable[[Module], bool] | None, tuple[int, ...]]] = {
    "linear": (_linear, (0,)),
    "matmul": (_matmul, (0,)),
    "conv": (_convolution, (1, 2, 2, 2, 3)),
    "transposed": (_transposed, (1, 2, 2, 3)),
    "none": (None, (0, 1, 2, 3)),
}
"""Heads with the numbers of spatial dimensions that they are drawn for. A head says whether it is affordable."""

TEXT = '''"""{title}."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, x):
        {body}
        return x


def get_inputs():
    return [torch.randn({shape}{dtype})]
'''


def written(number: int, real: bool) -> CorpusTask:
    """The task of a number: the first of its draws that is affordable at small and at real sizes."""
    for attempt in range(1000):
        drawn = [_drawn(number, attempt, size) for size in (False, True)]
        if all(drawn):
            task = drawn[real]
            assert task is not None
            return CorpusTask(f"chain_{number:04d}_{task.family}", task.family, task.text)
    raise AssertionError(f"no affordable module of number {number}")


def _drawn(number: int, attempt: int, real: bool) -> CorpusTask | None:
    """One draw of sizes and operators for the head of a number; None where it is too large."""
    of_number = random.Random(f"chain {number}")
    head, dtype = of_number.choice(list(HEADS)), of_number.choice(DTYPES)
    call, ranks = HEADS[head]
    rank = of_number.choice(ranks)
    rng = random.Random(f"chain {number} {attempt}")
    start = _drawn_shape(random.Random(f"sizes {number} {attempt}"), real, rank)
    module = Module(rng, real, start)
    if call is not None and not call(module):
        return None
    kinds, weights = list(STEPS), list(STEPS.values())
    for _ in range(rng.randint(1, 6)):
        rng.choices(kinds, weights)[0](module)
        if math.prod(module.shape) > ELEMENTS[real]:
            return None
    cast = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    made = [*module.made, *([f"self.to(torch.{dtype})"] if cast and module.made else [])] or ["pass"]
    family = f"{head}{rank}d_{dtype}" if rank else f"{head}_{dtype}"
    text = TEXT.format(
        title=f"A generated module: {family}",
        made="\n        ".join(made),
        body="\n        ".join(module.body),
        shape=", ".join(map(str, start)),
        dtype=cast,
    )
    return CorpusTask("", family, text)


class Chains(Numbered):
    """Generated modules of torch's operators, a family for each head, rank and data type."""

    count = COUNT
    written = staticmethod(written)
