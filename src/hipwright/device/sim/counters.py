"""Counts of profiled launches, as toolchain/sim_rt/profile.h keeps them: by instruction, and of a launch."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from hipwright.device.sim.abi import CacheModel
from hipwright.targets import Architecture

FIELDS = (
    *("line", "runs", "lanes", "bytes", "lines", "ideal_lines", "lds_cycles", "lds_ideal"),
    *("wait_memory", "wait_lds", "wait_scalar", "stall_memory", "stall_lds", "stall_scalar"),
)
"""Of an instruction. line: of the assembly; runs: by waves; lanes: active, summed over runs; bytes: of active lanes.

lines: cache lines that global accesses touch, ideal_lines: that they would if coalesced; lds_cycles, lds_ideal: of LDS
accesses with and without bank conflicts; wait_*: runs of a wait that had something to wait for; stall_*: those of them
for something that was issued after the last stall, so that waits for loads which are in flight together count once.
"""
TOTALS = ("l1_hit", "l1_miss", "l2_hit", "l2_miss", "fetched", "written", "scalar_hit", "scalar_miss", "waves")
"""Of a launch, in cache lines but for waves. fetched, written: between L2 and memory."""


class Counters:
    """The counts of one launch; `close` frees them. library: the executor; program: in it, of `ops` micro-ops; skipped:
    blocks that run before anything is counted."""

    def __init__(self, library: ctypes.CDLL, program: int, ops: int, architecture: Architecture, skipped: int) -> None:
        self._library, self._ops = library, ops
        library.sim_profile.restype = library.sim_profile_ops.restype = ctypes.c_void_p
        library.sim_profile_totals.restype = ctypes.c_void_p
        library.sim_profile.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        for name in ("sim_profile_ops", "sim_profile_totals", "sim_profile_free"):
            getattr(library, name).argtypes = (ctypes.c_void_p,)
        model = CacheModel(
            architecture.line_bytes,
            architecture.l1_bytes,
            architecture.l2_bytes // architecture.dies,
            architecture.dies,
            architecture.lds_banks,
            skipped,
        )
        self.address = int(library.sim_profile(program, ctypes.addressof(model)))

    def read(self, text: Mapping[str, str]) -> dict[str, Any]:
        """{"instructions": [{"text", FIELDS}] of those that ran, in the assembly's order, TOTALS}. text: by line."""
        ops = _array(self._library.sim_profile_ops(self.address), self._ops * len(FIELDS)).reshape(-1, len(FIELDS))
        totals = _array(self._library.sim_profile_totals(self.address), len(TOTALS))
        rows = [dict(zip(FIELDS, map(int, row), strict=True)) for row in ops[ops[:, 1] > 0]]
        named = [{"text": text.get(str(row["line"]), ""), **row} for row in rows]
        return {"instructions": named, **dict(zip(TOTALS, map(int, totals), strict=True))}

    def close(self) -> None:
        """Frees the counts."""
        self._library.sim_profile_free(self.address)


def _array(address: int, count: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_uint64 * count).from_address(address)).copy()
