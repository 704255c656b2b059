"""Operators by family: each batch is one module whose outputs are many operators, verified against float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.engine.harness import check

Function = Callable[..., Any]


class Outputs(torch.nn.Module):
    """Applies every function to the same inputs."""

    def __init__(self, functions: Sequence[Function]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *inputs: torch.Tensor) -> Any:
        return tuple(f(*inputs) for f in self.functions)


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def whole(low: int, high: int, *shape: int, seed: int = 0, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, shape, generator=generator).to(dtype)


SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 25.0, -25.0, float("inf"), float("-inf"), float("nan"), 1e-20, 88.0, 3.0])

ACTIVATIONS: list[Function] = [
    F.relu,
    F.relu6,
    F.gelu,
    lambda x: F.gelu(x, approximate="tanh"),
    F.silu,
    torch.sigmoid,
    torch.tanh,
    F.elu,
    lambda x: F.elu(x, 0.5),
    F.selu,
    F.celu,
    F.leaky_relu,
    F.hardtanh,
    F.hardswish,
    F.hardsigmoid,
    F.mish,
    F.softplus,
    lambda x: F.softplus(x, 2.0, 5.0),
    F.softsign,
    F.logsigmoid,
    F.tanhshrink,
    F.softshrink,
    F.hardshrink,
    lambda x: F.threshold(x, 0.1, 3.0),
    lambda x: F.prelu(x, x.new_full((1,), 0.3)),
    lambda x: x.clamp(-0.5, 0.5),
    lambda x: x.clamp(min=0.1),
    lambda x: x.sign(),
]
MATH: list[Function] = [
    torch.exp,
    torch.exp2,
    torch.expm1,
    lambda x: x.abs().log(),
    lambda x: x.abs().log1p(),
    lambda x: x.abs().log2(),
    lambda x: x.abs().sqrt(),
    lambda x: (x.abs() + 0.1).rsqrt(),
    torch.sin,
    torch.cos,
    torch.atan,
    torch.sinh,
    torch.erf,
    torch.floor,
    torch.ceil,
    torch.trunc,
    torch.round,
    torch.square,
    lambda x: x**3,
    lambda x: x.abs() ** 0.3,
    lambda x: x**0.75,
    lambda x: 1 / (x + 5),
    lambda x: x.reciprocal(),
    lambda x: torch.isnan(x),
    lambda x: torch.isinf(x),
    lambda x: x % 0.7,
    lambda x: torch.fmod(x, 0.7),
    lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    lambda x: x > 0.5,
    lambda x: (x > 0) & (x < 1),
    lambda x: torch.where(x > 0, x, -2.0 * x),
    lambda x: 2 - x,
    lambda x: x.masked_fill(x > 0, -1e9),
    lambda x: torch.lerp(x, x * 2, 0.3),
    lambda x: x.to(torch.int32) * 3,
    lambda x: x.half().float(),
    lambda x: x.double() * 2,
    lambda x: x.bool(),
    lambda x: torch.ones_like(x) * 2,
]
REDUCTIONS: list[Function] = [
    lambda x: x.sum(),
    lambda x: x.sum(1),
    lambda x: x.sum((0, 2), keepdim=True),
    lambda x: x.mean(-1),
    lambda x: x.amax(1),
    lambda x: x.amin((1, 2)),
    lambda x: x.max(),
    lambda x: x.max(1)[0],
    lambda x: x.min(2)[1],
    lambda x: x.argmax(),
    lambda x: x.argmin(1),
    lambda x: x.prod(2),
    lambda x: (x > 0).any(1),
    lambda x: (x > 9).all(),
    lambda x: x.var(1),
    lambda x: x.std((0, 2), correction=0),
    lambda x: x.norm(),
    lambda x: x.norm(p=1, dim=2),
    lambda x: torch.linalg.vector_norm(x, 3.0, dim=1),
    lambda x: x.logsumexp(2),
    lambda x: x.norm(float("inf"), 1),
    lambda x: x.softmax(1),
    lambda x: x.log_softmax(-1),
    lambda x: F.normalize(x, dim=1),
    lambda x: F.softmin(x, 2),
    lambda x: x.cumsum(1),
    lambda x: x.cumprod(2),
    lambda x: x.flip(2).cumsum(2).flip(2),
    lambda x: (x > 0).sum(1),
    lambda x: F.cosine_similarity(x, x.flip(0), dim=2),
    lambda x: x.softmax(-1).argmax(-1),
    lambda x: x.median() * 0 + x,
]
VIEWS: list[Function] = [
    lambda x: x.transpose(1, 2) + 1,
    lambda x: x.permute(2, 0, 1).reshape(6, -1),
    lambda x: x[:, 1:, ::2],
    lambda x: x[..., -1],
    lambda x: torch.cat([x, x * 2], 1),
    lambda x: torch.stack([x, -x], 2),
    lambda x: x.flip(1),
    lambda x: x.roll(2, 1),
    lambda x: x.roll((1, -1), (0, 2)),
    lambda x: F.pad(x, (1, 2, 0, 1), value=3.0),
    lambda x: F.pad(x, (1, 2), mode="reflect"),
    lambda x: F.pad(x, (2, 1), mode="replicate"),
    lambda x: F.pad(x, (1, 1), mode="circular"),
    lambda x: x.repeat(2, 1, 3),
    lambda x: x.repeat_interleave(2, dim=1),
    lambda x: x.expand(2, -1, -1, -1) * 2,
    lambda x: x.tril(),
    lambda x: x.triu(1),
    lambda x: x.unsqueeze(1).squeeze(1).flatten(1),
    lambda x: x.chunk(2, 2),
    lambda x: x.split(2, 1)[1] + 1,
    lambda x: x.unbind(1)[2],
    lambda x: F.glu(x, -1),
    lambda x: x.diagonal(0, 1, 2),
    lambda x: x.unfold(2, 2, 1),
    lambda x: torch.arange(x.shape[1]) * 2,
    lambda x: x + torch.arange(x.shape[2]),
    lambda x: torch.eye(4) * 2,
    lambda x: x.index_select(1, torch.tensor([2, 0])),
    lambda x: x[:, [0, 2]],
    lambda x: F.one_hot((x[:, 0] > 0).long(), 3),
    lambda x: x.narrow(1, 1, 2),
    lambda x: x.movedim(0, 2) * 2,
]
IMAGES: list[Function] = [
    lambda x: F.max_pool2d(x, 2),
    lambda x: F.max_pool2d(x, 3, 2, 1),
    lambda x: F.avg_pool2d(x, 2),
    lambda x: F.avg_pool2d(x, 3, 2, 1),
    lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    lambda x: F.adaptive_avg_pool2d(x, 1),
    lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    lambda x: F.adaptive_max_pool2d(x, 2),
    lambda x: F.max_pool1d(x.flatten(2), 3, 2),
    lambda x: F.avg_pool1d(x.flatten(2), 2),
    lambda x: F.max_pool3d(x, 2),
    lambda x: F.interpolate(x, scale_factor=2),
    lambda x: F.interpolate(x, size=(5, 9)),
    lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    lambda x: F.interpolate(x, size=(5, 9), mode="bilinear", align_corners=True),
    lambda x: F.unfold(x, 3, padding=1),
    lambda x: F.pixel_shuffle(x, 2),
    lambda x: F.max_pool2d(x, 2, return_indices=True),
    lambda x: F.instance_norm(x),
    lambda x: F.group_norm(x, 2),
    lambda x: F.layer_norm(x, x.shape[1:]),
    lambda x: F.max_pool2d(x, 2, ceil_mode=True),
]
INTEGERS: list[Function] = [
    lambda a, b: a + b,
    lambda a, b: a * b - 3,
    lambda a, b: a // b,
    lambda a, b: a % b,
    lambda a, b: a & b,
    lambda a, b: a | 5,
    lambda a, b: a ^ b,
    lambda a, b: ~a,
    lambda a, b: a == b,
    lambda a, b: a < 3,
    lambda a, b: a.float() / b,
    lambda a, b: torch.maximum(a, b),
    lambda a, b: a.sum(),
    lambda a, b: a.max(1)[0],
    lambda a, b: a.argmax(1),
    lambda a, b: a.clamp(-2, 4),
    lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    lambda a, b: a.to(torch.uint8) + 250,
    lambda a, b: a.to(torch.int8) * 100,
    lambda a, b: a.abs(),
    lambda a, b: -a,
    lambda a, b: a**2,
    lambda a, b: torch.fmod(a, b),
    lambda a, b: a.bool().logical_not(),
    lambda a, b: a.cumsum(0),
    lambda a, b: a * 2**40,
    lambda a, b: a / b,
    lambda a, b: a * 0.5,
    lambda a, b: a.prod(1),
]
SHIFTS: list[Function] = [
    lambda a, b: a >> b,
    lambda a, b: a << b,
    lambda a, b: a >> 4,
    lambda a, b: a << 3,
    lambda a, b: 5 << b,
    *(lambda a, b, t=t: a.to(t) >> b.to(t) for t in (torch.uint8, torch.int8, torch.int32)),
    *(lambda a, b, t=t: (a.to(t) << b.to(t)) + 1 for t in (torch.uint8, torch.int16, torch.int32)),
    lambda a, b: torch.bitwise_right_shift(a, b),
    lambda a, b: torch.stack([(a & 15).half() - 8.0, (a >> 4).half() - 8.0], -1),
]
GATHERS: list[Function] = [
    lambda x, i: F.embedding(i, x),
    lambda x, i: x[i],
    lambda x, i: x[i, i % 5],
    lambda x, i: x[:, i[0] % 5],
    lambda x, i: x.gather(1, i[:, :2].expand(7, 2) % 5) if i.shape[0] == 1 else x.gather(0, i[:, :1].expand(-1, 5)),
    lambda x, i: x.index_select(0, i[0]),
    lambda x, i: F.embedding(i, x).mean(1),
    lambda x, i: x[i[0]].softmax(-1),
    lambda x, i: x[-i[0] - 1],
    lambda x, i: x[:, 0].gather(0, i[0, 0]),
    lambda x, i: x[:, 0].gather(-1, i[0]),
    lambda x, i: x[0, 0].gather(0, i[0] * 0),
    lambda x, i: x[0, 0].gather(0, i[0, 0] * 0),
    lambda x, i: torch.take_along_dim(x[:, 0], i[0], 0),
    lambda x, i: torch.take_along_dim(x, i),
    lambda x, i: torch.take_along_dim(x[:1], i % 5, 1),
]
LOSSES: list[Function] = [
    lambda x, y, t: F.mse_loss(x, y),
    lambda x, y, t: F.l1_loss(x, y, reduction="sum"),
    lambda x, y, t: F.huber_loss(x, y),
    lambda x, y, t: F.smooth_l1_loss(x, y, beta=0.5),
    lambda x, y, t: F.cross_entropy(x, t),
    lambda x, y, t: F.cross_entropy(x, t, reduction="none"),
    lambda x, y, t: F.cross_entropy(x, t, label_smoothing=0.1),
    lambda x, y, t: F.cross_entropy(x, y.softmax(1)),
    lambda x, y, t: F.cross_entropy(x, t, weight=y[0].abs()),
    lambda x, y, t: F.cross_entropy(x, t, ignore_index=2),
    lambda x, y, t: F.nll_loss(x, t),
    lambda x, y, t: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
    lambda x, y, t: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
    lambda x, y, t: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    lambda x, y, t: F.triplet_margin_loss(x, y, -x),
    lambda x, y, t: F.cosine_embedding_loss(x, y, t % 2 * 2 - 1),
    lambda x, y, t: F.margin_ranking_loss(x, y, y.sign()),
    lambda x, y, t: F.soft_margin_loss(x, y.sign()),
    lambda x, y, t: F.hinge_embedding_loss(x, y.sign()),
    lambda x, y, t: F.pairwise_distance(x, y),
    lambda x, y, t: torch.clamp(1 - x * y, min=0).mean(),
]

REDUCTIONS_OF_LOSSES = [{"reduction": name} for name in ("none", "mean", "sum")]
LOSS_OPTIONS: list[Function] = [
    *(
        lambda x, y, t, how=how, more=more, of=of: F.cross_entropy(x, y.softmax(1) if of else t, **how, **more)
        for how in REDUCTIONS_OF_LOSSES
        for of in (False, True)
        for more in ({}, {"label_smoothing": 0.15}, *([] if of else [{"ignore_index": 2}]))
    ),
    *(
        lambda x, y, t, how=how, loss=loss: loss(x, y, how)
        for how in REDUCTIONS_OF_LOSSES
        for loss in (
            lambda x, y, how: F.mse_loss(x, y, **how),
            lambda x, y, how: F.l1_loss(x, y, **how),
            lambda x, y, how: F.huber_loss(x, y, delta=0.7, **how),
            lambda x, y, how: F.smooth_l1_loss(x, y, beta=0.0, **how),
            lambda x, y, how: F.kl_div(x.log_softmax(1), y.log_softmax(1), log_target=True, **how),
            lambda x, y, how: F.kl_div(x.log_softmax(1), y.softmax(1), **how),
            lambda x, y, how: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), weight=y.abs(), **how),
            lambda x, y, how: F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=y[0].abs(), **how),
            lambda x, y, how: F.poisson_nll_loss(x, y.abs() + 2.0, full=True, **how),
            lambda x, y, how: F.gaussian_nll_loss(x, y, y.abs() + 0.1, full=True, **how),
            lambda x, y, how: F.triplet_margin_loss(x, y, -x, swap=True, **how),
            lambda x, y, how: F.hinge_embedding_loss(x, y.sign(), margin=0.5, **how),
        )
    ),
]

BATCHES: dict[str, tuple[list[Function], list[torch.Tensor], list[torch.Tensor] | None, tuple[str, ...]]] = {
    "activations": (ACTIVATIONS, [draw(7, 33)], [draw(1, 5)], ()),
    "activations of a vector": (ACTIVATIONS, [draw(9)], None, ()),
    "activations of a scalar": (ACTIVATIONS, [draw()], None, ()),
    "activations on special values": (ACTIVATIONS[:20], [SPECIAL], None, ()),
    "activations in half": (ACTIVATIONS[:12], [draw(5, 11, dtype=torch.float16)], None, ()),
    "activations in bfloat16": (ACTIVATIONS[:12], [draw(5, 11, dtype=torch.bfloat16)], None, ()),
    "activations in double": (ACTIVATIONS, [draw(5, 11, dtype=torch.float64)], None, ()),
    "math": (MATH, [draw(7, 33)], [draw(1, 5)], ()),
    "math of a scalar": (MATH, [draw()], None, ()),
    "reductions": (REDUCTIONS, [draw(5, 6, 37)], [draw(1, 6, 3)], ("aten.median.default",)),
    "reductions of a shifted input": (REDUCTIONS[3:26], [draw(3, 4, 70) + 1000.0], None, ()),
    "reductions in bfloat16": (REDUCTIONS[:6], [draw(3, 4, 70, dtype=torch.bfloat16)], None, ()),
    "views": (VIEWS, [draw(3, 4, 6)], None, ("aten.unfold.default",)),
    "images": (IMAGES, [draw(2, 4, 6, 8)], [draw(1, 4, 10, 6)], ()),
    "integers": (INTEGERS, [whole(-20, 20, 5, 9), whole(1, 9, 5, 9, seed=1)], None, ()),
    "shifts": (SHIFTS, [whole(-300, 300, 5, 9), whole(-3, 70, 5, 9, seed=1)], None, ()),
    "gathers": (GATHERS, [draw(7, 5), whole(0, 7, 3, 4)], None, ()),
    "losses": (LOSSES, [draw(9, 6), draw(9, 6, seed=1), whole(0, 6, 9)], None, ()),
    "options of losses": (
        LOSS_OPTIONS,
        [draw(9, 6), draw(9, 6, seed=1), whole(0, 6, 9)],
        None,
        ("aten.poisson_nll_loss.default",),
    ),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", list(BATCHES))
@pytest.mark.matrix(keep=3)
def test_batch(name: str) -> None:
    functions, inputs, other, library = BATCHES[name]
    check(Outputs(functions), inputs, other=other, library=library)
