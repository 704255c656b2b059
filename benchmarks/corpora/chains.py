"""Generated modules: one product or convolution, or none, and a chain of further operators, as people write layers.

Everything is drawn from the task's number, so that a number is the same task on every machine; no task is chosen or
tuned. Small and real sizes are of the same modules.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.corpora.corpus import CorpusTask

COUNT = 600
"""Tasks of the corpus."""
DTYPES = ("float32", "float32", "float32", "bfloat16", "float16")
"""Data types, float32 three times as often as each of the others."""
ELEMENTS = (1 << 12, 1 << 27)
"""The most elements of a tensor: small, real."""
OPERATIONS = (1 << 22, 1 << 39)
"""The most multiply-adds of the head: small, real."""

Sizes = tuple[int, ...]


@dataclass
class Module:
    """A module as it is written. shape: of the present value `x`: batch, channels or features, spatial sizes.

    made: statements of the constructor; body: statements of forward.
    """

    rng: random.Random
    real: bool
    shape: Sizes
    made: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    kept: Sizes | None = None

    def layer(self, call: str) -> None:
        """Applies a layer, which the constructor makes."""
        name = f"layer_{len(self.made)}"
        self.made.append(f"self.{name} = {call}")
        self.body.append(f"x = self.{name}(x)")

    def parameter(self, shape: Sizes) -> str:
        """The name of a new parameter."""
        name = f"weight_{len(self.made)}"
        self.made.append(f"self.{name} = nn.Parameter(torch.randn({', '.join(map(str, shape))}) * 0.5 + 1.0)")
        return f"self.{name}"

    def say(self, statement: str) -> None:
        """Appends a statement of forward."""
        self.body.append(statement)

    @property
    def spatial(self) -> Sizes:
        """The sizes after batch and channels."""
        return self.shape[2:]


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

# ---------------------------------------------------------------- further operators

ACTIVATIONS = (
    *(
        "torch.relu(x)",
        "F.gelu(x)",
        "F.gelu(x, approximate='tanh')",
        "F.silu(x)",
        "F.mish(x)",
        "torch.tanh(x)",
        "x.abs()",
    ),
    *(
        "torch.sigmoid(x)",
        "F.hardswish(x)",
        "F.hardtanh(x, -2.0, 2.0)",
        "F.leaky_relu(x, 0.05)",
        "F.elu(x)",
        "F.selu(x)",
    ),
    *(
        "F.softplus(x)",
        "F.softsign(x)",
        "F.logsigmoid(x)",
        "F.relu6(x)",
        "torch.sin(x)",
        "x * torch.tanh(F.softplus(x))",
    ),
    *("torch.clamp(x, min=-0.5)", "torch.where(x > 0, x, 0.1 * torch.expm1(x))", "F.hardsigmoid(x)", "F.softshrink(x)"),
    *("torch.sqrt(x * x + 1.0)", "x / (1.0 + x.abs())", "F.dropout(x, 0.3, training=False)", "torch.exp(-x.square())"),
)
ARITHMETIC = (
    "x * 0.7 + 0.1",
    "(x - 0.3) / 1.7",
    "x - x.mean()",
    "2.0 - x",
    "x * x",
    "torch.maximum(x, 0.5 - x)",
    "x + x.square() * 0.1",
)


def _activation(module: Module) -> None:
    module.say(f"x = {module.rng.choice(ACTIVATIONS)}")


def _arithmetic(module: Module) -> None:
    module.say(f"x = {module.rng.choice(ARITHMETIC)}")


def _parameter(module: Module) -> None:
    shape = (module.shape[1], *[1] * len(module.spatial))
    if module.spatial and module.rng.random() < 0.2:
        shape = (1, *module.spatial)
    module.say(f"x = x {module.rng.choice('+*-')} {module.parameter(shape)}")


def _norm(module: Module) -> None:
    rng, wide, rank = module.rng, module.shape[1], len(module.spatial)
    if module.shape[-1] == 1 or wide == 1:
        return _activation(module)  # a norm of one element is constant
    kinds = [f"nn.BatchNorm{max(rank, 1)}d({wide})", f"nn.GroupNorm({math.gcd(wide, rng.choice((2, 4)))}, {wide})"]
    if rank:
        kinds += [f"nn.InstanceNorm{rank}d({wide}, affine={rng.random() < 0.5})"]
        kinds += [f"nn.LayerNorm({list(module.shape[rng.choice((1, 2, -1)) :])})"]
    else:
        kinds += [f"nn.LayerNorm({wide})", f"nn.RMSNorm({wide})"]
    module.layer(rng.choice(kinds))
    return None


def _softmax(module: Module) -> None:
    rng, dim = module.rng, module.rng.choice((1, -1))
    if module.shape[dim] == 1:
        return _activation(module)
    module.say(f"x = {rng.choice(('torch.softmax', 'F.log_softmax'))}(x, dim={dim})")
    return None


def _reduction(module: Module) -> None:
    rng, last = module.rng, len(module.shape) - 1
    dims = rng.choice([(1,), (last,), tuple(range(2, last + 1)) or (1,), (last - 1, last) if last > 2 else (last,)])
    how = rng.choice(
        ("x.mean({})", "x.sum({})", "x.amax({})", "x.amin({})", "torch.logsumexp(x, {})", "x.var({})", "x.norm(dim={})")
    )
    module.say(f"x = {how[:-1].format(dims)}, keepdim=True)")
    module.shape = tuple(1 if at in dims else size for at, size in enumerate(module.shape))


def _pool(module: Module) -> None:
    rng, rank = module.rng, len(module.spatial)
    if not rank or min(module.spatial) < 4:
        return _activation(module)
    kernel, stride = rng.choice(((2, 2), (3, 2), (3, 1), (4, 4)))
    kinds = [f"nn.MaxPool{rank}d({kernel}, {stride})", f"nn.AvgPool{rank}d({kernel}, {stride})"]
    module.layer(rng.choice(kinds))
    module.shape = (*module.shape[:2], *((size - kernel) // stride + 1 for size in module.spatial))
    return None


def _global_pool(module: Module) -> None:
    rank = len(module.spatial)
    if not rank:
        return _activation(module)
    module.layer(f"nn.Adaptive{module.rng.choice(('Avg', 'Max'))}Pool{rank}d(1)")
    module.shape = (*module.shape[:2], *[1] * rank)
    return None


def _gate(module: Module) -> None:
    """Two halves of the channels, one of which gates the other."""
    if module.shape[1] % 2:
        return _activation(module)
    form = ("F.glu(x, 1)", "torch.mul(*x.chunk(2, 1))", "F.silu(x.chunk(2, 1)[0]) + x.chunk(2, 1)[1]")
    module.say(f"x = {module.rng.choice(form)}")
    module.shape = (module.shape[0], module.shape[1] // 2, *module.spatial)
    return None


def _move(module: Module) -> None:
    """Padding, upsampling, shifts and reorderings."""
    rng, rank = module.rng, len(module.spatial)
    if not rank or math.prod(module.shape) > ELEMENTS[module.real] // 4:
        return module.say("x = torch.roll(x, 1, 1)")
    if rng.random() < 0.4:
        sides = [rng.choice((0, 1, 2)) for _ in range(2 * rank)]
        module.say(f"x = F.pad(x, {tuple(sides)})")
        grown = [size + sides[2 * at] + sides[2 * at + 1] for at, size in enumerate(reversed(module.spatial))]
        module.shape = (*module.shape[:2], *reversed(grown))
    elif rng.random() < 0.6:
        module.say("x = F.interpolate(x, scale_factor=2.0, mode='nearest')")
        module.shape = (*module.shape[:2], *(2 * size for size in module.spatial))
    else:
        module.say("x = x.flip(-1)")
    return None


def _keep(module: Module) -> None:
    """The present value becomes the residual of a later step, or is used where there is one."""
    if module.kept == module.shape:
        module.say(f"x = {module.rng.choice(('x + kept', 'x * torch.sigmoid(kept)', 'torch.cat([x, kept], 1)'))}")
        if "cat" in module.body[-1]:
            module.shape = (module.shape[0], 2 * module.shape[1], *module.spatial)
    else:
        module.say("kept = x")
        module.kept = module.shape


def _scan(module: Module) -> None:
    module.say(
        f"x = {module.rng.choice(('torch.cumsum(x, {})', 'x.cumsum({}).flip(1)')).format(module.rng.choice((1, -1)))}"
    )


STEPS: dict[Callable[[Module], None], int] = {
    _activation: 8,
    _arithmetic: 3,
    _parameter: 3,
    _norm: 4,
    _softmax: 1,
    _reduction: 2,
    _pool: 2,
    _global_pool: 1,
    _gate: 1,
    _move: 1,
    _keep: 3,
    _scan: 0,
}
"""Further operators with their weights in a chain."""

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


class Chains:
    """Generated modules of torch's operators, a family for each head, rank and data type."""

    packages = ("torch",)
    imported: tuple[str, ...] = ()

    def tasks(self, real: bool = False) -> Iterator[CorpusTask]:
        """All tasks. real: at sizes that users run."""
        for number in range(COUNT):
            yield written(number, real)
