"""Tensors of a caller's process as expressions that draw others of their kind, for the text of a task.

A text must not depend on a model's training, so that the archive knows its task again: what is drawn keeps a tensor's
shape, dtype, order of strides, sign and rough scale. Tables keep their values: booleans, sorted integers, and floats
that hold infinities, as masks do.
"""

from __future__ import annotations

import base64
import math
import zlib

import torch

from hipwright.errors import BadInput
from hipwright.torchio import NAMES

TABLE = '''def table(text, dtype, shape):
    """A tensor of known values."""
    data = bytearray(zlib.decompress(base64.b85decode(text)))
    return torch.frombuffer(data, dtype=dtype).reshape(shape)
'''
"""What a text needs that calls `table`; it imports base64, torch and zlib."""

_MOST_TEXT = 1 << 18
"""Characters of a table in a text."""
_LONGEST_ORDERED = 1 << 16


def drawn(tensor: torch.Tensor, *, fixed: bool = False) -> str:
    """The expression. fixed: a buffer or constant, whose values are kept where the text is short.

    Raises BadInput for a dtype that no program can hold.
    """
    if tensor.dtype not in NAMES:
        raise BadInput(f"a tensor of {tensor.dtype}", hint=f"supported: {', '.join(NAMES.values())}")
    tensor = tensor.detach()
    order = sorted(range(tensor.ndim), key=lambda dim: (-tensor.stride(dim), dim))
    if order == list(range(tensor.ndim)) or tensor.is_contiguous():
        return _values(tensor, fixed)
    back = [order.index(dim) for dim in range(tensor.ndim)]
    return f"({_values(tensor.permute(order), fixed)}).permute({', '.join(map(str, back))})"


def _values(tensor: torch.Tensor, fixed: bool) -> str:
    if not tensor.numel():
        return f"torch.empty({tuple(tensor.shape)}, dtype={tensor.dtype})"
    if (fixed or _is_table(tensor)) and (text := _table(tensor)):
        return text
    if tensor.dtype == torch.bool:
        return f"torch.rand({_shape(tensor)}) < 0.5"
    if tensor.is_complex():
        return f"torch.randn({_shape(tensor)}, dtype={tensor.dtype})"
    if not tensor.is_floating_point():
        return _integers(tensor)
    text = _floats(tensor)
    return text if tensor.dtype == torch.float32 else f"({text}).to({tensor.dtype})"


def parameter(tensor: torch.Tensor, least: float = 0.25) -> str:
    """As `drawn`, for a parameter: of the scale that its shape calls for, whatever it was trained to.

    least: a vector stays positive, as a norm's weight is, where no element is smaller.
    """
    tensor = tensor.detach()
    if not tensor.is_floating_point() or not tensor.numel() or tensor.ndim == 0:
        return drawn(tensor, fixed=tensor.ndim > 0)
    if tensor.ndim > 1:
        text = f"torch.randn({_shape(tensor)}) * {_short(tensor[0].numel() ** -0.5)}"
    elif float(tensor.min()) >= least and float(tensor.max()) > 0.0:
        text = f"torch.rand({_shape(tensor)}) + 0.5"
    else:
        text = f"torch.randn({_shape(tensor)}) * 0.25"
    return text if tensor.dtype == torch.float32 else f"({text}).to({tensor.dtype})"


def _is_table(tensor: torch.Tensor) -> bool:
    if tensor.ndim == 0 or tensor.is_complex() or tensor.dtype == torch.bool:
        return True
    if tensor.is_floating_point():  # one of few finite numbers is drawn: a verdict would hold for these alone
        return not bool(torch.isfinite(tensor.float()).all())
    return tensor.numel() <= _LONGEST_ORDERED and bool((tensor.diff(dim=-1) >= 0).all())


def _table(tensor: torch.Tensor) -> str:
    """The values themselves; "" where that is too long."""
    flat = tensor.cpu().contiguous().reshape(-1)
    if flat.numel() == 1 and not flat.is_complex() and flat.dtype.itemsize > 1:
        return _single(flat, tensor)
    text = base64.b85encode(zlib.compress(bytes(flat.view(torch.uint8).numpy()), 9)).decode()
    if len(text) > _MOST_TEXT:
        return ""
    return f"table({text!r}, {tensor.dtype}, {tuple(tensor.shape)})"


def _single(flat: torch.Tensor, tensor: torch.Tensor) -> str:
    value = flat.item()
    text = repr(value) if math.isfinite(value) else f"float('{value}')"
    return f"torch.full({tuple(tensor.shape)}, {text}, dtype={tensor.dtype})"


def _integers(tensor: torch.Tensor) -> str:
    low, high = int(tensor.min()), int(tensor.max())
    return f"torch.randint({_rounded(low)}, {_rounded(high) + 1}, {tuple(tensor.shape)}, dtype={tensor.dtype})"


def _rounded(value: int) -> int:
    """The power of two that is next towards 0: what a bound of indices may be where others are met."""
    return 0 if value == 0 else int(math.copysign(1 << (abs(value).bit_length() - 1), value))


def _floats(tensor: torch.Tensor) -> str:
    wide = tensor.double()
    low, high = float(wide.min()), float(wide.max())
    if low >= 0.0 and high > low:
        return f"torch.rand({_shape(tensor)})" + (f" * {_scale(high)}" if high > 1.0 else "")
    scale = float(wide.abs().mean()) * 1.25
    return f"torch.randn({_shape(tensor)})" + ("" if 0.2 < scale < 5.0 else f" * {_scale(scale)}")


def _scale(value: float) -> str:
    return _short(2.0 ** round(math.log2(value))) if value > 0.0 else "1.0"


def _short(value: float) -> str:
    return f"{value:.3g}"


def _shape(tensor: torch.Tensor) -> str:
    return ", ".join(map(str, tensor.shape)) if tensor.ndim else "()"
