"""The structures of toolchain/sim_rt/sim.h for ctypes."""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_int32, c_uint32, c_uint64, c_void_p

from hipwright.device.cpu.abi import COUNTS, OUTCOME_FIELDS

UNSUPPORTED = 7
"""A status beside those of `device.cpu.abi.STATUS`."""
DISPATCH_BYTES = 64
"""The dispatch packet, which lies behind the arguments."""


class CacheModel(ctypes.Structure):
    """The caches of a profiled launch in bytes; l2_bytes: of one die; banks: of the LDS.

    skipped: blocks that run before anything is counted.
    """

    _fields_ = tuple((name, c_uint32) for name in ("line", "l1_bytes", "l2_bytes", "dies", "banks", "skipped"))


class KernelRecord(ctypes.Structure):
    """What the launch ABI says of a kernel; registers are -1 where a value is not passed."""

    _fields_ = (
        *((name, c_uint32) for name in ("entry", "vgprs", "lds", "scratch", "wave", "mode", "item_ids", "packed_ids")),
        *((name, c_int32) for name in ("kernarg_sgpr", "dispatch_sgpr", "scratch_sgpr", "group_x", "group_y")),
        *((name, c_int32) for name in ("group_z", "scratch_offset", "flat_scratch")),
        *((name, c_uint32) for name in ("preload", "preload_sgpr")),
    )


class SimulatedLaunch(ctypes.Structure):
    """One launch and its outcome."""

    _fields_ = (
        ("program", c_void_p),
        ("kernel", c_void_p),
        ("kernarg", c_void_p),
        ("kernarg_bytes", c_uint64),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("order", c_uint32),
        ("lds_dynamic", c_uint32),
        ("lds_kept", c_uint32),
        ("checked", c_uint32),
        *OUTCOME_FIELDS,
        ("region", c_int32),
        ("most_blocks", c_uint32),
        ("counts", c_uint64 * len(COUNTS)),
        ("message", c_char * 256),
        ("profile", c_void_p),
    )
