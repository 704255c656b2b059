"""The record of one GPU."""

from __future__ import annotations

from hipwright.records import Record


class GpuInfo(Record, frozen=True, kw_only=True):
    """One GPU. index: its number on the machine, as GpuAccess counts. kind: the name of its target. units: compute
    units, 0 where the driver does not tell.
    """

    index: int
    kind: str
    name: str
    architecture: str
    memory_bytes: int = 0
    units: int = 0
    uuid: str = ""
