"""What the layers of generated chains may be: the module as it is written, and the operators after its head."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

ELEMENTS = (1 << 12, 1 << 27)
"""The most elements of a tensor: small, real."""

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
}
"""Further operators with their weights in a chain."""
