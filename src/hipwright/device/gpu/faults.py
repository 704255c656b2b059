"""Device faults by the text that the driver or torch reports."""

from __future__ import annotations

import re

from hipwright.records import Status

DEVICE_FAULT = re.compile(
    r"illegal memory|illegal address|misaligned|illegal instruction|invalid program counter|unspecified launch|launch "
    r"(failure|failed|timed out|timeout)|device-side assert|memory access fault|hardware exception|ECC|hipError|"
    r"CUDA error",
    re.IGNORECASE,
)
"""Matches the text of an exception that a fault of a kernel or of the device causes."""


def fault_status(error: str) -> Status:
    """The status of a sticky device error, by its text."""
    text = error.lower().replace("_", " ")
    if re.search(r"illegal ?(memory|address)|misaligned|invalid address|memory access fault", text):
        return "out_of_bounds"
    return "timeout" if re.search(r"timed out|timeout", text) else "launch_error"
