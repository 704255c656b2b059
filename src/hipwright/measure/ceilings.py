"""A device's ceilings, measured once and stored beside the build cache (docs/measurement.md).

The figures are of torch's own kernels, run by the host of a task (`hipwright.task.device.ceilings`): a copy over memory
(4 times the last-level cache or more), a sum that only reads, a fill that only writes, and square products per dtype.
They depend on device, driver and torch, which are the key under which they are stored.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hipwright.errors import DeviceError
from hipwright.records import Record, content_key

_VERSION = "1"  # of how they are measured


class Ceilings(Record, frozen=True, kw_only=True):
    """Bytes and operations a second. copy: bytes read plus written; read, write: of kernels that do only that.

    flops: of square products by dtype as torch runs them; "float32" with tf32 off, "tf32" with it on.
    """

    device: str
    driver: str = ""
    torch: str = ""
    copy: float
    read: float
    write: float
    flops: dict[str, float]

    @property
    def bytes_per_s(self) -> float:
        """The copy's figure, by which `hipwright.measure.roofline` counts."""
        return self.copy


class Measuring(Protocol):
    """The part of `hipwright.verify.gpu.reference.DeviceReference` that measures."""

    info: dict[str, Any]

    def measure_ceilings(self) -> Mapping[str, Any]:
        """{"copy", "read", "write", "flops"}."""
        ...


def ceilings_of(reference: Measuring, folder: Path) -> Ceilings:
    """The device's ceilings, read from `folder` or measured now. Raises DeviceError for impossible figures."""
    info = reference.info
    key = content_key("ceilings", _VERSION, info["name"], info["uuid"], info["driver"], info["torch"])
    path = folder / f"ceilings-{key}.json"
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return Ceilings.from_json(path.read_bytes())
    reported = reference.measure_ceilings()
    found = Ceilings(
        device=str(info["name"]),
        driver=str(info["driver"]),
        torch=str(info["torch"]),
        copy=float(reported["copy"]),
        read=float(reported["read"]),
        write=float(reported["write"]),
        flops={str(name): float(rate) for name, rate in reported["flops"].items()},
    )
    if min(found.copy, found.read, found.write) <= 0 or not found.flops:
        raise DeviceError(f"the ceilings of {found.device} cannot be measured: {found.to_json()[:300]}")
    with contextlib.suppress(OSError):  # without a writable cache they are measured each time
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(found.to_json())
        part.replace(path)
    return found
