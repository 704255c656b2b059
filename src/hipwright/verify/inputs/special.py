"""Special values: numbers that the reference's own calls name, NaN and Inf, and the extremes of integers.

The task host records what the reference passes to torch beside tensors (`task.host.special`); a family writes those
numbers into the inputs. Where the reference refuses them the case is rejected, so no domain is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hipwright.tensors import BITS, HostTensor, Tree, tensor_leaves
from hipwright.verify.inputs.domain import Domain, InputLeaf
from hipwright.verify.inputs.layouts import with_values
from hipwright.verify.inputs.values import Rng

SPECIAL = ("named_values", "nan_values", "infinities", "integer_bounds", "wide_integers")
NONFINITE = {"nan_values": (np.nan,), "infinities": (np.inf, -np.inf)}
SHARE = 0.25  # of a leaf's elements that hold a named value
NONFINITE_SHARE = 0.04  # of a leaf's elements that are NaN or Inf
WIDE = {"int64": 1 << 40, "int32": 1 << 30, "int16": 1 << 14, "int8": 1 << 6, "uint8": 1 << 8}
_MONOTONE = 4  # elements from which on an ascending leaf counts as one of offsets


@dataclass(frozen=True)
class Special:
    """What the reference's calls say about values.

    integers, floats: numbers that it compares with or passes for tensors of that kind, such as an ignored label or a
    threshold; nonfinite: it has an operator that treats NaN or Inf apart; arithmetic: every operator is integer
    arithmetic, which any number suits (no index, no size); writes: it writes to inputs, where the order of two elements
    for one place is open, so that places that differ must go on differing.
    """

    integers: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()
    nonfinite: bool = False
    arithmetic: bool = False
    writes: bool = False

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Special:
        """From the task host's report."""
        return cls(
            tuple(int(n) for n in told.get("integers", ())),
            tuple(float(n) for n in told.get("floats", ())),
            bool(told.get("nonfinite")),
            bool(told.get("arithmetic")),
        )

    def families(self, base: Tree, domain: Domain) -> tuple[str, ...]:
        """The families of this module that change the inputs."""
        tensors = tensor_leaves(base)
        whole = any(_holds_integers(tensor) for tensor in tensors)
        free = any(not leaf.fixed for leaf in domain.leaves)
        wanted = {
            "named_values": (whole and bool(self.integers)) or (free and bool(self.floats)),
            "nan_values": free and self.nonfinite,
            "infinities": free and self.nonfinite,
            "integer_bounds": whole,
            "wide_integers": whole and self.arithmetic,
        }
        return tuple(family for family in SPECIAL if wanted[family])


def special_leaf(
    tensor: HostTensor, leaf: InputLeaf, family: str, rng: Rng, special: Special, restricted: bool
) -> HostTensor:
    """One leaf under a family of `SPECIAL`; unchanged where the family is not about its kind."""
    if not tensor.numel:
        return tensor
    if tensor.is_float:
        made = tensor if leaf.fixed else _special_floats(tensor, leaf if restricted else None, family, rng, special)
        return with_values(tensor, np.sort(made.to_f64(), axis=-1)) if leaf.rises and not leaf.fixed else made
    if not _holds_integers(tensor):
        return tensor
    bits = np.array(tensor.bits())
    if special.writes and family != "wide_integers" and np.unique(bits).size == bits.size:
        return _laid_out(tensor, rng.permutation(bits.reshape(-1)).reshape(bits.shape))
    if family == "named_values" and special.integers:
        fits = [n for n in special.integers if np.iinfo(bits.dtype).min <= n <= np.iinfo(bits.dtype).max]
        chosen = rng.choice(fits, bits.shape) if fits else bits
        return _laid_out(tensor, np.where(_some(rng, bits.shape, SHARE), chosen, bits).astype(bits.dtype))
    if family == "integer_bounds":
        return _laid_out(tensor, rng.choice([bits.min(), bits.max()], bits.shape).astype(bits.dtype))
    if family == "wide_integers":
        most = WIDE[tensor.dtype]
        lowest = 0 if bits.dtype.kind == "u" else -most
        return _laid_out(tensor, rng.integers(lowest, most, bits.shape).astype(bits.dtype))
    return tensor


def _special_floats(
    tensor: HostTensor, bounds: InputLeaf | None, family: str, rng: Rng, special: Special
) -> HostTensor:
    values = tensor.to_f64().copy()
    if family in NONFINITE:
        where = _some(rng, values.shape, NONFINITE_SHARE)
        return with_values(tensor, np.where(where, rng.choice(NONFINITE[family], values.shape), values))
    if family == "named_values" and special.floats:
        named = np.asarray(special.floats)
        beside = np.concatenate([named, np.nextafter(named, np.inf), np.nextafter(named, -np.inf), named * 1.5 + 0.1])
        if bounds is not None:
            beside = np.clip(beside, bounds.low, bounds.high)
        return with_values(tensor, np.where(_some(rng, values.shape, 0.5), rng.choice(beside, values.shape), values))
    return tensor


def _some(rng: Rng, shape: tuple[int, ...], share: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A mask of about this share of the elements, at least one, never all of several."""
    mask = rng.random(shape) < share
    if mask.size:
        mask.reshape(-1)[int(rng.integers(mask.size))] = True
        if mask.size > 1:
            mask.reshape(-1)[int(rng.integers(mask.size))] = False
    return mask


def _holds_integers(tensor: HostTensor) -> bool:
    """Whether a leaf holds integers that are no ascending offsets."""
    if tensor.is_float or tensor.dtype not in WIDE or not tensor.numel:
        return False
    bits = tensor.bits()
    ascending = bits.ndim == 1 and bits.size >= _MONOTONE and bool((bits[1:] >= bits[:-1]).all())
    return not ascending


def _laid_out(like: HostTensor, bits: Any) -> HostTensor:
    """These bits in the leaf's layout; dense where it overlaps itself."""
    if any(s == 0 and n > 1 for s, n in zip(like.stride, like.shape, strict=True)):
        return HostTensor.of(bits, like.dtype)
    out = HostTensor(like.dtype, like.shape, like.stride, like.offset, like.storage.copy())
    out.bits()[...] = bits.astype(BITS[like.dtype])
    return out
