"""Single operators with products, and all kinds by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from benchmarks.corpora.generated import single_values as values
from benchmarks.corpora.generated.single_drafts import Draft

# ---------------------------------------------------------------- products


def matmul(d: Draft) -> None:
    """A product of matrices, either of them transposed."""
    m, k, n = d.size(), d.size(), d.size()
    left, right = d.pick(("x", "x.t()")), d.pick(("y", "y.t()"))
    d.given((k, m) if "t" in left else (m, k)), d.given((n, k) if "t" in right else (k, n), "y")
    d.costs(m * k * n)
    d.gives(f"torch.matmul({left}, {right})")


def thin_matmul(d: Draft) -> None:
    """A product with one small dimension: few rows, few columns, or a short sum."""
    few, a, b = d.pick((1, 2, 3), (1, 4, 16, 32, 48)), d.size() * d.pick((1, 4)), d.size()
    m, k, n = d.pick(((few, a, b), (a, few, b), (a, b, few)))
    d.given((m, k)), d.given((k, n), "y")
    d.holds((m, n)), d.costs(m * k * n)
    d.gives("x @ y")


def batched_matmul(d: Draft) -> None:
    """Products of batches of matrices, or with one matrix for all."""
    batch, m, k, n = d.pick((2, 3), (4, 16, 64, 128)), d.size(), d.size(), d.size()
    how = d.pick(
        (
            "torch.bmm(x, y)",
            "torch.matmul(x, y)",
            "torch.einsum('bmk,bnk->bmn', x, y)",
        )
    )
    one = "matmul" in how
    d.given((batch, m, k))
    d.given((k, n) if one else (batch, n, k) if "einsum" in how else (batch, k, n), "y")
    d.holds((batch, m, n)), d.costs(batch * m * k * n)
    d.gives(how)


def structured_matmul(d: Draft) -> None:
    """Products with a diagonal, a triangle or a tensor of more dimensions."""
    n, m = d.size(), d.size()
    how = d.pick(
        (
            "torch.diag(x) @ y",
            "torch.tril(x @ y)",
            "torch.triu(x) @ torch.triu(y)",
            "torch.outer(x, y)",
        )
    )
    if "outer" in how:
        d.given((n,)), d.given((m,), "y"), d.holds((n, m))
    elif "diag" in how:
        d.given((n,)), d.given((n, m), "y")
    else:
        d.given((n, n)), d.given((n, n), "y"), d.costs(n**3)
    d.gives(how)


def linear(d: Draft) -> None:
    """A linear layer over 2 to 4 dimensions."""
    shape, out = d.rows(), d.size()
    d.given(shape), d.holds((*shape[:-1], out)), d.costs(math.prod(shape) * out)
    d.layer(f"nn.Linear({shape[-1]}, {out}, bias={d.pick((True, True, False))})")


def bilinear(d: Draft) -> None:
    """Distances and bilinear forms between two sets."""
    n, m, k = d.size(), d.size(), d.pick((4, 8), (16, 64, 128, 256))
    d.given((n, k)), d.given((m, k), "y"), d.holds((n, m)), d.costs(n * m * k)
    d.gives(
        d.pick(
            (
                "torch.cdist(x, y)",
                "torch.cdist(x, y, p=1.0)",
                "F.normalize(x, dim=1) @ F.normalize(y, dim=1).t()",
            )
        )
    )


# ---------------------------------------------------------------- convolutions


def _convolution(d: Draft, rank: int, groups: str = "") -> None:
    batch, wide, *spatial = shape = d.image(rank)
    kernel = [d.pick((1, 2, 3, 3, 5, 7) if rank < 3 else (2, 3, 3)) for _ in range(rank)]
    kernel = kernel if d.pick((True, False, False)) else kernel[:1] * rank
    stride, dilation = d.pick((1, 1, 2, 3)), d.pick((1, 1, 1, 2))
    padding = d.pick((0, kernel[0] // 2 * dilation))
    out = d.pick((4, 6, 8), (16, 32, 64, 96, 128, 256))
    count = {"": 1, "depthwise": wide, "grouped": math.gcd(wide, out)}[groups]
    out = wide * d.pick((1, 1, 2)) if groups == "depthwise" else out
    sizes = [(s + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for s, k in zip(spatial, kernel, strict=True)]
    d.given(shape), d.holds((batch, out, *sizes))
    d.costs(math.prod((batch, out, *map(abs, sizes))) * wide // count * math.prod(kernel))
    facts = f"stride={stride}, padding={padding}, dilation={dilation}, groups={count}, bias={d.pick((True, False))}"
    d.layer(f"nn.Conv{rank}d({wide}, {out}, {tuple(kernel)}, {facts})")


def _transposed(d: Draft, rank: int) -> None:
    batch, wide, *spatial = shape = d.image(rank)
    kernel = [d.pick((2, 3, 4, 5)) for _ in range(rank)]
    kernel = kernel if d.pick((True, False, False)) else kernel[:1] * rank
    stride, padding, dilation = d.pick((1, 2, 3)), d.pick((0, 1)), d.pick((1, 1, 1, 2))
    more = d.pick((0, stride - 1))
    out = d.pick((4, 6), (16, 32, 64, 128))
    groups = math.gcd(d.pick((1, 1, 1, 2)), wide)
    sizes = [
        (s - 1) * stride - 2 * padding + dilation * (k - 1) + more + 1 for s, k in zip(spatial, kernel, strict=True)
    ]
    d.given(shape), d.holds((batch, out, *sizes)), d.costs(math.prod(shape) * out // groups * math.prod(kernel))
    facts = f"stride={stride}, padding={padding}, output_padding={more}, dilation={dilation}, groups={groups}"
    d.layer(f"nn.ConvTranspose{rank}d({wide}, {out}, {tuple(kernel)}, {facts}, bias={d.pick((True, False))})")


# ---------------------------------------------------------------- layers


def attention(d: Draft) -> None:
    """Scaled dot products of queries, keys and values."""
    batch, heads, wide = (
        d.pick((1, 2), (1, 4, 8, 16)),
        d.pick((2, 4), (8, 12, 16, 32)),
        d.pick((8, 16), (32, 64, 80, 128)),
    )
    long, keys = d.pick((9, 16), (197, 512, 1024, 2048)), d.pick((9, 16), (197, 512, 1024, 2048))
    causal = d.pick((True, False))
    keys = long if causal else keys
    (
        d.given((batch, heads, long, wide)),
        d.given((batch, heads, keys, wide), "y"),
        d.given((batch, heads, keys, wide), "z"),
    )
    d.holds((batch, heads, long, keys)), d.costs(2 * batch * heads * long * keys * wide)
    d.gives(f"F.scaled_dot_product_attention(x, y, z, is_causal={causal})")


def recurrent(d: Draft) -> None:
    """A recurrent layer or two."""
    kind, layers, both = d.pick(("RNN", "LSTM", "GRU")), d.pick((1, 2)), d.pick((False, False, True))
    wide, hidden = d.pick((4, 6), (64, 128, 256)), d.pick((4, 8), (128, 256, 512))
    batch, steps = d.pick((2, 3), (1, 8, 32)), d.pick((3, 5), (32, 128, 256))
    d.given((batch, steps, wide))
    facts = f"num_layers={layers}, bidirectional={both}, batch_first=True"
    d.made.append(f"self.layer = nn.{kind}({wide}, {hidden}, {facts})")
    d.gives("self.layer(x)[0]")


KINDS: dict[str, Callable[[Draft], None]] = {
    **{one.__name__: one for one in (matmul, thin_matmul, batched_matmul, structured_matmul, linear, bilinear)},
    **{f"conv{rank}d": partial(_convolution, rank=rank) for rank in (1, 2, 3)},
    **{f"{groups}2d": partial(_convolution, rank=2, groups=groups) for groups in ("depthwise", "grouped")},
    **{f"transposed{rank}d": partial(_transposed, rank=rank) for rank in (1, 2, 3)},
    **{f"{kind}_pool": partial(values.pool, kind=kind) for kind in ("max", "average", "adaptive")},
    **{one.__name__: one for one in (attention, recurrent, *values.PLAIN)},
}
"""Every kind by name. A family is a kind and a data type."""
