"""How a GPU that is software is named, wherever a record names its device (docs/rocm-target.md)."""

from __future__ import annotations

_SUFFIX = " (simulated)"


def software_name(architecture: str) -> str:
    """The device's name: "gfx942 (simulated)"."""
    return architecture + _SUFFIX


def is_software(device: str) -> bool:
    """Whether the device of that name is software, so that its times are this machine's."""
    return device.endswith(_SUFFIX)
