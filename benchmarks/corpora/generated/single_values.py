"""Single operators without products: reductions, scans, norms, pools, elements, losses, indices."""

from __future__ import annotations

import math

from benchmarks.corpora.generated.chain_steps import ACTIVATIONS
from benchmarks.corpora.generated.single_drafts import Draft

# ---------------------------------------------------------------- reductions, scans, norms


def _dims(d: Draft, rank: int) -> str:
    several = rank > 2 and d.pick((False, True))
    first = d.pick(range(rank - 1)) if several else d.pick(range(rank))
    return f"({first}, {first + 1})" if several else str(first)


def reduction(d: Draft) -> None:
    """A reduction over one dimension or two."""
    shape = d.rows()
    d.given(shape)
    dim, keep = _dims(d, len(shape)), d.pick((True, False))
    call = d.pick(("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "norm"))
    values = "torch.linalg.vector_norm(x" if call == "norm" else f"torch.{call}(x"
    d.gives(f"{values}, dim={dim}, keepdim={keep})")


def one_dimension(d: Draft) -> None:
    """A reduction that names one dimension: places of extremes, products, quantities that are counted."""
    shape = d.rows()
    d.given(shape)
    dim = d.pick(range(len(shape)))
    call = d.pick(
        ("argmax(x", "argmin(x", "max(x", "min(x", "prod(x * 0.1 + 1", "any(x > 2", "all(x > -2", "count_nonzero(x > 0")
    )
    d.gives(f"torch.{call}, dim={dim})" + ("[0]" if call[:4] in ("max(", "min(") else ""))


def whole(d: Draft) -> None:
    """A reduction of everything, or its use on every element."""
    d.given(d.rows())
    d.gives(
        d.pick(
            ("x.sum()", "x.mean()", "x / x.norm()", "x.abs().max()", "x / torch.norm(x, p='fro')", "x / x.abs().sum()")
        )
    )


def scan(d: Draft) -> None:
    """A prefix sum, product or extreme."""
    shape = d.rows()
    d.given(shape)
    dim = d.pick(range(len(shape)))
    d.gives(
        d.pick(
            (
                "torch.cumsum(x, dim={0})",
                "torch.cumsum(x.flip({0}), dim={0}).flip({0})",
                "torch.cumsum(x, dim={0}) - x",
                "torch.cumsum(x * (x > 0), dim={0})",
                "torch.cumprod(x * 0.01 + 1.0, dim={0})",
                "torch.cummax(x, dim={0})[0]",
                "torch.logcumsumexp(x, dim={0})",
            )
        ).format(dim)
    )


def softmax(d: Draft) -> None:
    """A softmax over some dimension."""
    shape = d.rows()
    d.given(shape)
    call = d.pick(("F.softmax(x", "F.log_softmax(x", "F.softmin(x"))
    d.gives(f"{call}, dim={d.pick((-1, -1, *range(len(shape))))})")


def row_norm(d: Draft) -> None:
    """A norm over the last dimensions, or by a vector norm."""
    shape = d.rows()
    d.given(shape)
    last = list(shape[-d.pick((1, 1, 2)) :])
    call = d.pick(("LayerNorm", "RMSNorm", "normalize"))
    if call == "normalize":
        d.gives(f"F.normalize(x, p={d.pick((1, 2, 2))}, dim={d.pick((-1, 0))})")
    else:
        d.layer(f"nn.{call}({last})")


def channel_norm(d: Draft) -> None:
    """A norm over images."""
    rank = d.pick((1, 2, 2, 3))
    shape = d.image(rank)
    d.given(shape)
    wide, call = shape[1], d.pick(("BatchNorm", "InstanceNorm", "GroupNorm", "LocalResponseNorm"))
    if call == "GroupNorm":
        d.layer(f"nn.GroupNorm({math.gcd(wide, d.pick((2, 4), (2, 8, 16, 32)))}, {wide})")
    elif call == "LocalResponseNorm":
        d.layer(f"nn.LocalResponseNorm({d.pick((2, 5))})")
    else:
        d.layer(f"nn.{call}{rank}d({wide}{', affine=True' if call == 'InstanceNorm' else ''})")


# ---------------------------------------------------------------- pools, images


def pool(d: Draft, kind: str) -> None:
    """A pool of a kind: "max", "average" or "adaptive"."""
    rank = d.pick((1, 2, 2, 3))
    shape = d.image(rank)
    d.given(shape)
    kernel, stride = d.pick((2, 3, 4, 5, 8)), d.pick((1, 2, 3, 4))
    padding = d.pick((0, kernel // 2))
    d.affordable &= min(shape[2:]) >= 2 * kernel
    if kind == "adaptive":
        sizes = d.pick((1, 2, 3, 5, 7))
        d.layer(f"nn.Adaptive{d.pick(('Avg', 'Max'))}Pool{rank}d({sizes})")
    elif kind == "max":
        d.layer(f"nn.MaxPool{rank}d({kernel}, {stride}, {padding}, dilation={d.pick((1, 1, 2))})")
    else:
        d.layer(f"nn.AvgPool{rank}d({kernel}, {stride}, {padding}, count_include_pad={d.pick((True, False))})")


def resized(d: Draft) -> None:
    """An image at another size or order."""
    shape = d.image(2)
    d.given(shape), d.holds((*shape[:2], 4 * shape[2], shape[3]))
    mode = d.pick(
        (
            "'nearest'",
            "'bilinear'",
            "'bilinear', align_corners=True",
            "'bicubic'",
        )
    )
    how = d.pick(
        (
            f"F.interpolate(x, scale_factor=2, mode={mode})",
            f"F.interpolate(x, size=({shape[2] // 2 + 1}, {shape[3] // 2}), mode={mode})",
            "torch.cat([x, x.flip(-1)], dim=1)",
            f"F.pad(x, (1, 2, 3, 1), mode={d.pick(('constant', 'reflect', 'replicate', 'circular'))!r})",
            "F.unfold(x, 3, padding=1)",
            "x.permute(0, 2, 3, 1).contiguous()",
        )
    )
    if "unfold" in how:
        d.holds((9, *shape))
    d.gives(how)


# ---------------------------------------------------------------- elements, losses, indices


def activation(d: Draft) -> None:
    """One function of every element."""
    d.given(d.rows())
    d.gives(d.pick(ACTIVATIONS))


def binary(d: Draft) -> None:
    """A function of two tensors that broadcast."""
    shape = d.rows()
    other = d.pick((shape, shape[-1:], (*shape[:-1], 1), (1, *shape[1:])))
    d.given(shape), d.given(other, "y")
    d.gives(
        d.pick(
            (
                "x * y",
                "x + 0.5 * y",
                "torch.maximum(x, y)",
                "x / (y * y + 1.0)",
                "torch.lerp(x, y, 0.3)",
                "torch.atan2(x, y)",
            )
        )
    )


LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "poisson_nll_loss")


def loss(d: Draft) -> None:
    """A loss of predictions and targets of the same shape."""
    n, k = d.pick((4, 16), (128, 4096, 32768)), d.size()
    d.given((n, k))
    how = d.pick((*LOSSES, "kl_div", "cosine_embedding", "hinge", "triplet", "bce"))
    if how == "triplet":
        d.given((n, k), "y"), d.given((n, k), "z")
        d.gives("F.triplet_margin_loss(x, y, z, margin=1.0)")
        return
    d.given((n, k), "y", "torch.rand" if how in ("bce", "poisson_nll_loss") else "torch.randn")
    special = {
        "kl_div": "F.kl_div(F.log_softmax(x, dim=1), F.softmax(y, dim=1), reduction='batchmean')",
        "cosine_embedding": "1 - F.cosine_similarity(x, y, dim=1)",
        "hinge": "torch.clamp(1 - x * torch.sign(y), min=0).mean()",
        "bce": "F.binary_cross_entropy_with_logits(x, y)",
        "soft_margin_loss": "F.soft_margin_loss(x, torch.sign(y))",
    }
    d.gives(special.get(how, f"F.{how}(x, y{d.pick(('', '', chr(44) + chr(32) + 'reduction=' + repr('sum')))})"))


def classes(d: Draft) -> None:
    """A loss of class numbers."""
    n, k = d.pick((4, 16), (1024, 4096, 16384)), d.pick((5, 8), (10, 100, 1000, 8192, 32000))
    d.given((n, k)), d.numbers(k, (n,), "y")
    d.gives(
        d.pick(
            (
                "F.cross_entropy(x, y)",
                "F.cross_entropy(x, y, label_smoothing=0.1)",
                "F.nll_loss(F.log_softmax(x, dim=1), y)",
                "F.multi_margin_loss(x, y)",
            )
        )
    )


def indexed(d: Draft) -> None:
    """Elements and rows that indices name."""
    n, k, count = d.size() * d.pick((1, 8)), d.pick((8, 16), (32, 128, 768)), d.pick((6, 16), (1024, 8192, 65536))
    d.given((n, k)), d.numbers(n, (count,), "y"), d.holds((count, k))
    d.gives(
        d.pick(
            (
                "F.embedding(y, x)",
                "torch.index_select(x, 0, y)",
                "torch.zeros_like(x).index_add(0, y, x[y])",
                "torch.gather(x, 0, y[:, None].expand(-1, x.shape[1]))",
                "F.embedding_bag(y.view(-1, 2), x, mode='sum')",
            )
        )
    )


def ordered(d: Draft) -> None:
    """The greatest elements, in order."""
    shape = d.rows()
    d.given(shape)
    d.affordable &= shape[-1] >= 8
    d.gives(
        d.pick(
            (
                "torch.topk(x, 5, dim=-1)[0]",
                "torch.sort(x, dim=-1)[0]",
                "torch.topk(x, 1, dim=-1)[1]",
                "torch.argsort(x, dim=-1, stable=True)",
            )
        )
    )


def selected(d: Draft) -> None:
    """Masks, shifts and triangles."""
    n, shape = d.size(), d.rows()
    d.given(shape)
    d.gives(
        d.pick(
            (
                "torch.where(x > 0, x, torch.zeros_like(x))",
                "x.masked_fill(x < 0, -1.0)",
                "torch.roll(x, 3, -1)",
                "torch.tril(x)",
                "x.transpose(-1, -2).contiguous()",
                "torch.stack([x, x * 2.0], dim=1)",
                "x.repeat_interleave(2, dim=-1)",
                f"torch.clamp(x, -{n / 8192:.3f}, 1.0)",
            )
        )
    )


PLAIN = (
    *(reduction, one_dimension, whole, scan, softmax, row_norm, channel_norm, resized),
    *(activation, binary, loss, classes, indexed, ordered, selected),
)
"""The kinds that draw everything themselves."""
