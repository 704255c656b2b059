"""The `--target` option."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.errors import BadInput

DEFAULT = ("gfx942", "gfx950", "cpu")
LATER = {
    "rocm": "running on AMD GPUs is not built yet",
    "cuda": "running HIP on NVIDIA GPUs is not built yet",
}


def choose(names: Sequence[str] | None) -> tuple[str, ...]:
    """The targets asked for, each once, in order; the default ones for none. BadInput for a name nobody knows."""
    from hipwright.toolchain.targets import TARGETS

    chosen = tuple(dict.fromkeys(names or DEFAULT))
    known = (*TARGETS, "cpu")
    for name in chosen:
        if name in LATER:
            raise BadInput(f"target {name}: {LATER[name]}", hint=f"targets that work today: {', '.join(known)}")
        if name not in known:
            raise BadInput(f"unknown target {name!r}", hint=f"targets: {', '.join(known)}")
    return chosen
