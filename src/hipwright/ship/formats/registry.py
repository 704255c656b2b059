"""The list of formats. A new one is a module here and a line in REGISTERED."""

from __future__ import annotations

from hipwright.errors import BadInput
from hipwright.ship.formats import flashinfer_trace, hf_kernels, modelnew, popcorn, standalone_hip, torch_op
from hipwright.ship.subject import ShipFormat

REGISTERED: tuple[ShipFormat, ...] = (
    torch_op.FORMAT,
    hf_kernels.FORMAT,
    flashinfer_trace.FORMAT,
    modelnew.FORMAT,
    popcorn.FORMAT,
    standalone_hip.FORMAT,
)
FORMATS = {form.name: form for form in REGISTERED}


def named(name: str | None) -> ShipFormat:
    """The format of that name. Raises BadInput, with the list, for another name."""
    if name not in FORMATS:
        raise BadInput(f"--format is one of {', '.join(FORMATS)}" + (f", not {name!r}" if name else ""))
    return FORMATS[name]
