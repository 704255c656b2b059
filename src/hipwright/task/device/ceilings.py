"""Measures a device's ceilings with torch's own kernels: memory bandwidth, and products per dtype.

Runs in the device host.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from hipwright.targets import TORCH_GPU

_BYTES = {TORCH_GPU: 1 << 30, "cpu": 1 << 24}  # of one buffer of a copy; at least 4 times the last-level cache
_SIZE = {TORCH_GPU: 8192, "cpu": 256}  # of square products
_REPEATS = 15
_ROTATION = 3  # pairs of buffers


def measure(device: torch.device, llc_bytes: int) -> dict[str, Any]:
    """{"copy", "read", "write": bytes per second, "flops": {dtype: operations per second}}.

    Medians of repeated launches over rotating buffers. "float32" is with tf32 off, "tf32" with it on.
    """
    products = {name: rate for name, dtype, tf32 in _PRODUCTS if (rate := _product(device, dtype, tf32))}
    return {**_bandwidths(device, max(_BYTES[device.type], 4 * llc_bytes) // 4 * 4), "flops": products}


def _bandwidths(device: torch.device, size: int) -> dict[str, float]:
    buffers = [torch.ones(size // 4, device=device) for _ in range(_ROTATION)]
    out = torch.empty_like(buffers[0])
    return {
        "copy": 2 * size / _seconds(device, lambda i: out.copy_(buffers[i])),
        "read": size / _seconds(device, lambda i: buffers[i].sum()),
        "write": size / _seconds(device, lambda i: buffers[i].fill_(1.0)),
    }


_PRODUCTS = (
    ("float32", torch.float32, False),
    ("tf32", torch.float32, True),
    ("float16", torch.float16, False),
    ("bfloat16", torch.bfloat16, False),
    ("float64", torch.float64, False),
)


def _product(device: torch.device, dtype: torch.dtype, tf32: bool) -> float:
    """Operations per second of a square product; 0 where the device has none of this dtype."""
    size = _SIZE[device.type]
    with _tf32(tf32):
        try:
            pairs = [torch.randn(2, size, size, device=device).to(dtype) for _ in range(2)]
            return 2.0 * float(size) ** 3 / _seconds(device, lambda i: pairs[i % 2][0] @ pairs[i % 2][1])
        except RuntimeError:
            return 0.0


@contextlib.contextmanager
def _tf32(on: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = on
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _seconds(device: torch.device, launch: Callable[[int], Any]) -> float:
    """Median seconds of one launch, by the device's events; the first few do not count."""
    found = []
    for repeat in range(_REPEATS + 3):
        if device.type == TORCH_GPU:
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            launch(repeat % _ROTATION)
            last.record()
            torch.cuda.synchronize(device)
            found.append(first.elapsed_time(last) / 1e3)
        else:
            start = time.perf_counter()
            launch(repeat % _ROTATION)
            found.append(time.perf_counter() - start)
    return float(statistics.median(found[3:]))
