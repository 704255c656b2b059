"""Runs a module with every sum added in another order, as an honest kernel may.

Products, convolutions, sums, norms, softmax and losses are intercepted as operators and computed by the library's own
ones on parts of their terms. Half types accumulate in float32 and round once per operator, as torch does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
PARTS = {
    "rewritten": 2,
    "halves": 2,
    "eighths": 8,
    "blocks": 0,
    "lanes": 0,
    "reversed": 1,
    "permuted": 1,
    "permuted blocks": 0,
}
"""Orders of float32 sums: how many parts of equal length are added; 0 for parts of `BLOCK` terms, or `BLOCK` lanes.
`rewritten` besides has powers of two for exponentials, products with reciprocals for quotients, and the bias first."""
ORDERS = tuple(PARTS)
BLOCK = 32
MOST_PARTS = 1024
"""Of a sum of many terms, whose parts are then longer than BLOCK."""
_NARROW = (torch.float32, torch.float16, torch.bfloat16)

_DECOMPOSED = get_decompositions(
    [
        aten.native_layer_norm,
        aten.native_group_norm,
        aten.native_batch_norm,
        aten._native_batch_norm_legit,
        aten._native_batch_norm_legit.no_stats,
        aten._native_batch_norm_legit_no_training,
        aten.mse_loss,
        aten.huber_loss,
        aten.smooth_l1_loss,
        aten.soft_margin_loss,
        aten.binary_cross_entropy,
        aten.binary_cross_entropy_with_logits,
        aten.nll_loss_forward,
        aten.addmv,
        aten.mv,
        aten.linalg_vector_norm,
        aten.std,
        aten._log_softmax,
        aten._softmax,
        aten.logsumexp,
    ]
)
assert isinstance(_DECOMPOSED, dict)


class Reordered(TorchDispatchMode):
    """A context in which operators add their terms in an order of `ORDERS`. seed: of the permuted ones."""

    def __init__(self, order: str, seed: int) -> None:
        super().__init__()
        self.order = order
        self._seed = seed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        own = _OPERATORS.get(func)
        if self.order == "rewritten":
            own = _REWRITTEN.get(func, own)
        if own is not None and args and isinstance(args[0], Tensor) and args[0].dtype in _NARROW:
            return own(self, *args, **kwargs)
        decomposed = _DECOMPOSED.get(func)
        if decomposed is not None:
            with self:
                return decomposed(*args, **kwargs)
        return func(*args, **kwargs)

    def parts(self, count: int) -> list[Tensor]:
        """The places of `count` terms, in the parts that are added one after the other."""
        places = torch.arange(count, device="cpu")
        if self.order.startswith("permuted"):
            places = torch.randperm(count, generator=torch.Generator().manual_seed(self._seed + count), device="cpu")
        if self.order == "reversed":
            places = places.flip(0)
        if self.order == "lanes":
            return [places[lane::BLOCK] for lane in range(min(BLOCK, count))]
        length = max(BLOCK, count // MOST_PARTS) if PARTS[self.order] == 0 else -(-count // PARTS[self.order])
        return list(places.split(max(length, 1)))

    def total(self, values: Tensor, product: Callable[[Tensor, Tensor], Tensor], count: int) -> Tensor:
        """The sum over parts of product(values, places of the part)."""
        found = None
        for places in self.parts(count):
            part = product(values, places)
            found = part if found is None else found + part
        return product(values, torch.arange(0, device="cpu")) if found is None else found

    def sum_last(self, values: Tensor) -> Tensor:
        """The sum over the last dimension, [..., K] to [...]."""
        return self.total(values, lambda v, at: v[..., at].sum(-1), values.shape[-1])

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """The product [..., M, K] x [..., K, N] in float32."""
        a, b = a.float(), b.float()
        return self.total(a, lambda v, at: v[..., at] @ b[..., at, :], a.shape[-1])


def _mm(mode: Reordered, a: Tensor, b: Tensor) -> Tensor:
    return mode.matmul(a, b).to(a.dtype)


def _addmm(mode: Reordered, bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return (alpha * mode.matmul(a, b) + beta * bias.float()).to(a.dtype)


def _convolution(mode: Reordered, x: Tensor, w: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
    """As unfold and a product, for plain two-dimensional ones; others as torch has them."""
    stride, padding, dilation, transposed, _, groups = how
    if transposed or groups != 1 or x.dim() != 4:
        return aten.convolution(x, w, bias, *how)
    columns = torch.nn.functional.unfold(x.float(), w.shape[2:], dilation, padding, stride)
    out = mode.matmul(w.reshape(1, w.shape[0], -1), columns)
    sizes = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(x.shape[2:], padding, dilation, w.shape[2:], stride, strict=True)
    ]
    out = out if bias is None else out + bias.float()[:, None]
    return out.reshape(x.shape[0], w.shape[0], *sizes).to(x.dtype)


def _dims(x: Tensor, dim: Any) -> list[int]:
    given = [dim] if isinstance(dim, int) else list(dim or ())
    return sorted({d % x.dim() for d in given}) if given and x.dim() else list(range(x.dim()))


def _reduced(mode: Reordered, x: Tensor, dim: Any, keepdim: bool, scale: Callable[[int], float] | None) -> Tensor:
    """The sum over `dim` in float32, over scale(terms)."""
    dims = _dims(x, dim)
    rest = [d for d in range(x.dim()) if d not in dims]
    moved = x.float().permute(*rest, *dims).reshape([x.shape[d] for d in rest] + [-1]) if x.dim() else x.float()[None]
    out = mode.sum_last(moved)
    out = out if scale is None else out / scale(moved.shape[-1])
    return out.reshape([1 if d in dims else n for d, n in enumerate(x.shape)]) if keepdim else out


def _sum(mode: Reordered, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return _reduced(mode, x, dim, keepdim, None).to(dtype or x.dtype)


def _mean(mode: Reordered, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return _reduced(mode, x, dim, keepdim, float).to(dtype or x.dtype)


def _var(mode: Reordered, x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    return _var_mean(mode, x, dim, correction=correction, keepdim=keepdim)[0]


def _var_mean(
    mode: Reordered, x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """In two passes."""
    mean = _reduced(mode, x, dim, True, float)
    less = 1.0 if correction is None else float(correction)
    var = _reduced(mode, (x.float() - mean) ** 2, dim, keepdim, lambda n: max(n - less, 0.0))
    return var.to(x.dtype), _reduced(mode, x, dim, keepdim, float).to(x.dtype)


def _cumsum(mode: Reordered, x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """In parts with a carry each."""
    del mode
    carry, out = None, []
    for part in x.float().split(BLOCK, dim):
        part = part.cumsum(dim)
        part = part if carry is None else part + carry
        carry = part.narrow(dim, part.shape[dim] - 1, 1)
        out.append(part)
    return (torch.cat(out, dim) if out else x).to(dtype or x.dtype)


_OPERATORS: dict[Any, Callable[..., Any]] = {
    aten.mm.default: _mm,
    aten.bmm.default: _mm,
    aten.dot.default: lambda mode, a, b: mode.sum_last(a.float() * b.float()).to(a.dtype),
    aten.addmm.default: _addmm,
    aten.baddbmm.default: _addmm,
    aten.convolution.default: _convolution,
    aten.sum.default: _sum,
    aten.sum.dim_IntList: _sum,
    aten.mean.default: _mean,
    aten.mean.dim: _mean,
    aten.var.correction: _var,
    aten.var_mean.correction: _var_mean,
    aten.cumsum.default: _cumsum,
}


def _bias_first(mode: Reordered, bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    a, b = (alpha * a.float()), b.float()
    out = beta * bias.float()
    for places in mode.parts(a.shape[-1]):
        out = out + a[..., places] @ b[..., places, :]
    return out.to(bias.dtype)


def _exp(mode: Reordered, x: Tensor) -> Tensor:
    del mode
    return torch.exp2(x.float() * 1.4426950408889634).to(x.dtype)


def _quotient(mode: Reordered, a: Tensor, b: Any) -> Tensor:
    del mode
    divisor = b.float() if isinstance(b, Tensor) else torch.tensor(float(b))
    return (a.float() * (1.0 / divisor)).to(torch.result_type(a, b))


def _rsqrt(mode: Reordered, x: Tensor) -> Tensor:
    del mode
    return (1.0 / x.float().sqrt()).to(x.dtype)


_REWRITTEN: dict[Any, Callable[..., Any]] = {
    aten.addmm.default: _bias_first,
    aten.baddbmm.default: _bias_first,
    aten.exp.default: _exp,
    aten.div.Tensor: _quotient,
    aten.rsqrt.default: _rsqrt,
}
