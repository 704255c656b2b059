"""Backward operators as pointwise operators and reductions, for capture. Imports torch.

torch's own decompositions serve where they are of that form with free sizes; norms and the negative log-likelihood have
theirs here: means instead of sums over a size that is no integer, a comparison instead of a scatter. Sources: Ioffe &
Szegedy 2015 (the gradient of a normalisation), Wu & He 2018 (groups).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

from hipwright.capture import composite_forms

aten = torch.ops.aten
_WHOLE = ("embedding", "convolution", "convolution_double", "pack_padded", "weight_norm_differentiable")
"""Operators whose decompositions scatter: they are one library call instead."""
_ALSO = ("nll_loss_forward", "nll_loss2d_forward", "_fused_rms_norm")
_INNER = (
    "_chunk_cat",
    "_safe_softmax",
    "_unsafe_index",
    "_unsafe_index_put",
    "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate",
)
"""Operators of torch's own passes, which have no public name; plans call public operators."""


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """{operator: what replaces it in a captured graph}."""
    core = core_aten_decompositions()
    names = [(op, op.name().partition("::")[2].partition(".")[0].lstrip("_")) for op in core]
    kept = {op: core[op] for op, name in names if "backward" in name and not name.startswith(_WHOLE)}
    for name in (*_ALSO, *_INNER):
        packet = getattr(aten, name, None)
        overloads = [] if packet is None else [getattr(packet, one) for one in packet.overloads()]
        kept |= {op: decomposition_table[op] for op in overloads if op in decomposition_table}
    return kept | _OWN | composite_forms.FORMS


def functional_norm(input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: Any) -> Any:
    """native_batch_norm with a schema that declares that it writes the running statistics."""
    if not training or mean is None:
        if mean is None:
            return aten._native_batch_norm_legit.no_stats(input, weight, bias, training, *rest)
        return aten._native_batch_norm_legit_no_training.default(input, weight, bias, mean, var, *rest)
    return aten._native_batch_norm_legit.default(input, weight, bias, mean, var, training, *rest)


STATEFUL: dict[Any, Callable[..., Any]] = {aten.native_batch_norm.default: functional_norm}
"""Operators that are replaced before mutation is made functional."""


# ---------------------------------------------------------------- our own


def _wide(tensor: Any) -> Any:
    """The tensor in the type in which sums are accumulated."""
    return tensor.float() if tensor is not None and tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _through(grad: Any, unit: Any, dims: list[int], scale: Any) -> Any:
    """The gradient before a normalisation over `dims`, of `grad` after it; unit: the normalised values."""
    spread = unit * (grad * unit).mean(dims, keepdim=True)
    return scale * (grad - grad.mean(dims, keepdim=True) - spread)


def _layer_norm(
    grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: list[bool]
) -> tuple[Any, Any, Any]:
    inner = list(range(x.ndim - len(shape), x.ndim))
    outer = list(range(x.ndim - len(shape)))
    g, unit = _wide(grad), (_wide(x) - _wide(mean)) * _wide(rstd)
    wide = g if weight is None else g * _wide(weight)
    gx = _through(wide, unit, inner, _wide(rstd)).to(x.dtype) if mask[0] else None
    gw = _summed(g * unit, outer).to(weight.dtype) if mask[1] and weight is not None else None
    gb = _summed(g, outer).to(bias.dtype) if mask[2] and bias is not None else None
    return gx, gw, gb


def _summed(value: Any, dims: list[int]) -> Any:
    return value.sum(dims) if dims else value


def _batch_norm(
    grad: Any,
    x: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    mean: Any,
    invstd: Any,
    train: bool,
    eps: float,
    mask: list[bool],
) -> tuple[Any, Any, Any]:
    dims = [0, *range(2, x.ndim)]
    shape = [1, -1, *[1] * (x.ndim - 2)]
    if not train:
        mean, invstd = running_mean, torch.rsqrt(_wide(running_var) + eps)
    scale = _wide(invstd).reshape(shape)
    g, unit = _wide(grad), (_wide(x) - _wide(mean).reshape(shape)) * scale
    total = scale if weight is None else scale * _wide(weight).reshape(shape)
    gx = (_through(g, unit, dims, total) if train else g * total).to(x.dtype) if mask[0] else None
    kind = x.dtype if weight is None else weight.dtype
    gw = (g * unit).sum(dims).to(kind) if mask[1] else None
    return gx, gw, g.sum(dims).to(kind) if mask[2] else None


def _group_norm(
    grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, n: Any, c: Any, hw: Any, groups: int, mask: list[bool]
) -> tuple[Any, Any, Any]:
    split = [n, groups, c // groups, hw]
    stats, channels = [n, groups, 1, 1], [1, groups, c // groups, 1]
    scale = _wide(rstd).reshape(stats)
    g, unit = _wide(grad).reshape(split), (_wide(x).reshape(split) - _wide(mean).reshape(stats)) * scale
    wide = g if weight is None else g * _wide(weight).reshape(channels)
    gx = _through(wide, unit, [2, 3], scale).reshape(x.shape).to(x.dtype) if mask[0] else None
    kind = x.dtype if weight is None else weight.dtype
    gw = (g * unit).sum([0, 3]).reshape([c]).to(kind) if mask[1] else None
    return gx, gw, g.sum([0, 3]).reshape([c]).to(kind) if mask[2] else None


def _rms_norm(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, mask: list[bool]) -> tuple[Any, Any]:
    inner = list(range(x.ndim - len(shape), x.ndim))
    g, scale = _wide(grad), _wide(rstd)
    unit = _wide(x) * scale
    wide = g if weight is None else g * _wide(weight)
    gx = (scale * (wide - unit * (wide * unit).mean(inner, keepdim=True))).to(x.dtype) if mask[0] else None
    outer = list(range(x.ndim - len(shape)))
    return gx, _summed(g * unit, outer).to(weight.dtype) if mask[1] and weight is not None else None


def _nll_loss(grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignore: int, total: Any) -> Any:
    """-weight at the target's class, else 0."""
    dim = 1 if x.ndim > 1 else 0
    shape = [x.shape[dim] if k == dim else 1 for k in range(x.ndim)]
    classes = torch.arange(x.shape[dim], device=x.device).reshape(shape)
    wanted = target.unsqueeze(dim)
    hot = torch.logical_and(classes == wanted, wanted != ignore)
    scale = grad.unsqueeze(dim) if reduction == 0 else grad / total if reduction == 1 else grad
    scale = scale if weight is None else scale * weight.reshape(shape)
    return torch.where(hot, -scale, 0.0).to(x.dtype)


_OWN: dict[Any, Callable[..., Any]] = {
    aten.native_layer_norm_backward.default: _layer_norm,
    aten.native_batch_norm_backward.default: _batch_norm,
    aten.native_group_norm_backward.default: _group_norm,
    aten.nll_loss_backward.default: _nll_loss,
    aten.nll_loss2d_backward.default: _nll_loss,
}
if hasattr(aten, "_fused_rms_norm_backward"):
    _OWN[aten._fused_rms_norm_backward.default] = _rms_norm
