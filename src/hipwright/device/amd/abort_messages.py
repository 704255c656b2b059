"""What the HIP runtime says before it ends a process: on AMD most faults of a kernel are an abort, not an error code.

The lines are ROCR-Runtime's and CLR's; the parent finds them in what a dead worker printed last.
"""

from __future__ import annotations

import re

from hipwright.errors import CandidateError, DeviceError, HipwrightError

_FAULT = re.compile(r"Memory access fault by GPU node-(\d+)[^\n]*? on address (0x[0-9a-fA-F]+|\(nil\))[^\n]*")
_HANG = re.compile(r"HW Exception by GPU node-(\d+)[^\n]*|GPU [Hh]ang[^\n]*")
_QUEUE = re.compile(r"HSA_STATUS_ERROR_(\w+)[^\n]*")


def from_last_words(stderr: str) -> HipwrightError | None:
    """What a process that the HIP runtime ended says of the kernel it ran; None when its stderr tells nothing."""
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
