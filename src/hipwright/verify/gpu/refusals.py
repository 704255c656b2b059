"""What the reference itself refuses on a device: a library's operator may ask there for what it does not on the
processor, such as addresses that are multiples of 16 bytes. Does not import torch.
"""

from __future__ import annotations

from hipwright.errors import DeviceError, TaskError
from hipwright.records import Verdict
from hipwright.verify.case_draws import VerificationCase
from hipwright.verify.gpu.hosts.device_process import Crowded
from hipwright.verify.gpu.reference import DeviceReference

REFUSED = "the reference itself refuses these inputs on this device: "


def asks(verdict: Verdict) -> bool:
    """Whether a verdict is one that the reference may share: its code raised, and the device is whole."""
    return verdict.status == "launch_error" and not verdict.evidence.get("broken")


def refusal(reference: DeviceReference, case: VerificationCase) -> str:
    """What the reference raises on a case's inputs on its device, at the addresses' alignment that a program gets.

    "" where it runs, and where that cannot be told: for want of memory, or because its own call breaks the device.
    Raises Crowded beside other tasks.
    """
    try:
        reply = reference.ask("refusal", {"state": reference.state_number(case.state)}, case.inputs)[0]
    except Crowded:
        raise
    except (TaskError, DeviceError):
        return ""
    return str(reply["why"])[:300]
