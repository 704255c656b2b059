"""The `--target` option."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.errors import BadInput

OFFLINE = ("gfx942", "gfx950")
"""What is compiled without being asked for."""
GPUS = ("rocm", "cuda")
"""Targets that run on a GPU of this machine, the preferred one first."""


def default() -> tuple[str, ...]:
    """AMD machine code where the compiler for it is, and the best that can run here: rocm, else cuda, else cpu."""
    from hipwright.sandbox.gpu import gpu_count
    from hipwright.toolchain import clang

    runs = next((kind for kind in GPUS if gpu_count(kind)), "cpu")  # type: ignore[arg-type]
    return (*OFFLINE, runs) if runs == "cpu" or clang.present() else (runs,)


def choose(names: Sequence[str] | None) -> tuple[str, ...]:
    """The targets asked for, each once, in order; the default ones for none.

    BadInput for a name nobody knows, and for a GPU that this machine does not have.
    """
    from hipwright.sandbox.gpu import gpu_count
    from hipwright.targets import OFFLINE

    chosen = tuple(dict.fromkeys(names)) if names else default()
    known = (*OFFLINE, "cpu", *GPUS)
    for name in chosen:
        if name not in known:
            raise BadInput(f"unknown target {name!r}", hint=f"targets: {', '.join(known)}")
        if name in GPUS and not gpu_count(name):  # type: ignore[arg-type]
            maker = "AMD" if name == "rocm" else "NVIDIA"
            raise BadInput(
                f"target {name}: no {maker} GPU here",
                hint=f"`hipwright doctor` says what this machine has; without a GPU: {', '.join((*OFFLINE, 'cpu'))}",
            )
    return chosen
