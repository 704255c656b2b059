"""The structures of toolchain/cpu_rt/rt.h for ctypes."""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_int32, c_uint32, c_uint64, c_void_p

from hipwright.records import Status

ORDERS = {"forward": 0, "reverse": 1, "shuffle": 2}
STATUS: dict[int, Status] = {
    1: "out_of_bounds",
    2: "launch_error",
    3: "timeout",
    4: "nondeterministic",
    5: "input_mutated",
    6: "out_of_bounds",
}
MISALIGNED = 6
KINDS = {0: "read", 1: "write", 2: "atomic read", 3: "atomic write"}
COUNTS = (
    "read_bytes",
    "write_bytes",
    "lds_bytes_moved",
    "barriers",
    "wave_ops",
    "atomics",
    "float_atomics",
    "regions_without_race_check",
)
LDS, STACK, MODULE = -2, -3, -4  # values of LaunchRecord.region that are no buffer


READ_ONLY, READ_ALONE = 1, 2
"""Values of `BufferRegion.read_only`: a write is `input_mutated`, or comes from the pointer of another argument."""


class BufferRegion(ctypes.Structure):
    """One buffer of the launch."""

    _fields_ = (
        ("start", c_uint64),
        ("size", c_uint64),
        ("granule", c_uint32),
        ("argument", c_int32),
        ("shadow", c_uint64),
        ("read_only", c_uint64),
    )


class Party(ctypes.Structure):
    """A thread and its access."""

    _fields_ = (("block", c_uint32 * 3), ("thread", c_uint32 * 3), ("access", c_uint32), ("line", c_uint32))


OUTCOME_FIELDS = (
    ("seed", c_uint64),
    ("poison", c_uint64),
    ("limit_us", c_uint64),
    ("regions", c_void_p),
    ("region_count", c_uint32),
    ("status", c_uint32),
    ("at", Party),
    ("other", Party),
    ("address", c_uint64),
    ("bytes", c_uint32),
    ("alignment", c_uint32),
)
"""What the launch records of every executor have in the same place: how a launch runs, and the access at fault."""


class LaunchRecord(ctypes.Structure):
    """One launch and its outcome."""

    _fields_ = (
        ("entry", c_void_p),
        ("args", c_void_p),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("wave", c_uint32),
        ("order", c_uint32),
        ("lds_dynamic", c_uint32),
        ("lds_static", c_uint32),
        ("loops", c_uint32),
        ("checked", c_uint32),
        ("lds_kept", c_uint32),
        *OUTCOME_FIELDS,
        ("unused", c_uint32),
        ("region", c_int32),
        ("counts", c_uint64 * len(COUNTS)),
        ("message", c_char * 192),
    )
