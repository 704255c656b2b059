"""Where two replies of one program differ in a bit, and the verdict on that."""

from __future__ import annotations

from typing import Any

import numpy as np

from hipwright.records import Verdict
from hipwright.tensors import HostTensor, tensor_leaves
from hipwright.verify.candidate import CallReply, case_evidence, launches
from hipwright.verify.case_draws import VerificationCase


def first_difference(a: CallReply, b: CallReply) -> tuple[int, tuple[int, ...]] | None:
    """(leaf, index) of the first bit that differs; NaN equals NaN."""
    pairs = zip(tensor_leaves(a.tree), tensor_leaves(b.tree), strict=False)
    for leaf, (x, y) in enumerate(pairs):
        if (x.dtype, x.shape) != (y.dtype, y.shape):  # both were accepted: the worker reordered its reply
            return leaf, ()
        found = different(x, y)
        if found.any():
            return leaf, tuple(int(i) for i in np.unravel_index(int(np.argmax(found)), found.shape))
    return None


def different(x: HostTensor, y: HostTensor) -> Any:
    """Where two tensors of one dtype and shape differ in a bit; NaN equals NaN."""
    found = _raw_differ(x, y)
    if x.is_float and found.any():
        same = np.isnan(x.to_f64()) & np.isnan(y.to_f64())
        found = (found & ~same).any(-1) if x.is_complex else found & ~same
    return found.any(-1) if found.ndim > len(x.shape) else found


def _raw_differ(x: HostTensor, y: HostTensor) -> Any:
    """Where the stored bits differ; of a complex tensor for each part."""
    size = x.bits().dtype.itemsize // (2 if x.is_complex else 1)
    width = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[size]
    one, two = (np.ascontiguousarray(tensor.bits()).reshape(-1).view(width) for tensor in (x, y))
    return (one != two).reshape(x.values_shape)


def nondeterministic_verdict(
    case: VerificationCase, place: tuple[int, tuple[int, ...]], order: str, first: CallReply
) -> Verdict:
    """The verdict on results that differ between two runs. place: leaf and index; order: of the second run."""
    leaf, index = place
    return Verdict(
        status="nondeterministic",
        fault="candidate",
        family=case.family,
        workload=case.workload,
        message=f"output {leaf} at {list(index)} depends on the order in which threads and blocks run (forward against "
        f"{order}) or on uninitialised memory, and the kernels declare no float atomics (on {case.name})",
        evidence={**case_evidence(case), "output": leaf, "index": list(index), "launches": launches(first.stats)},
    )
