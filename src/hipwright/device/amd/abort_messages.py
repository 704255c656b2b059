"""Messages that the HIP runtime prints before it aborts: on AMD most faults of a kernel end the process.

The lines are those of ROCR-Runtime and CLR; the parent finds them at the end of a dead worker's stderr.
"""

from __future__ import annotations

import re

from hipwright.errors import CandidateError, DeviceError, HipwrightError

_FAULT = re.compile(r"Memory access fault by GPU node-(\d+)[^\n]*? on address (0x[0-9a-fA-F]+|\(nil\))[^\n]*")
_HANG = re.compile(r"HW Exception by GPU node-(\d+)[^\n]*|GPU [Hh]ang[^\n]*")
_QUEUE = re.compile(r"HSA_STATUS_ERROR_(\w+)[^\n]*")


def error_of_abort(stderr: str) -> HipwrightError | None:
    """The error of the kernel for which the HIP runtime aborted the process; None where stderr has no such line."""
    if found := _FAULT.search(stderr):
        evidence = {"address": found[2], "said": found[0]}
        message = f"a kernel read or wrote an address that is not mapped: {found[2]}"
        return CandidateError(message, status="out_of_bounds", stage="launch", evidence=evidence)
    if found := _HANG.search(stderr):
        message = "a kernel hung the GPU, or the GPU failed"
        return CandidateError(message, status="timeout", stage="launch", evidence={"said": found[0]})
    if found := _QUEUE.search(stderr):
        if found[1].startswith("OUT_OF_RESOURCES"):
            return DeviceError("the device is out of memory or queues", evidence={"said": found[0]})
        message = f"a kernel raised a hardware exception: {found[1]}"
        return CandidateError(message, stage="launch", evidence={"said": found[0]})
    return None
